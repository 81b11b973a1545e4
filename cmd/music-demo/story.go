package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
)

// window is how many stamps a holder has: W of docs/design.md 2.
const window = 1 << 20

// attempts is how often the losses of tellers without a lock may happen to even out.
const attempts = 5

// step is a part of the story. It returns an error when it did not show what it should.
type step struct {
	title string
	play  func(context.Context) error
}

// story is the whole of it, in order.
func (b *bank) story() []step {
	steps := []step{
		{"Straight on Cassandra, money is lost or made", b.withoutLocks},
		{"Through the proxy, under a lock, the audit balances", b.underLocks},
		{"A teller that was paused comes too late", b.pausedTeller},
		{"A write without a lock is refused", b.unlockedWrite},
		{"Every holder has a window of timestamps of its own", b.windows},
	}
	if b.stage != nil {
		steps = append(steps, step{"A proxy is killed, and its teller goes on at another", b.killedProxy})
	}
	return append(steps, step{"The last audit", b.lastAudit})
}

// tell plays the story from start to end, or to the first step that goes wrong.
func tell(ctx context.Context, o options, st *stage, s *screen) error {
	b, err := open(o, s)
	if err != nil {
		return err
	}
	defer b.close()
	if o.count() > 1 {
		b.stage = st
	}
	s.note("\nWhat is sent straight to Cassandra stands behind node>,\nwhat goes through the proxy behind proxy>, and answers behind =>.")
	for i, step := range b.story() {
		s.title(fmt.Sprintf("%d. %s", i+1, step.title))
		if err := step.play(ctx); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, step.title, err)
		}
	}
	return nil
}

// withoutLocks shows that tellers who read, think and write at once lose money, or make some.
func (b *bank) withoutLocks(ctx context.Context) error {
	if err := b.found(ctx); err != nil {
		return err
	}
	b.screen.say("A teller moves money: it reads two accounts, looks at them for a moment, and writes both in one batch.")
	if err := b.direct[0].transfer(ctx, move{"anna", "ben", 5}); err != nil {
		return err
	}
	sum, err := b.total, error(nil)
	for try := 0; sum == b.total && try < attempts; try++ {
		if sum, err = b.rushWithoutLocks(ctx); err != nil {
			return err
		}
	}
	if sum == b.total {
		return expected("tellers without a lock to lose or make money", "an exact sum")
	}
	b.screen.verdict("The audit should find %d and finds %d: %s.", b.total, sum, missing(b.total-sum))
	return nil
}

// found makes the bank's keyspace, table and accounts.
func (b *bank) found(ctx context.Context) error {
	b.screen.say("A bank keeps the accounts of a branch in one partition.")
	for _, ddl := range []string{
		fmt.Sprintf("CREATE KEYSPACE bank WITH replication =\n {'class': 'SimpleStrategy', 'replication_factor': %d}", b.options.count()),
		"CREATE TABLE bank.accounts (branch text, id text,\n balance bigint, PRIMARY KEY (branch, id))",
	} {
		if err := b.node.put(ctx, ddl); err != nil {
			return err
		}
	}
	b.screen.say("Everybody starts with %d.", startBalance)
	return b.putRight(ctx)
}

// rushWithoutLocks returns what an audit finds afterwards.
func (b *bank) rushWithoutLocks(ctx context.Context) (sum int64, err error) {
	b.screen.say("%d tellers do so at once, %d times each.", tellerCount, rounds)
	if err := b.rush(ctx, b.direct, (*teller).transfer); err != nil {
		return 0, err
	}
	err = b.node.get(ctx, &sum, audit, branch)
	return sum, err
}

// missing returns as text by how much the sum is too low or too high.
func missing(n int64) string {
	if n < 0 {
		return fmt.Sprintf("%d came from nowhere", -n)
	}
	return fmt.Sprintf("%d are gone", n)
}

// underLocks shows the same tellers and the same work under a lock: the sum stays.
func (b *bank) underLocks(ctx context.Context) error {
	b.screen.say("The accounts are put right.")
	if err := b.putRight(ctx); err != nil {
		return err
	}
	b.screen.say("The table is marked as critical, through the proxy. From now on its writes need a lock.")
	if err := b.proxy.put(ctx, "ALTER TABLE bank.accounts WITH comment = '@critical'"); err != nil {
		return err
	}
	b.screen.say("A teller takes the lock of the branch, does what it did before, USING LOCK, and gives the lock back.")
	if err := b.tellers[0].transferUnderLock(ctx, move{"anna", "ben", 5}); err != nil {
		return err
	}
	b.screen.say("%d tellers do so at once, %d times each.", tellerCount, rounds)
	if err := b.rush(ctx, b.tellers, (*teller).transferUnderLock); err != nil {
		return err
	}
	if err := b.balanced(ctx, &b.proxy); err != nil {
		return err
	}
	b.screen.verdict("%d transfers, and the audit finds %d: nothing is lost.", tellerCount*rounds, b.total)
	return nil
}

// balanced audits the branch.
func (b *bank) balanced(ctx context.Context, l *line) error {
	sum := int64(0)
	if err := l.get(ctx, &sum, audit, branch); err != nil {
		return err
	}
	return b.exact(sum)
}

// exact returns an error unless an audit found the right sum.
func (b *bank) exact(sum int64) error {
	if sum != b.total {
		return expected(fmt.Sprintf("the audit to find %d", b.total), sum)
	}
	return nil
}

// pausedTeller shows a holder that outlives its lease: its write is refused, and has no effect.
func (b *bank) pausedTeller(ctx context.Context) error {
	if err := b.fallAsleep(ctx, b.tellers[0]); err != nil {
		return err
	}
	m := b.late.move
	next := b.tellers[1]
	b.screen.say("Teller 2 wants the lock. Teller 1 says nothing any more, so it is teller 2's when the two seconds are over.")
	if err := next.transferUnderLock(ctx, move{m.from, m.to, 50}); err != nil {
		return err
	}
	before, err := b.silently().getAll(ctx, readAll, branch)
	if err != nil {
		return err
	}
	b.screen.say("Teller 1 wakes up. It knows of nothing, and writes what it had in mind.")
	if err := b.refused(b.tellers[0].write(ctx, m, b.late.will), &b.tellers[0].line, "MUSIC_LOST"); err != nil {
		return err
	}
	b.tellers[0].ref = 0
	b.screen.say("The accounts are as teller 2 left them.")
	if err := b.unchanged(ctx, before); err != nil {
		return err
	}
	b.screen.verdict("The late batch was refused and had no effect.")
	return nil
}

// fallAsleep has a teller acquire the lock for two seconds, read, and then do nothing.
func (b *bank) fallAsleep(ctx context.Context, t *teller) error {
	b.late.move = move{"anna", "ben", 100}
	b.screen.say("Teller 1 takes the lock with a lease of two seconds, reads, and is paused: its machine is frozen, or collects garbage.")
	if _, err := t.lock(ctx, takeLock+" LEASE 2s"); err != nil {
		return err
	}
	have, err := t.read(ctx, b.late.move)
	if err != nil {
		return err
	}
	b.late.will = b.late.move.after(have)
	b.late.term, err = b.lockRow(ctx, *b.silently())
	return err
}

// silently returns a line to the node whose statements are not shown.
func (b *bank) silently() *line {
	quiet := b.node
	quiet.screen = nil
	return &quiet
}

// refused returns an error unless a write was refused for the right reason.
func (b *bank) refused(err error, l *line, code string) error {
	if err == nil {
		return expected("the write to be refused with "+code, "it was accepted")
	}
	if !strings.HasPrefix(err.Error(), code) {
		return expected("the write to be refused with "+code, err)
	}
	l.answer(red, "%v", err)
	return nil
}

// unchanged returns an error unless the accounts at the node are as before.
func (b *bank) unchanged(ctx context.Context, before balances) error {
	now, err := b.node.getAll(ctx, readAll, branch)
	if err != nil {
		return err
	}
	if !maps.Equal(now, before) {
		return expected("the accounts to stay "+before.String(), now)
	}
	return nil
}

// unlockedWrite shows that a client without locks cannot write the table.
func (b *bank) unlockedWrite(ctx context.Context) error {
	before, err := b.silently().getAll(ctx, readAll, branch)
	if err != nil {
		return err
	}
	b.screen.say("Somebody who knows nothing of locks tries to make dan rich.")
	const rich = "UPDATE bank.accounts SET balance = ?\n WHERE branch = ? AND id = ?"
	err = b.proxy.query(rich, int64(1000000), branch, "dan").ExecContext(ctx)
	if err := b.refused(err, &b.proxy, "MUSIC_UNLOCKED"); err != nil {
		return err
	}
	if err := b.unchanged(ctx, before); err != nil {
		return err
	}
	b.screen.verdict("The answer says what to do. Nothing was written.")
	return nil
}

// windows shows how fencing works: the timestamps of a holder's writes, and the lock row.
func (b *bank) windows(ctx context.Context) error {
	t := b.tellers[2]
	b.screen.say("Teller 3 takes the lock and moves money.")
	g, err := t.lock(ctx, takeLock)
	if err != nil {
		return err
	}
	if err := t.transfer(ctx, move{"carla", "dan", 30}); err != nil {
		return err
	}
	b.screen.say("This is the row of the lock, beside the data in Cassandra. The head of the queue is the holder: a lock_ref is its number there, and what proves it to be the client's.")
	row, err := b.lockRow(ctx, b.node)
	if err != nil {
		return err
	}
	b.screen.say("And this is the timestamp of what teller 3 wrote.")
	stamp := int64(0)
	if err := b.node.get(ctx, &stamp, "SELECT WRITETIME(balance) FROM bank.accounts\n WHERE branch = ? AND id = ?", branch, "dan"); err != nil {
		return err
	}
	if err := row.fences(g.ref, stamp); err != nil {
		return err
	}
	if err := t.unlock(ctx); err != nil {
		return err
	}
	b.screen.verdict("lock_ref %d writes in the window %d … %d (base … base+2^20). This cell's WRITETIME is base+%d: it lies in it.",
		g.ref, row.base, row.base+window, stamp-row.base)
	return b.pastTheProxy(ctx)
}

// tagBits is the length of the tag in a lock_ref; the other bits are its number in the queue.
const tagBits = 23

// fences returns an error unless a stamp is in the window of the row's holder, and that holder has
// the lock_ref.
func (r lockRow) fences(ref, stamp int64) error {
	if r.head == ref>>tagBits && r.base <= stamp && stamp < r.base+window {
		return nil
	}
	return expected(fmt.Sprintf("lock_ref %d at the head and a WRITETIME in its window", ref), fmt.Sprintf("%+v, %d", r, stamp))
}

// pastTheProxy sends the late batch to the node, as if it had been in flight when its teller lost
// the lock.
func (b *bank) pastTheProxy(ctx context.Context) error {
	before, err := b.silently().getAll(ctx, readAll, branch)
	if err != nil {
		return err
	}
	b.screen.say("Suppose that teller 1's batch had been on its way already. Here it is, straight to the node, with a stamp out of teller 1's window.")
	m, will := b.late.move, b.late.will
	args := []any{b.late.term.base + 2, will[m.from], branch, m.from, will[m.to], branch, m.to}
	if err := b.node.put(ctx, begin+" USING TIMESTAMP ?"+setBoth, args...); err != nil {
		return err
	}
	b.node.answer(dim, "accepted")
	if err := b.unchanged(ctx, before); err != nil {
		return err
	}
	b.screen.verdict("Cassandra took it, and nobody will ever see it: what teller 2 wrote later lies in a higher window.")
	return nil
}

// lastAudit shows that the sum is right after everything that was tried.
func (b *bank) lastAudit(ctx context.Context) error {
	t := b.tellers[3]
	b.screen.say("Once more under a lock, which shows the latest state for certain.")
	if _, err := t.lock(ctx, takeLock); err != nil {
		return err
	}
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
	b.screen.say("And straight at the node.")
	if err := b.balanced(ctx, &b.node); err != nil {
		return err
	}
	b.screen.verdict("The audit balances: %d, to the last coin.", sum)
	return nil
}
