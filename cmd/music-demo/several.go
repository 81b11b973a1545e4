package main

import (
	"context"
	"fmt"
	"time"
)

// takeoverLimit is how long it may take until a reference goes on at another proxy.
const takeoverLimit = 30 * time.Second

// at returns a line that uses one proxy and no other, for a story in which it matters which.
func (b *bank) at(k int) (line, error) {
	session, err := newSession(b.options.listenAt(k), alone)
	return line{prompt: fmt.Sprintf("proxy %d>", k), look: cyan, screen: b.screen, session: session}, err
}

// killedProxy shows that a lock outlives the proxy at which it was acquired: its holder continues
// at another one, and its waiters keep waiting.
func (b *bank) killedProxy(ctx context.Context) error {
	var lines [3]line
	for i := range lines {
		var err error
		if lines[i], err = b.at(i + 1); err != nil {
			return err
		}
		defer lines[i].session.Close()
	}
	holder, waiter := &teller{line: lines[0], number: 1}, &teller{line: lines[1], number: 2}
	b.screen.say("There are three nodes, with a proxy each. Teller 1 takes the lock at proxy 1, and moves money.")
	if _, err := holder.lock(ctx, takeLock); err != nil {
		return err
	}
	if err := holder.transfer(ctx, move{"anna", "dan", 40}); err != nil {
		return err
	}
	b.screen.say("Teller 2 asks for it at proxy 2, and has to wait.")
	queued, err := waiter.ask(ctx, takeLock, branch)
	if err != nil {
		return err
	}
	if queued.state != "QUEUED" {
		return expected("teller 2 to be QUEUED", queued)
	}
	b.screen.say("Proxy 1 is killed.")
	b.stage.killProxy(1)
	b.screen.say("Teller 1 goes on at proxy 3, with the lock_ref that it has.")
	holder.line = lines[2]
	began := time.Now()
	if err := holder.resume(ctx); err != nil {
		return err
	}
	b.screen.say("The lock went on after %.1f s: nobody takes it from a proxy that may only be slow. Teller 1 moves more, and gives it back.", time.Since(began).Seconds())
	if err := holder.transfer(ctx, move{"anna", "dan", 40}); err != nil {
		return err
	}
	if err := holder.unlock(ctx); err != nil {
		return err
	}
	b.screen.say("And teller 2 gets it.")
	return b.served(ctx, waiter, queued)
}

// served shows that the client that has waited all the time is the next holder.
func (b *bank) served(ctx context.Context, t *teller, queued grant) error {
	g, err := queued, error(nil)
	for g.state == "QUEUED" && err == nil {
		g, err = t.ask(ctx, waitLock, branch, queued.ref)
	}
	if err != nil {
		return err
	}
	if g.state != "HELD" {
		return expected("teller 2 to get the lock", g)
	}
	t.ref = g.ref
	sum := int64(0)
	if err := t.get(ctx, &sum, audit+usingLock, branch, t.ref); err != nil {
		return err
	}
	if err := b.exact(sum); err != nil {
		return err
	}
	if err := t.unlock(ctx); err != nil {
		return err
	}
	b.screen.verdict("A crash of a proxy has cost a few seconds: no lock, no place in the queue, and no money.")
	return nil
}

// resume repeats LOCK with the teller's reference until it is served: its proxy was killed, and
// that proxy's session has to end first.
func (t *teller) resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, takeoverLimit, expected("the lock to go on", fmt.Sprintf("nothing for %v", takeoverLimit)))
	defer cancel()
	silent := *t
	silent.screen = nil
	for {
		g, err := silent.ask(ctx, waitLock, branch, t.ref)
		switch {
		case err == nil && g.state == "HELD":
			t.beside(shown(waitLock, []any{branch, t.ref}), g)
			return nil
		case err == nil && g.state != "QUEUED":
			return expected("the lock to go on", g)
		}
		if err := pause(ctx, livePoll); err != nil {
			return err
		}
	}
}

// beside shows a statement and its answer that were not shown when they were sent.
func (t *teller) beside(statement string, g grant) {
	t.screen.beside(t.look, t.prompt, statement)
	t.answer(dim, "%s", g)
}
