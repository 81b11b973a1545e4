package safety

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"music/integration/evaluate/section"
)

// Fault is a fault that lasts for a while.
type Fault struct {
	Name  string
	How   string                // what is done, for a reader of the table
	turns bool                  // it strikes clients who take turns; otherwise the holder of a section
	stays bool                  // the holder goes on under the fault, and leaves by itself
	first bool                  // it strikes before anybody enters
	after time.Duration         // how long it lasts at least
	ahead map[int]time.Duration // of the clients' clocks, at first

	strike, mend func(context.Context, *world, []*trial) error
}

// everywhere returns the sites with nodes.
func everywhere() []int { return []int{1, 2, 3} }

// Faults returns those of the table.
func Faults() []Fault {
	return []Fault{
		{
			Name: "paused", How: "the holder's process, and the proxy of its site, stand still past the lease (SIGSTOP) and go on",
			strike: pause, mend: resume,
		},
		{Name: "killed", How: "the holder's process, and the proxy of its site, are killed", strike: kill, mend: revive},
		{
			Name: "put held back", How: "what the holder sends stays in the network for 10 s, while it stands still",
			after: 10 * time.Second, strike: holdBack, mend: heal,
		},
		{
			Name: "missed enqueue", How: "no prepare and no commit of an LWT that the other nodes send reaches that of site 3: it learns only what it asks for itself",
			first: true, stays: true, strike: deafen, mend: healNodes,
		},
		{Name: "commit lost", How: "60 commits of LWTs are lost, of all systems together", turns: true, strike: rules("drop PAXOS_COMMIT_REQ * 20"), mend: healNodes},
		{
			Name: "answer lost", How: "60 answers to proposals and 60 to writes are lost, of all systems together, and all that anything at site 1 sends to client 1",
			turns: true, strike: loseAnswers, mend: heal,
		},
		{
			Name: "clocks", How: "the holder's clock is a minute ahead and then right again, a waiter's and node 2's a minute behind, node 3's a minute ahead",
			stays: true, ahead: map[int]time.Duration{1: time.Minute, 2: -time.Minute}, strike: skew, mend: unskew,
		},
		{Name: "site cut", How: "the holder's site is cut off, with node and proxy, and comes back", strike: cut, mend: heal},
		{Name: "leader killed", How: "the node of site 1 is killed, and the servers that lead ZooKeeper and etcd; all are started again", turns: true, strike: killLeaders, mend: startLeaders},
	}
}

// pause stops the proxy of site 1 and client 1 of each trial.
func pause(_ context.Context, w *world, all []*trial) error {
	w.signal(1, syscall.SIGSTOP)
	return signalFirst(all, syscall.SIGSTOP)
}

// resume resumes what pause has stopped.
func resume(_ context.Context, w *world, all []*trial) error {
	w.signal(1, syscall.SIGCONT)
	return signalFirst(all, syscall.SIGCONT)
}

// signalFirst signals client 1 of each trial.
func signalFirst(all []*trial, s syscall.Signal) error {
	for _, t := range all {
		if p := t.clients[1]; p != nil {
			p.signal(s)
		}
	}
	return nil
}

// kill ends the proxy of site 1 and client 1 of each trial.
func kill(_ context.Context, w *world, all []*trial) error {
	w.proxies[0].Kill()
	return signalFirst(all, syscall.SIGKILL)
}

// revive starts the proxy of site 1 again.
func revive(ctx context.Context, w *world, _ []*trial) error { return w.startProxy(ctx, 1) }

// holdBack: the kernel of a paused process goes on sending what the process has written until it
// arrives.
func holdBack(ctx context.Context, w *world, all []*trial) error {
	w.network.Cut(sites+1, 1)
	section.Rest(ctx, 300*time.Millisecond) // in which each holder writes something more
	return signalFirst(all, syscall.SIGSTOP)
}

// heal ends the faults of the network and of the nodes' messages.
func heal(ctx context.Context, w *world, all []*trial) error {
	w.network.Heal()
	return healNodes(ctx, w, all)
}

// healNodes ends the rules of the nodes' messages.
func healNodes(ctx context.Context, w *world, _ []*trial) error {
	return w.each(ctx, "heal", everywhere()...)
}

// rules sets rules for what every node sends.
func rules(commands ...string) func(context.Context, *world, []*trial) error {
	return func(ctx context.Context, w *world, _ []*trial) error {
		for _, command := range commands {
			if err := w.each(ctx, command, everywhere()...); err != nil {
				return err
			}
		}
		return nil
	}
}

// loseAnswers drops answers between nodes, and all that the node of site 1 sends to the client beside it.
func loseAnswers(ctx context.Context, w *world, all []*trial) error {
	w.network.Cut(1, sites+1)
	return rules("drop PAXOS2_PROPOSE_RSP * 20", "drop MUTATION_RSP * 20")(ctx, w, all)
}

// deafen: of an LWT, node 3 learns only what it is sent as its coordinator, the latest commit.
func deafen(ctx context.Context, w *world, _ []*trial) error {
	third := w.network.Address(3, 1)
	return errors.Join(w.each(ctx, "drop PAXOS_COMMIT_REQ "+third, 1, 2), w.each(ctx, "drop PAXOS2_PREPARE_REQ "+third, 1, 2))
}

// skew sets the clocks of nodes 2 and 3 a minute off, and that of client 1 of each trial right.
func skew(ctx context.Context, w *world, all []*trial) error {
	setRight(all, 1)
	const minute = 60_000
	return errors.Join(w.each(ctx, fmt.Sprint("skew ", -minute), 2), w.each(ctx, fmt.Sprint("skew ", minute), 3))
}

// unskew corrects the clocks that are still wrong.
func unskew(ctx context.Context, w *world, all []*trial) error {
	setRight(all, 2)
	return w.each(ctx, "skew 0", 2, 3)
}

// setRight sets the clock of client k right, in each trial that has clients: one whose servers cannot be had has none.
func setRight(all []*trial, k int) {
	each(all, func(t *trial) error { t.clients[k].tell("skew 0"); return nil })
}

// cut separates site 1 and the client beside it from all others.
func cut(_ context.Context, w *world, _ []*trial) error {
	for _, inside := range []int{1, sites + 1} {
		for _, outside := range []int{2, 3, sites + 2, sites + 3} {
			w.network.Cut(inside, outside)
			w.network.Cut(outside, inside)
		}
	}
	return nil
}

// killLeaders kills the node of site 1, and the leaders of ZooKeeper and etcd.
func killLeaders(ctx context.Context, w *world, _ []*trial) error {
	for name, o := range w.others {
		if len(o.all) == 0 {
			continue
		}
		i, err := o.all.Leader(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		o.all[i].Process.Kill()
	}
	return w.nodes.Nodes()[0].Kill()
}

// startLeaders starts them again, and waits until all answer.
func startLeaders(ctx context.Context, w *world, _ []*trial) error {
	for name, o := range w.others {
		for i, s := range o.all {
			if again, err := s.Revive(ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			} else if again != nil {
				o.all[i] = again
			}
		}
	}
	if err := w.nodes.Nodes()[0].Start(ctx); err != nil {
		return err
	}
	return w.nodes.Wait(ctx)
}
