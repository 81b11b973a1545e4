package music

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// Patterns of the names that a statement may have as they are.
const (
	tableForm  = `^("([^"]|"")+"|\w+)\.("([^"]|"")+"|\w+)$`
	columnForm = `^[a-z][a-z0-9_]*$`
)

// key is the key of a lock: the part of the statement that names it, and the values for that part.
type key struct {
	where  string
	values []any
}

// keyOf returns the key of an Ask.
func keyOf(a Ask) (key, error) {
	if !regexp.MustCompile(tableForm).MatchString(a.Table) || len(a.Key) == 0 {
		return key{}, fmt.Errorf("%q: write keyspace.table, and a value for each column of its key", a.Table)
	}
	var conditions []string
	k, column := key{}, regexp.MustCompile(columnForm)
	for _, name := range slices.Sorted(maps.Keys(a.Key)) {
		k.values = append(k.values, a.Key[name])
		if !column.MatchString(name) {
			name = `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
		}
		conditions = append(conditions, name+" = ?")
	}
	k.where = a.Table + " WHERE " + strings.Join(conditions, " AND ")
	return k, nil
}

// answer is the row that LOCK and UNLOCK return.
type answer struct {
	applied   bool
	ref       int64 // 0 = none, or not decided yet
	state     string
	holder    string
	lease     time.Duration // left
	ownerDied bool
}

// ask sends a LOCK or UNLOCK. gocql binds values only to statements that begin with SELECT.
func (k key) ask(ctx context.Context, s *gocql.Session, verb, clauses string, values ...any) (a answer, err error) {
	var ref, lease *int64
	var position *int
	var holder *string
	iter := s.Query("SELECT "+verb+" "+k.where+clauses, append(slices.Clone(k.values), values...)...).IterContext(ctx)
	told := len(iter.Columns()) == 7 && iter.Scan(&a.applied, &ref, &a.state, &position, &holder, &lease, &a.ownerDied)
	if err = iter.Close(); err == nil && !told || code(err) == gocql.ErrCodeSyntax {
		return a, errors.Join(ErrNoProxy, err)
	}
	a.ref, a.holder = *cmp.Or(ref, new(int64)), *cmp.Or(holder, new(string))
	a.lease = time.Duration(*cmp.Or(lease, new(int64))) * time.Millisecond
	return a, err
}

// again sends LOCK for a reference that waits, or, to renew its lease, for one that holds.
func (k key) again(ctx context.Context, s *gocql.Session, ref int64, wait time.Duration) (answer, error) {
	return k.ask(ctx, s, "LOCK", " USING LOCK ? WAIT ?", ref, wait.Milliseconds())
}

// unlock releases a reference, and tries again until ctx ends.
func (k key) unlock(ctx context.Context, s *gocql.Session, ref int64) error {
	for {
		got, err := k.ask(ctx, s, "UNLOCK", " USING LOCK ?", ref)
		switch {
		case err == nil && got.applied:
			return nil
		case err == nil, says(err, "MUSIC_LOST"), says(err, "MUSIC_NOT_HELD"):
			return ErrLost
		case ctx.Err() != nil, certain(err):
			return fmt.Errorf("the lock is left to the end of its lease: %w", err)
		}
		rest(ctx)
	}
}

// asking is a Hold that is under way.
type asking struct {
	Ask
	key
	session *gocql.Session
	try     bool
	token   gocql.UUID
	ref     int64 // 0 = none yet
	open    bool  // the token may have a place, or the lock, without our knowing its reference
}

// hold sends LOCK until the lock is granted or waiting is over; then it leaves no reference in the
// queue.
func hold(ctx context.Context, s *gocql.Session, a Ask, try bool) (*Lock, context.Context, error) {
	k, err := keyOf(a)
	if err != nil {
		return nil, nil, err
	}
	q := &asking{Ask: a, key: k, session: s, try: try, token: gocql.MustRandomUUID()}
	until := time.Now().Add(cmp.Or(a.Wait, defaultWait))
	if try {
		until = time.Now().Add(giveUpTime)
	}
	for {
		begun := time.Now()
		got, err := q.next(ctx, max(time.Millisecond, min(longestAsk, time.Until(until))))
		if err == nil && got.state == "HELD" && ctx.Err() == nil && elapsed(begun) < got.lease-got.lease/lostPart {
			lock, held := q.held(ctx, begun, got)
			return lock, held, nil
		}
		if why := q.over(ctx, got, err, time.Now().After(until)); why != nil {
			q.leave(context.WithoutCancel(ctx))
			return nil, nil, why
		}
		if time.Since(begun) < pause {
			rest(ctx)
		}
	}
}

// next sends the next LOCK, and records what its answer says about the reference.
func (q *asking) next(ctx context.Context, wait time.Duration) (got answer, err error) {
	if q.ref != 0 {
		got, err = q.again(ctx, q.session, q.ref, wait)
	} else {
		got, err = q.lock(ctx, wait)
		q.open = err != nil && !answered(err) && !errors.Is(err, ErrNoProxy) || got.state == "QUEUED" && got.ref == 0
	}
	q.ref = cmp.Or(got.ref, q.ref)
	if got.state == "LOST" {
		q.ref, q.token = 0, gocql.MustRandomUUID()
	}
	return got, err
}

// lock sends LOCK with the token.
func (q *asking) lock(ctx context.Context, wait time.Duration) (answer, error) {
	clauses, values := " WAIT ?", []any{wait.Milliseconds()}
	if q.try {
		clauses, values = " NOWAIT", nil
	}
	if q.Lease > 0 {
		clauses, values = clauses+" LEASE ?", append(values, q.Lease.Milliseconds())
	}
	if q.As != "" {
		clauses, values = clauses+" AS ?", append(values, q.As)
	}
	return q.ask(ctx, q.session, "LOCK", clauses+" TOKEN ?", append(values, q.token)...)
}

// over returns why waiting for the lock is over; nil if it is not.
func (q *asking) over(ctx context.Context, got answer, err error, late bool) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNotAcquired, context.Cause(ctx))
	case certain(err):
		return err
	case err != nil && late:
		return fmt.Errorf("%w: %w", ErrNotAcquired, err)
	case err == nil && (got.state == "BUSY" || late):
		return fmt.Errorf("%w by %s", errTaken, cmp.Or(got.holder, "somebody else"))
	}
	return nil
}

// leave gives up the place in the queue. If its reference is not known, it asks for the reference
// first.
func (q *asking) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, giveUpTime)
	defer cancel()
	for q.open && q.ref == 0 && ctx.Err() == nil {
		if _, err := q.next(ctx, 0); err == nil && !q.open || certain(err) {
			break
		}
		rest(ctx)
	}
	if q.ref != 0 {
		_ = q.unlock(ctx, q.session, q.ref) // a place of which the proxy does not hear is passed over
	}
}

// held returns the lock that was granted.
func (q *asking) held(ctx context.Context, begun time.Time, got answer) (*Lock, context.Context) {
	l := &Lock{
		Token: got.ref, OwnerDied: got.ownerDied, session: q.session, key: q.key, begun: begun, lease: got.lease,
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	ctx, l.end = context.WithCancelCause(ctx)
	go l.keep(ctx)
	return l, ctx
}

// code returns the code of an ERROR of the proxy, or of Cassandra behind it; -1 if err is no such
// answer.
func code(err error) int {
	var told gocql.RequestError
	if errors.As(err, &told) {
		return told.Code()
	}
	return -1
}

// answered reports whether err is an answer of the proxy or of Cassandra.
func answered(err error) bool { return code(err) >= 0 }

// says reports whether err contains one of the proxy's words.
func says(err error, word string) bool { return err != nil && strings.Contains(err.Error(), word) }

// unsent reports whether err is one of this client: nothing was sent, and to try again would not
// help.
func unsent(err error) bool {
	var value gocql.MarshalError
	return errors.Is(err, errNoMarker) || errors.Is(err, gocql.ErrSessionClosed) || errors.As(err, &value)
}

// certain reports whether asking again would not help.
func certain(err error) bool {
	return errors.Is(err, ErrNoProxy) || unsent(err) || answered(err) && !passing(err)
}

// passing reports whether an answer may be different later. An unknown outcome is no such answer.
func passing(err error) bool {
	c := code(err)
	return says(err, "MUSIC_UNAVAILABLE") || c != gocql.ErrCodeInvalid && c != gocql.ErrCodeSyntax && c != gocql.ErrCodeUnauthorized
}

// Uncertain reports whether err leaves it open if a write under a lock was done.
func Uncertain(err error) bool {
	switch code(err) {
	case gocql.ErrCodeInvalid:
		return says(err, "MUSIC_LOST") && says(err, "unknown")
	case gocql.ErrCodeUnavailable, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized:
		return false
	}
	return err != nil && !errors.Is(err, ErrLost) && !unsent(err)
}

// rest waits for pause, or until ctx ends.
func rest(ctx context.Context) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
