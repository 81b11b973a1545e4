package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// fault is a fault that lasts for a while. struck returns how often it has had an effect, as far as
// that can be proved: a fault without effect has tested nothing.
type fault struct {
	name   string
	strike func(ctx context.Context, w *world, site int, span time.Duration) (struck int, err error)
}

// faults returns all faults that a run draws from.
func faults() []fault {
	return []fault{
		{"a proxy is killed", killProxy},
		{"a proxy ends in order", endProxy},
		{"a proxy stands still", pauseProxy},
		{"a node stands still", pauseNode},
		{"a node is killed", killNode},
		{"a site is cut off", cutSite},
		{"a site is heard and does not hear", deafSite},
		{"packets are lost", losePackets},
		{"commits of LWTs are lost", tamper("drop PAXOS_COMMIT_REQ * 20")},
		{"proposals of LWTs are lost", tamper("drop PAXOS2_PROPOSE_REQ * 5")},
		{"answers to LWTs are lost", tamper("drop PAXOS2_PROPOSE_RSP * 5")},
		{"writes are held back and arrive late", tamper("hold MUTATION_REQ * 30")},
		{"writes are lost", tamper("drop MUTATION_REQ * 30")},
		{"a node's clock is ahead", skew(4 * time.Second)},
		{"a node's clock is behind", skew(-4 * time.Second)},
	}
}

// rest waits for a span or for ctx.
func rest(ctx context.Context, span time.Duration) {
	t := time.NewTimer(span)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func killProxy(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	w.proxies[site-1].kill()
	rest(ctx, span)
	return 1, w.proxies[site-1].start(context.WithoutCancel(ctx))
}

func endProxy(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	w.proxies[site-1].signal(syscall.SIGTERM)
	w.proxies[site-1].wait()
	rest(ctx, span/4)
	return 1, w.proxies[site-1].start(context.WithoutCancel(ctx))
}

func pauseProxy(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	w.proxies[site-1].signal(syscall.SIGSTOP)
	rest(ctx, span)
	w.proxies[site-1].signal(syscall.SIGCONT)
	return 1, nil
}

func pauseNode(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	n := w.nodes.Nodes()[site-1]
	if err := n.Pause(); err != nil {
		return 0, err
	}
	rest(ctx, span)
	return 1, n.Resume()
}

func killNode(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	n := w.nodes.Nodes()[site-1]
	if err := n.Kill(); err != nil {
		return 0, err
	}
	rest(ctx, span/2)
	if err := n.Start(context.WithoutCancel(ctx)); err != nil {
		return 0, err
	}
	return 1, w.nodes.Wait(context.WithoutCancel(ctx))
}

// lossy counts the packets that a fault of the network drops.
func lossy(ctx context.Context, w *world, span time.Duration, mend func()) (int, error) {
	before := w.network.Lost()
	rest(ctx, span)
	mend()
	return int(w.network.Lost() - before), nil
}

func cutSite(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	for other := 1; other <= sites; other++ {
		w.network.Cut(site, other)
		w.network.Cut(other, site)
	}
	return lossy(ctx, w, span, w.network.Heal)
}

func deafSite(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	for other := 1; other <= sites; other++ {
		w.network.Cut(other, site)
	}
	return lossy(ctx, w, span, w.network.Heal)
}

func losePackets(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
	lose := func(perMillion int64) {
		for other := 1; other <= sites; other++ {
			w.network.Lose(site, other, perMillion)
		}
	}
	lose(100_000)
	return lossy(ctx, w, span, func() { lose(0) })
}

// tamper sets a rule for what a node sends; the node counts how often it was applied.
func tamper(rule string) func(context.Context, *world, int, time.Duration) (int, error) {
	return func(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
		n := w.nodes.Nodes()[site-1]
		if _, err := n.Fault(ctx, rule); err != nil {
			return 0, err
		}
		rest(ctx, span)
		later := context.WithoutCancel(ctx)
		rules, err := n.Fault(later, "list")
		if err != nil {
			return 0, err
		}
		_, err = n.Fault(later, "heal")
		return hits(rules), err
	}
}

// hits returns how often rules were applied.
func hits(rules string) (n int) {
	for _, found := range regexp.MustCompile(`hits=(\d+)`).FindAllStringSubmatch(rules, -1) {
		some, _ := strconv.Atoi(found[1]) // digits
		n += some
	}
	return n
}

// skew moves a node's clock for a while.
func skew(by time.Duration) func(context.Context, *world, int, time.Duration) (int, error) {
	return func(ctx context.Context, w *world, site int, span time.Duration) (int, error) {
		n := w.nodes.Nodes()[site-1]
		if _, err := n.Fault(ctx, fmt.Sprintf("skew %d", by.Milliseconds())); err != nil {
			return 0, err
		}
		rest(ctx, span)
		_, err := n.Fault(context.WithoutCancel(ctx), "skew 0")
		return 1, err
	}
}

// draw chooses the next fault: mostly one, for some seconds, at one site.
func draw(random *rand.Rand, all []fault) (f fault, site int, span time.Duration) {
	return all[random.IntN(len(all))], 1 + random.IntN(sites), time.Duration(500+random.IntN(4500)) * time.Millisecond
}
