package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/catalog"
	"music/musiccore"
	"music/proxy/synchronise"
	"music/rewrite"
)

// Why a command cannot be carried out.
var (
	errUnknownTable = errors.New("table is no longer critical")
	errOtherCentre  = errors.New("locks of the table are decided in another data centre, or its data centre is not known")
	errPartialRow   = errors.New("lock row has a register without a value: it was not written by a proxy")
)

// executor carries out the core's commands on Cassandra.
type executor struct {
	session *gocql.Session
	tables  *criticalTables
	near    *nearCommits             // nil: every LWT is committed at QUORUM
	known   synchronise.Descriptions // a cache
}

// commandsAtOnce bounds the commands of all keys that are at Cassandra at once. More make nothing faster: a
// node works on far fewer at a time, and the beats of this proxy's session would wait behind them all.
const commandsAtOnce = 2048

// carrier carries out a command of the core, see executor.do.
type carrier func(ctx context.Context, c musiccore.Command) musiccore.Result

// bounded returns do with at most n commands under way at once. The others wait, in their order, until ctx
// ends; reads of beats do not.
func bounded(do carrier, n int) carrier {
	slots := make(chan struct{}, n)
	return func(ctx context.Context, c musiccore.Command) musiccore.Result {
		if _, beat := c.Action.(musiccore.ReadBeat); beat {
			return do(ctx, c)
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			return do(ctx, c)
		case <-ctx.Done():
			return musiccore.Result{Cause: context.Cause(ctx)}
		}
	}
}

// do carries out one command. It blocks until Cassandra has answered, and never repeats anything:
// an outcome that is not certain is StatusUnknown, upon which the core decides.
func (x *executor) do(ctx context.Context, c musiccore.Command) musiccore.Result {
	if beat, ok := c.Action.(musiccore.ReadBeat); ok {
		return x.readBeat(ctx, beat.Session)
	}
	switch c.Action.(type) {
	case musiccore.Synch, musiccore.ReadStamps:
		defer x.tables.keyed.begin()() // before the table is looked up, or a change of it may miss this
	}
	t := x.tables.table(c.Key.Table)
	switch {
	case t == nil:
		return musiccore.Result{Gone: true, Cause: errUnknownTable}
	case t.Settings.Local && t.centreSession == nil:
		return musiccore.Result{Cause: fmt.Errorf("%w: %s", errOtherCentre, t.Refused)}
	}
	switch a := c.Action.(type) {
	case musiccore.ReadRow:
		return x.readRow(ctx, t, c.Key.PK, a)
	case musiccore.Apply:
		return x.apply(ctx, t, c.Key.PK, a)
	case musiccore.Synch:
		in, k := x.dataOf(t, c.Key.PK)
		return synchronise.Run(ctx, in, k, a)
	case musiccore.ReadStamps:
		return x.readStamps(ctx, t, c.Key.PK, a)
	}
	panic(fmt.Sprintf("command %T has no executor", c.Action))
}

// dataOf returns the cluster and the target for synchronising a key.
func (x *executor) dataOf(t *dataTable, pk string) (synchronise.Cluster, synchronise.Target) {
	where := x.scope(t)
	return synchronise.Cluster{Session: where.session, Ring: x.session, Quorum: where.quorum, Known: &x.known},
		synchronise.Target{Keyspace: t.keyspace, Table: t.name, PK: pk, Row: t.Settings.Row, Followed: maps.Keys(t.Columns)}
}

// columnsRead are the columns of a table that were read after a moment.
type columnsRead struct {
	*synchronise.Columns
	at musiccore.Stamp
}

// readStamps reads the highest stamp of a key's data. Columns that were read after the table was
// closed are used for all keys: a column that was added later has no plain writes.
func (x *executor) readStamps(ctx context.Context, t *dataTable, pk string, a musiccore.ReadStamps) musiccore.Result {
	if a.Early && t.Settings.Unlocked == catalog.Allow {
		return musiccore.Result{} // a plain write may be acknowledged after the read and before the lock is granted
	}
	in, k := x.dataOf(t, pk)
	columns := t.columns.Load()
	if columns == nil || columns.at < a.Closed {
		read, err := synchronise.ReadColumns(ctx, in, k)
		if err != nil {
			return musiccore.Result{Cause: err}
		}
		columns = &columnsRead{read, a.Clk}
		t.columns.Store(columns)
	}
	top, empty, err := columns.Highest(ctx, in, k)
	switch {
	case errors.Is(err, synchronise.ErrSeveralPages):
		return musiccore.Result{Status: musiccore.StatusTooLarge}
	case err != nil:
		return musiccore.Result{Cause: err}
	}
	return musiccore.Result{Status: musiccore.StatusDone, Stamp: top, Empty: empty}
}

// queued is one block of the queue in the column's form: a tuple with these fields in this order.
type queued struct {
	First    int64
	N        int32
	Session  gocql.UUID
	Req      int64
	Retained bool
}

// readRow reads a lock row. A row that does not exist is a Result without Row.
func (x *executor) readRow(ctx context.Context, t *dataTable, pk string, a musiccore.ReadRow) musiccore.Result {
	where := x.scope(t)
	level := gocql.LocalOne
	switch {
	case a.Completes, a.Serial && !x.tables.showsAllAtQuorum(t):
		level = where.serial
	case a.Quorum:
		level = where.quorum
	}
	var guard, base, head *int64
	var dirty *dirtiness
	var owner *gocql.UUID
	var queue []queued
	err := where.session.Query(t.texts[readRow], keyValues(t, pk)...).Consistency(level).ScanContext(ctx, &guard, &queue, &base, &head, &dirty, &owner)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return musiccore.Result{Status: musiccore.StatusDone}
	case err != nil:
		return musiccore.Result{Cause: fmt.Errorf("read lock row: %w", err)}
	case guard == nil || base == nil || head == nil || dirty == nil || owner == nil:
		return musiccore.Result{Cause: errPartialRow}
	}
	row := musiccore.Row{
		Guard: musiccore.LockRef(*guard), Head: musiccore.LockRef(*head), Epoch: musiccore.Stamp(*base), Dirty: *dirty != 0,
		Unfenced: *dirty == dirtyUnfenced, Owner: musiccore.SessionID(*owner),
	}
	for _, b := range queue {
		row.Queue = append(row.Queue, musiccore.Block{
			First: musiccore.LockRef(b.First), N: b.N, Session: musiccore.SessionID(b.Session), Req: b.Req, Retained: b.Retained,
		})
	}
	return musiccore.Result{Status: musiccore.StatusDone, Row: &row}
}

// apply carries out one LWT. A refusal is certain; after any error the outcome is unknown, whatever
// its code (docs/protocol.md 3.1, lwt).
func (x *executor) apply(ctx context.Context, t *dataTable, pk string, a musiccore.Apply) musiccore.Result {
	if err := t.counted.Load().admit(ctx, x.session, a.Swap); err != nil {
		return musiccore.Result{Cause: err}
	}
	text, values := bindSwap(t, pk, a.Swap)
	where, near := x.scope(t), a.Near && x.tables.mayCommitNear(t) && x.near != nil && x.near.allowed.Load()
	commit := where.quorum
	if near {
		commit = gocql.LocalQuorum
	}
	applied, err := where.session.Query(text, values...).Consistency(commit).SerialConsistency(where.serial).MapScanCASContext(ctx, map[string]any{})
	switch {
	case err != nil:
		return musiccore.Result{Cause: fmt.Errorf("lock row: %w", err)}
	case applied:
		return musiccore.Result{Status: musiccore.StatusDone, Near: near}
	}
	return musiccore.Result{Status: musiccore.StatusRefused}
}

// bindSwap returns the text of a Swap with its values, whose order is that of
// dataTable.prepareTexts.
func bindSwap(t *dataTable, pk string, s musiccore.Swap) (string, []any) {
	row := s.Set.Row
	key := keyValues(t, pk)
	q := []any{int64(row.Guard), queueOf(row)}
	term := []any{int64(row.Epoch), int64(row.Head), dirtinessOf(row), gocql.UUID(row.Owner)}
	switch s.If.What {
	case musiccore.IfAbsent:
		return t.texts[ifAbsent], join(key, q, term)
	case musiccore.IfGuard:
		return t.texts[ifGuard], join(q, key, []any{int64(s.If.Guard)})
	case musiccore.IfGuardEpoch:
		return t.texts[ifGuardBase], join(q, term, key, []any{int64(s.If.Guard), int64(s.If.Epoch)})
	case musiccore.IfEpoch:
		return t.texts[ifBase], join(term, key, []any{int64(s.If.Epoch)})
	}
	panic(fmt.Sprintf("swap with condition %d has no text", s.If.What))
}

// dirtiness is the byte of the column dirty. Cassandra keeps the byte of a boolean as it was sent,
// and drivers read each but 0 as true: releases that do not know dirtyUnfenced, and whatever copies
// lock rows as booleans, see a row that is dirty, which is safe.
type dirtiness byte

const (
	dirtyYes      dirtiness = 1
	dirtyUnfenced dirtiness = 2
)

// dirtinessOf returns the byte for a row.
func dirtinessOf(r musiccore.Row) dirtiness {
	switch {
	case !r.Dirty:
		return 0
	case r.Unfenced:
		return dirtyUnfenced
	}
	return dirtyYes
}

// MarshalCQL returns the byte.
func (d dirtiness) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return []byte{byte(d)}, nil }

// UnmarshalCQL takes the byte. A byte of a later release is dirty.
func (d *dirtiness) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if len(data) != 1 {
		return fmt.Errorf("dirty has %d bytes", len(data))
	}
	*d = dirtiness(data[0])
	return nil
}

// join concatenates lists of values, in memory of its own.
func join(parts ...[]any) []any {
	var all []any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// queueOf returns a row's queue in the column's form; an empty one is an empty list, not null.
func queueOf(r musiccore.Row) []queued {
	queue := make([]queued, 0, len(r.Queue))
	for _, b := range r.Queue {
		queue = append(queue, queued{int64(b.First), b.N, gocql.UUID(b.Session), b.Req, b.Retained})
	}
	return queue
}

// readBeat reads the last beat of a session at QUORUM. Beat is 0 if there is none.
func (x *executor) readBeat(ctx context.Context, id musiccore.SessionID) musiccore.Result {
	var beat *int64
	var lease int64
	err := x.session.Query("SELECT beat, lease FROM music.sessions WHERE session = ?", gocql.UUID(id)).Consistency(gocql.Quorum).ScanContext(ctx, &beat, &lease)
	switch {
	case errors.Is(err, gocql.ErrNotFound), err == nil && beat == nil:
		return musiccore.Result{Status: musiccore.StatusDone}
	case err != nil:
		return musiccore.Result{Cause: fmt.Errorf("read beat: %w", err)}
	}
	return musiccore.Result{Status: musiccore.StatusDone, Beat: *beat, Lease: time.Duration(lease) * time.Millisecond}
}

// keyValues returns the values of a routing key, one for each column. None is a tuple, which the
// driver cannot bind to one marker: readColumns refuses such a table.
func keyValues(t *dataTable, pk string) []any {
	parts, _ := rewrite.SplitRoutingKey(pk, len(t.Key))
	values := make([]any, len(parts))
	for i, part := range parts {
		values[i] = synchronise.RawValue(part)
	}
	return values
}
