package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// thinking is for how long a teller waits between reading two balances and writing the new ones:
// long enough for others to do the same.
const thinking = 10 * time.Millisecond

// branch is the partition of all accounts of the story, which one lock covers.
const branch = "zurich"

// The statements of the tellers. SELECT stands before LOCK and UNLOCK for this driver's sake: it
// sends no values with a statement that begins with a word it does not know.
const (
	takeLock = "SELECT LOCK bank.accounts WHERE branch = ? WAIT 5s"
	waitLock = "SELECT LOCK bank.accounts WHERE branch = ? USING LOCK ? WAIT 1s"
	giveBack = "SELECT UNLOCK bank.accounts WHERE branch = ? USING LOCK ?"
	readBoth = "SELECT id, balance FROM bank.accounts WHERE branch = ? AND id IN (?, ?)"
	begin    = "BEGIN BATCH"
	setBoth  = "\n UPDATE bank.accounts SET balance = ? WHERE branch = ? AND id = ?;" +
		"\n UPDATE bank.accounts SET balance = ? WHERE branch = ? AND id = ?;\nAPPLY BATCH"
	usingLock = " USING LOCK ?"
)

// errNoLock says that a lock was not granted in time.
var errNoLock = errors.New("the lock was not granted")

// line is one session of the driver, either with the node or with the proxy.
type line struct {
	prompt  string // stands before what is sent on it
	look    style
	session *gocql.Session
	screen  *screen // nil = it works silently
}

// query is a statement that can be sent, and is shown.
func (l *line) query(cql string, args ...any) *gocql.Query {
	if l.screen != nil {
		l.screen.beside(l.look, l.prompt, shown(cql, args))
	}
	return l.session.Query(cql, args...)
}

// answer shows the answer.
func (l *line) answer(look style, format string, args ...any) {
	if l.screen != nil {
		l.screen.beside(look, strings.Repeat(" ", len(l.prompt)-2)+"=>", fmt.Sprintf(format, args...))
	}
}

// shown returns a statement with its values in place of the markers, as one would type it.
func shown(cql string, args []any) string {
	for _, arg := range args {
		literal := fmt.Sprint(arg)
		if text, ok := arg.(string); ok {
			literal = "'" + strings.ReplaceAll(text, "'", "''") + "'"
		}
		cql = strings.Replace(cql, "?", literal, 1)
	}
	return cql + ";"
}

// teller moves money between two accounts. It works in the same way with and without a lock: the
// only difference is the clause in what it sends.
type teller struct {
	line
	number int
	ref    int64 // of the lock that it holds; 0 = none
}

// grant is the row that LOCK and UNLOCK answer.
type grant struct {
	applied   bool
	ref       int64
	state     string
	position  int
	holder    string
	leaseMS   int64
	ownerDied bool
}

// move is money on its way from one account to another.
type move struct {
	from, to string
	amount   int64
}

// balances are those of some accounts, by id.
type balances map[string]int64

// after returns the balances of both accounts once the money has moved.
func (m move) after(b balances) balances {
	return balances{m.from: b[m.from] - m.amount, m.to: b[m.to] + m.amount}
}

// transfer reads both accounts, thinks, and writes both.
func (t *teller) transfer(ctx context.Context, m move) error {
	have, err := t.read(ctx, m)
	if err != nil {
		return err
	}
	if err := pause(ctx, thinking); err != nil {
		return err
	}
	return t.write(ctx, m, m.after(have))
}

// transferUnderLock is transfer under the lock of the branch.
func (t *teller) transferUnderLock(ctx context.Context, m move) error {
	if _, err := t.lock(ctx, takeLock); err != nil {
		return err
	}
	if err := t.transfer(ctx, m); err != nil {
		return err
	}
	return t.unlock(ctx)
}

// lock takes the branch's lock with the given statement. The proxy answers within a second or two,
// whatever the WAIT: no driver's patience may end first. Who still waits asks again.
func (t *teller) lock(ctx context.Context, statement string) (grant, error) {
	g, err := t.ask(ctx, statement, branch)
	for tries := 0; early(err) && tries < mostEarly; tries++ {
		if err = pause(ctx, livePoll); err == nil {
			g, err = t.ask(ctx, statement, branch)
		}
	}
	for err == nil && g.state == "QUEUED" {
		if g.ref == 0 { // not even a place yet: the database is slow
			g, err = t.ask(ctx, statement, branch)
			continue
		}
		g, err = t.ask(ctx, waitLock, branch, g.ref)
	}
	if err == nil && g.state != "HELD" {
		err = fmt.Errorf("%w: state %s", errNoLock, g.state)
	}
	t.ref = g.ref
	return g, err
}

// mostEarly is how often a LOCK is repeated that came too early.
const mostEarly = 300

// early reports whether a LOCK was refused by a proxy that does not know yet that the table is
// critical.
func early(err error) bool {
	return err != nil && strings.Contains(err.Error(), "it is becoming critical")
}

// unlock releases the lock.
func (t *teller) unlock(ctx context.Context) error {
	_, err := t.ask(ctx, giveBack, branch, t.ref)
	t.ref = 0
	return err
}

// ask sends LOCK or UNLOCK and returns the answer.
func (t *teller) ask(ctx context.Context, cql string, args ...any) (g grant, err error) {
	g.applied, err = t.query(cql, args...).ScanCASContext(ctx, &g.ref, &g.state, &g.position, &g.holder, &g.leaseMS, &g.ownerDied)
	if err != nil {
		return g, fmt.Errorf("%s: %w", shown(cql, args), err)
	}
	t.answer(dim, "%s", g)
	return g, nil
}

// String returns the row as text.
func (g grant) String() string {
	switch {
	case g.state == "HELD" && g.ownerDied:
		return fmt.Sprintf("HELD, lock_ref %d, lease %d ms, owner_died: the last holder did not give it back", g.ref, g.leaseMS)
	case g.state == "HELD":
		return fmt.Sprintf("HELD, lock_ref %d, lease %d ms", g.ref, g.leaseMS)
	case g.state == "QUEUED" && g.ref == 0:
		return "QUEUED, and no lock_ref yet: Cassandra is slow to answer; ask again"
	case g.state == "QUEUED":
		return fmt.Sprintf("QUEUED, lock_ref %d, position %d", g.ref, g.position)
	}
	return g.state
}

// read reads both accounts.
func (t *teller) read(ctx context.Context, m move) (balances, error) {
	cql, args := readBoth, []any{branch, m.from, m.to}
	if t.ref != 0 {
		cql, args = cql+usingLock, append(args, t.ref)
	}
	return t.getAll(ctx, cql, args...)
}

// write writes both accounts in one batch. They lie in one partition: Cassandra writes both or
// none.
func (t *teller) write(ctx context.Context, m move, b balances) error {
	args := []any{b[m.from], branch, m.from, b[m.to], branch, m.to}
	cql := begin + setBoth
	if t.ref != 0 {
		cql, args = begin+usingLock+setBoth, append([]any{t.ref}, args...)
	}
	return t.query(cql, args...).ExecContext(ctx)
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
