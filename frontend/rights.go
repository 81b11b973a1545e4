package frontend

import (
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/google/uuid"

	"music/frontend/catalog"
	"music/frontend/statement"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// rightsLast is how long Cassandra's word that a client may write a table is believed
// (docs/design.md 2).
const rightsLast = 2 * time.Second

// permission is a set of Cassandra's on a table.
type permission uint8

const (
	permissionModify    permission = 1 << iota // LOCK and UNLOCK, and each write
	permissionSelect                           // LIST LOCKS, and each read
	permissionAuthorize                        // UNLOCK … FORCE
	permissionCount     = 3                    // how many there are
)

// right is what the client of a connection wants to be allowed to do with a table: what is one
// permission.
type right struct {
	table *catalog.Table
	what  permission
}

// rights remembers what the client of a connection may do.
type rights struct {
	mu    sync.Mutex
	until map[right]time.Time
}

// permissions returns what a statement takes on its table: the permission of Cassandra's own
// statement that does the same. A condition tells what the table holds.
func (s *lockStatement) permissions() permission {
	switch st := s.Parsed; {
	case s.Table == nil: // LIST LOCKS of all tables
		return 0
	case st.Force:
		return permissionAuthorize
	case st.ForUpdate, s.Conditional():
		return permissionModify | permissionSelect
	case st.Verb == rewrite.Select, st.Verb == rewrite.ListLocks:
		return permissionSelect
	}
	return permissionModify
}

// missingPermission returns the first of some permissions that Cassandra has not just granted the
// client; 0 where it has granted all, or has no roles. It does not allocate, and takes no lock of
// other clients.
func (c *conn) missingPermission(t *catalog.Table, need permission) permission {
	if !c.authenticated.Load() {
		return 0
	}
	c.rights.mu.Lock()
	defer c.rights.mu.Unlock()
	for i := range permissionCount {
		what := permission(1 << i)
		if need&what != 0 && !time.Now().Before(c.rights.until[right{t, what}]) {
			return what
		}
	}
	return 0
}

// note remembers that the client may do this.
func (s *rights) note(r right) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[right]time.Time{}
	}
	s.until[r] = time.Now().Add(rightsLast)
}

// probe is a statement that Cassandra executes, or begins to, only for a role that has a right, and
// that changes nothing.
type probe struct {
	text string
	role string // nobody's: to name it is as far as the statement gets; empty = it comes to its end
}

// newProbe asks for a right. For reading and writing it names no row (tried on 5.0.8: no mutation
// is made). For AUTHORIZE it takes that right from a role that does not exist: Cassandra looks at
// the role of the client before it looks for that other role.
func newProbe(r right, critical *catalog.Critical) probe {
	table := rewrite.Quote(r.table.Keyspace) + "." + rewrite.Quote(r.table.Name)
	text := "DELETE FROM " + table
	switch r.what {
	case permissionModify:
	case permissionSelect:
		text = "SELECT " + rewrite.Quote(critical.Key[0].Name) + " FROM " + table
	case permissionAuthorize:
		nobody := uuid.NewString()
		return probe{"REVOKE AUTHORIZE ON TABLE " + table + " FROM " + rewrite.Quote(nobody), nobody}
	}
	for i, column := range critical.PartitionKey() {
		text += [2]string{" WHERE ", " AND "}[min(i, 1)] + rewrite.Quote(column.Name) + " IN ()"
	}
	return probe{text: text}
}

// grants reports whether an answer to a probe says that the client has the permission.
func (c *conn) grants(e wire.Envelope, p probe) bool {
	if e.OpCode == primitive.OpCodeResult || p.role == "" {
		return e.OpCode == primitive.OpCodeResult
	}
	f, err := c.decode(e)
	if err != nil {
		return false
	}
	failure, ok := f.Body.Message.(*message.Invalid)
	return ok && strings.Contains(failure.ErrorMessage, p.role)
}

// whenPermitted calls act once Cassandra has said that the client has all permissions that a
// statement needs, for which it is asked one after another; emit sends the first question. Before
// that nothing is asked of the core: a client without the permission learns nothing of a lock, and
// does nothing to it.
func (c *conn) whenPermitted(h wire.Header, s *lockStatement, need permission, emit func([]byte), act func() *wire.Failure) *wire.Failure {
	what := c.missingPermission(s.Table, need)
	if what == 0 {
		return act()
	}
	table := &lockStatement{Statement: statement.Statement{Table: s.Table, Critical: s.Critical}}
	raw, f := c.askRight(h, s, what, func() {
		if f := c.whenPermitted(h, table, need&^what, c.send, act); f != nil {
			c.reject(h, f)
		}
	})
	if f == nil {
		emit(raw)
	}
	return f
}

// askRight asks Cassandra on the client's own connection, in the stream of its request, whether the
// client has a right; act follows where it does, and the client gets Cassandra's own words where it
// does not.
func (c *conn) askRight(h wire.Header, s *lockStatement, what permission, act func()) ([]byte, *wire.Failure) {
	r := right{s.Table, what}
	asked := newProbe(r, s.Critical)
	text := asked.text
	body := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	p := wire.Parameters{Consistency: primitive.ConsistencyLevelOne}
	body = p.AppendTo(body, c.version)
	h = wire.Header{Version: h.Version, Stream: h.Stream, OpCode: primitive.OpCodeQuery, Length: uint32(len(body))}
	if !c.streams.Begin(h.Stream, true) {
		return nil, inUse(h.Stream)
	}
	c.watches.add(h.Stream, &watch{kind: watchRights, probe: asked, allowed: func() {
		c.rights.note(r)
		act()
	}, denied: func(e wire.Envelope) { c.auditDenied(e, s, what) }})
	return append(h.AppendTo(make([]byte, 0, wire.HeaderSize+len(body))), body...), nil
}

// Refusal is an attempt at a lock that was refused.
type Refusal struct {
	By    musiccore.Client
	Table *catalog.Table
	Key   musiccore.Key     // no PK where the statement names no single key
	Ref   musiccore.LockRef // as LIST LOCKS shows it: a number that was made up is shown likewise; 0 is none
	Why   string
	Lost  bool // an operation under a lock that was lost: it is fenced off
}

// auditClient returns the client, for the audit.
func (c *conn) auditClient() musiccore.Client {
	return musiccore.Client{Role: c.claimedRole, Address: c.address}
}

// audit tells of an attempt that was refused.
func (c *conn) audit(why string, t *catalog.Table, k musiccore.Key, ref musiccore.LockRef) {
	if c.server.Audit != nil {
		c.server.Audit(Refusal{By: c.auditClient(), Table: t, Key: k, Ref: ref, Why: why})
	}
}

// auditFencedOff tells of an operation under a lock that was lost.
func (c *conn) auditFencedOff(f *sentOperation, ref musiccore.LockRef) {
	if c.server.Audit != nil {
		c.server.Audit(Refusal{By: c.auditClient(), Table: f.table, Key: f.key, Ref: ref, Why: "the lock is lost", Lost: true})
	}
}

// auditDenied tells of a statement that its client has no right to.
func (c *conn) auditDenied(e wire.Envelope, s *lockStatement, what permission) {
	f, err := c.decode(e)
	if err != nil {
		return
	}
	if _, ok := f.Body.Message.(*message.Unauthorized); !ok {
		return
	}
	why, k, ref := "no right to "+what.name(), musiccore.Key{Table: s.Critical.ID}, musiccore.LockRef(0)
	if s.Parsed != nil && !s.SeveralKeys() {
		if key, f := s.Key(); f == nil {
			k = key
		}
		if n, f := s.Ref(); f == nil {
			ref = musiccore.LockRef(n >> tagBits)
		}
	}
	c.audit(why, s.Table, k, ref)
}

// name returns the word that Cassandra has for a permission.
func (p permission) name() string {
	switch p {
	case permissionSelect:
		return "SELECT"
	case permissionAuthorize:
		return "AUTHORIZE"
	}
	return "MODIFY"
}
