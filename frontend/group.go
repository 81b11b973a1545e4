package frontend

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/condition"
	"music/frontend/refusal"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/musiccore"
)

// group is writes with IF of clients that know of no lock, which are one statement on one row with other
// values, while they wait for the lock of their key: a group commit (docs/protocol.md 3.6, Begin). Only the
// first of them takes the lock. It evaluates the conditions of all in the order in which they came, each on the
// row that those before it leave, and sends the last write whose condition holds: that gives all columns their
// values anew, so nothing of those before it would be left. All are answered when Cassandra has answered.
//
// Its methods may be called by any goroutine, and on nil, which is the group of a write that has none.
type group struct {
	all   *groups
	name  groupName
	until time.Time // when the time in which writes can join is over, whatever the first one does

	waiting []*groupMember // the others, until the first one has read the row; guarded by all.mu
	decided []*groupMember // those that were evaluated, until they are answered; guarded by all.mu
}

// groupMember is a write of a group that is not the first.
type groupMember struct {
	*conditionalWrite
	request operation
	timer   *time.Timer // ends the wait
}

// groupName is what the writes of a group have in common.
type groupName struct {
	key   musiccore.Key
	table *catalog.Critical // the state of the table
	conn  uint64            // with roles: whose connection; another one may be shown other values
	rest  string            // all that is sent to Cassandra but the values that are written
}

// groups are those of a server that writes can still join.
type groups struct {
	mu      sync.Mutex
	open    map[groupName]*group
	running sync.WaitGroup // of goroutines that answer members, since a client may not be reading, or carry them out anew
}

const (
	// maxGroup is how many writes may join one. Each later one takes a lock, of which a key has a limit.
	maxGroup = 256
	// groupOpen is how long writes can join one: the lock of a first write whose read is not over then, such as one whose
	// client does not read its answers, need not be its own any more.
	groupOpen = ownSectionLease
	// groupAnswer is how long a write that was evaluated waits for Cassandra's answer to the one that was sent, as
	// long as an operation's outcome is waited for (docs/protocol.md 3.7).
	groupAnswer = 5 * time.Second
)

// groupName returns the name of the group that a write may be in. ok is false if it must go alone: what it
// leaves does not follow from its values, or it is not certain that Cassandra accepts them, as where it checks values (Checked), or that the last
// write of a group gives every column a value which it would have given.
func (c *conn) groupName(x *conditionalWrite) (n groupName, ok bool) {
	s, w := x.first, &x.write
	if x.leaves == nil || x.Table.Checked || s.prepared == nil || w.dated != nil || s.Timed() || !s.Overwrites() || w.size() > maxKnownRow {
		return n, false
	}
	if w.header.Flags&(primitive.HeaderFlagTracing|primitive.HeaderFlagCustomPayload) != 0 {
		return n, false
	}
	p := &w.request.parameters
	parts := [][]byte{{c.version, byte(p.Flags)}, binary.BigEndian.AppendUint16(nil, uint16(p.Consistency)), p.Rest, x.read.body, w.body}
	parts = append(parts, x.read.request.parameters.Values...)
	n = groupName{key: w.request.key, table: x.Table, rest: string(bytes.Join(parts, nil))}
	if c.hasRoles() {
		n.conn = c.id
	}
	return n, true
}

// join reports whether a write has joined a group whose first write takes the lock. Otherwise it has to take the
// lock itself, and others may join it until it has read the row. A write that joins is answered in time,
// whatever becomes of the first.
func (c *conn) join(x *conditionalWrite) bool {
	name, ok := c.groupName(x)
	if !ok {
		return false
	}
	if x.first.until.IsZero() {
		x.first.until = time.Now().Add(c.server.MaxWait)
	}
	all := &c.server.groups
	all.mu.Lock()
	defer all.mu.Unlock()
	g := all.open[name]
	switch {
	case g == nil || time.Now().After(g.until):
		if all.open == nil {
			all.open = map[groupName]*group{}
		}
		x.group = &group{all: all, name: name, until: time.Now().Add(groupOpen)}
		all.open[name] = x.group
		return false
	case len(g.waiting) >= maxGroup:
		return false
	}
	m := &groupMember{conditionalWrite: x, request: c.begin(x.stream())}
	m.request.keeps(x.size())
	m.timer = time.AfterFunc(time.Until(x.first.until), func() { g.expire(m) })
	g.waiting = append(g.waiting, m)
	return true
}

// size returns how many bytes the write takes while it waits.
func (x *conditionalWrite) size() int {
	return x.read.size() + x.again.size() + x.write.size() + x.kept
}

// stream returns the stream of the write's client.
func (x *conditionalWrite) stream() int16 { return x.read.header.Stream }

// close ends the time in which writes can join. That must be before it is found out whether the lock was still
// held when the row was read: a write that came later could be refused for an older row.
func (g *group) close() {
	if g == nil {
		return
	}
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	g.shut()
}

// shut is close, called with all.mu held.
func (g *group) shut() {
	if g.all.open[g.name] == g {
		delete(g.all.open, g.name)
	}
}

// joined returns the writes that have joined, once, and closes the group. It is called with all.mu held.
func (g *group) joined() (all []*groupMember) {
	g.shut()
	all, g.waiting = g.waiting, nil
	return all
}

// decide returns the writes that have joined, but not those whose clients are gone.
func (g *group) decide() []*groupMember {
	if g == nil {
		return nil
	}
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	for _, m := range g.joined() {
		if m.request.cancelled() {
			g.refuseOne(m, refusal.TryAgain(m.write.sent.table, "the connection ends"))
		} else {
			g.decided = append(g.decided, m)
		}
	}
	return g.decided
}

// take returns the writes that are not answered yet, those about which something was decided, and the others.
// The caller must answer them.
func (g *group) take() (decided, undecided []*groupMember) {
	if g == nil {
		return nil, nil
	}
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	decided, g.decided = g.decided, nil
	return decided, g.joined()
}

// expire answers a member whose time is over.
func (g *group) expire(m *groupMember) {
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	was := len(g.waiting)
	g.waiting = slices.DeleteFunc(g.waiting, func(o *groupMember) bool { return o == m })
	switch decided := slices.Index(g.decided, m); {
	case len(g.waiting) < was:
		g.refuseOne(m, refusal.TryAgain(m.write.sent.table, refusal.OthersWrite))
	case decided >= 0 && time.Since(m.first.until) < groupAnswer:
		m.timer.Reset(groupAnswer)
	case decided >= 0:
		g.decided = slices.Delete(slices.Clone(g.decided), decided, decided+1)
		g.answerUnknown(m)
	}
}

// finish has a goroutine end a member's wait with last.
func (g *group) finish(m *groupMember, last func()) {
	m.timer.Stop()
	g.all.running.Go(func() {
		m.request.finish(last)
	})
}

// answer answers a member.
func (g *group) answer(m *groupMember, fate traffic.Fate, envelope []byte) {
	c := m.request.conn
	c.server.Stats.Count(c.id, m.write.header.OpCode, fate)
	g.finish(m, func() { m.request.answer(envelope) })
}

// refuseOne answers a member with an error.
func (g *group) refuseOne(m *groupMember, f *wire.Failure) {
	g.answer(m, traffic.Refused, m.request.conn.failureEnvelope(m.stream(), f))
}

// answerUnknown tells a member that the outcome of its write is unknown.
func (g *group) answerUnknown(m *groupMember) {
	g.refuseOne(m, refusal.Uncertain(m.request.conn.version, m.write.sent.table, primitive.WriteTypeCas))
}

// refuse answers all others with an error: there is no lock.
func (g *group) refuse(f *wire.Failure) {
	_, undecided := g.take()
	for _, m := range undecided {
		g.refuseOne(m, f)
	}
}

// withoutFirst has the others carried out without the first one, of which nothing was sent.
func (g *group) withoutFirst() {
	decided, undecided := g.take()
	for _, m := range append(decided, undecided...) {
		g.again(m)
	}
}

// over must be called when nothing more is to come from the first write, and may be called again. Others
// about which nothing was decided are carried out anew; what became of the rest is unknown.
func (g *group) over() {
	decided, undecided := g.take()
	for _, m := range undecided {
		g.again(m)
	}
	for _, m := range decided {
		g.answerUnknown(m)
	}
}

// again carries out a member's write anew, if there is time.
func (g *group) again(m *groupMember) {
	g.finish(m, func() {
		c, f := m.request.conn, refusal.TryAgain(m.write.sent.table, refusal.OthersWrite)
		if m.request.cancelled() {
			return
		}
		if m.fails, m.refused = false, nil; time.Until(m.first.until) > 0 {
			f = c.startConditional(m.conditionalWrite, nil)
		}
		if f != nil {
			c.reject(m.read.header, f)
		}
	})
}

// rowSeen is what is known of the row that a group writes.
type rowSeen struct {
	columns []*message.ColumnMetadata
	rows    message.RowSet
}

// try evaluates a write's condition on the row. If it holds, the row is from then on what the write leaves;
// else the write gets its answer to the client of c, of which answer has the rest.
func (s *rowSeen) try(c *conn, x *conditionalWrite, answer *frame.Frame) (holds bool) {
	var rows message.RowSet
	for _, row := range s.rows {
		rows = append(rows, append(message.Row{}, row...)) // Refusal changes it
	}
	evaluation := x.Evaluate(s.columns, rows)
	step, f := evaluation.Next()
	switch {
	case f != nil:
		x.refused = c.failureEnvelope(x.stream(), f)
	case step != condition.Write:
		x.refused = c.refusedRows(answer, x.write.sent.table, evaluation.Refusal())
	default:
		s.rows = message.RowSet{x.leaves}
		if x.All {
			s.columns = nil
		}
		return true
	}
	x.fails = true
	return false
}

// decideGroup is decideConditional for a write that others have joined.
func (c *conn) decideGroup(last *frame.Frame, seen rowSeen, f *sentOperation, others []*groupMember, inPlace bool) []byte {
	x, goesOn := f.condition, false
	defer func() {
		if !goesOn {
			x.nextTurn()
		}
	}()
	x.columns = seen.columns
	last.Body.Warnings = x.warned
	var sent *conditionalWrite
	if seen.try(c, x, last) {
		sent = x
	}
	for _, m := range others {
		answer := frame.NewFrame(primitive.ProtocolVersion(c.version), m.stream(), &message.VoidResult{})
		if seen.try(m.request.conn, m.conditionalWrite, answer) {
			sent = m.conditionalWrite
		}
	}
	if sent == nil {
		refused, _ := x.group.take()
		for _, m := range refused {
			x.group.answer(m, traffic.Answered, m.refused)
		}
		return x.refused
	}
	x.leaves, x.write.request.parameters.Values = sent.leaves, sent.write.request.parameters.Values
	goesOn = true
	if f := c.sendUnderLock(&x.write, musiccore.Put, inPlace); f != nil {
		c.rejectUnsent(&x.write, f)
	}
	return nil
}

// answerGroup answers the others as the answer e demands, which is Cassandra's to the write that was sent, or
// an error in its place.
func (c *conn) answerGroup(g *group, e wire.Envelope) {
	all, undecided := g.take()
	for _, m := range undecided { // the read has failed
		g.again(m)
	}
	body, flags, err := c.responseBody(e)
	cur := wire.Cursor{Body: body}
	wire.ReadPreamble(&cur, flags)
	for _, m := range all {
		switch {
		case e.OpCode == primitive.OpCodeResult && m.fails:
			g.answer(m, traffic.Answered, m.refused)
		case e.OpCode == primitive.OpCodeResult:
			g.answer(m, traffic.Answered, wire.ResponseEnvelope(c.version, m.stream(), primitive.OpCodeResult, appliedRow(m.write.sent.table)))
		case err == nil && !cur.Bad:
			g.answer(m, traffic.Answered, wire.ResponseEnvelope(c.version, m.stream(), primitive.OpCodeError, body[cur.At:]))
		default:
			g.answerUnknown(m)
		}
	}
}
