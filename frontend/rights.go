package frontend

import (
	"cmp"
	"slices"
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

// rightsLast is for how long the proxy relies on a permission that Cassandra has confirmed
// (docs/design.md 2).
const rightsLast = 2 * time.Second

// permission is a set of Cassandra's permissions on a table.
type permission uint8

const (
	permissionModify    permission = 1 << iota // LOCK and UNLOCK, and each write
	permissionSelect                           // LIST LOCKS, and each read
	permissionAuthorize                        // UNLOCK … FORCE
	permissionCount     = 3                    // the number of permissions
)

// right is one permission on a table.
type right struct {
	table *catalog.Table
	what  permission
}

// rights holds the permissions of a connection's client that Cassandra has confirmed, and until
// when they are relied on. It is safe for concurrent use.
type rights struct {
	mu    sync.Mutex
	until map[right]time.Time
}

// permissions returns the permissions that a statement needs on its table: those that Cassandra
// demands for the equivalent statement. A condition needs SELECT, since its answer shows data.
func (s *lockStatement) permissions() permission {
	switch st := s.Parsed; {
	case s.simple != nil:
		return s.simple.need
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

// hasRoles reports whether clients have roles, and so perhaps no right to what they ask for.
func (c *conn) hasRoles() bool { return c.authenticated.Load() || c.server.Roles }

// missingPermission returns one of the needed permissions that Cassandra has not confirmed recently;
// 0 if it has confirmed all, or has no roles. It does not allocate, and takes no lock that other
// clients take.
func (c *conn) missingPermission(t *catalog.Table, need permission) permission {
	if !c.hasRoles() {
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

// unpermitted returns the first statement on a table on which the client is not known to have the
// permissions that it needs; nil if there is none. It looks once at each table: there may be as many
// statements as a message has room for.
func (b *lockedBatch) unpermitted() *lockStatement {
	var seen []*catalog.Table
	for i := range b.children {
		s := &b.children[i]
		if s.unlockedChild != nil || slices.Contains(seen, s.Table) {
			continue
		}
		if b.conn.missingPermission(s.Table, b.permissions(s.Table)) != 0 {
			return s
		}
		seen = append(seen, s.Table)
	}
	return nil
}

// note stores a permission that Cassandra has confirmed.
func (s *rights) note(r right) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[right]time.Time{}
	}
	s.until[r] = time.Now().Add(rightsLast)
}

// probe is a statement that changes nothing, and by whose answer one sees whether the client has a
// permission.
type probe struct {
	text string
	role string // a role that does not exist: the permission is there if the error names it; "" if success shows it
}

// newProbe returns the probe for a right. For reading and writing it is a statement on no row
// (tried on 5.0.8: there is no mutation). For AUTHORIZE it revokes that permission from a role that
// does not exist: Cassandra checks the client's permission before it looks that role up.
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

// grants reports whether an answer to a probe shows that the client has the permission.
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

// whenPermitted calls act when Cassandra has confirmed all permissions that a statement needs.
// Missing ones are probed one after another; emit sends the first probe. The core is not asked
// before, so that a client without the permission neither sees nor changes anything of a lock.
func (c *conn) whenPermitted(q askedFirst, s *lockStatement, need permission, act func() *wire.Failure) *wire.Failure {
	what := c.missingPermission(s.Table, need)
	if what == 0 {
		return act()
	}
	table := &lockStatement{Statement: statement.Statement{Table: s.Table, Critical: s.Critical}}
	next := q.again(c)
	raw, f := c.askRight(q, s, what, func() {
		if f := c.whenPermitted(next, table, need&^what, act); f != nil {
			c.reject(q.header, f)
		}
	})
	if f == nil {
		q.emit(raw)
	}
	return f
}

// askedFirst is a request of a client that waits for Cassandra's answer to a request that the proxy
// has made for it, on the same stream.
type askedFirst struct {
	header wire.Header
	emit   func([]byte) // sends what the proxy has made
	kept   int          // bytes of the client's request that wait for the answer
}

// again returns the request for what the proxy asks next, when the answer has come.
func (q askedFirst) again(c *conn) askedFirst { return askedFirst{q.header, c.send, q.kept} }

// askRight returns the request that probes for a permission, on the client's own connection and the
// stream of its request, and has its answer watched. act is called if the client has the
// permission; else the client gets Cassandra's error.
func (c *conn) askRight(q askedFirst, s *lockStatement, what permission, act func()) ([]byte, *wire.Failure) {
	h := q.header
	r := right{s.Table, what}
	asked := newProbe(r, s.Critical)
	p := wire.Parameters{Consistency: primitive.ConsistencyLevelOne}
	request := ownRequest(h, primitive.OpCodeQuery, p.AppendTo(longString(asked.text), c.version))
	if !c.streams.Begin(h.Stream, true) {
		return nil, inUse(h.Stream)
	}
	c.watch(h.Stream, &watch{kind: watchProbe, kept: q.kept, probe: asked, accepted: func() {
		c.rights.note(r)
		act()
	}, refused: func(e wire.Envelope) { c.auditDenied(e, s, what) }})
	return request, nil
}

// Refusal describes a refused statement on a lock, for the audit.
type Refusal struct {
	By    musiccore.Client
	Table *catalog.Table
	Key   musiccore.Key     // PK is empty if the statement does not name exactly one key
	Ref   musiccore.LockRef // without tag, as LIST LOCKS shows it, even if no such reference was given; 0 = none
	Why   string
	Lost  bool // an operation under a lock that is lost
}

// auditClient returns the client, for the audit.
func (c *conn) auditClient() musiccore.Client {
	who := musiccore.Client{Role: c.claimedRole, Address: c.address}
	if given := c.server.RoleByCertificate; given != nil {
		who.Role = cmp.Or(given(), who.Role)
	}
	return who
}

// audit reports a refused statement.
func (c *conn) audit(why string, t *catalog.Table, k musiccore.Key, ref musiccore.LockRef) {
	if c.server.Audit != nil {
		c.server.Audit(Refusal{By: c.auditClient(), Table: t, Key: k, Ref: ref, Why: why})
	}
}

// auditFencedOff reports an operation under a lock that is lost.
func (c *conn) auditFencedOff(f *sentOperation, ref musiccore.LockRef) {
	if c.server.Audit != nil {
		c.server.Audit(Refusal{By: c.auditClient(), Table: f.table, Key: f.key, Ref: ref, Why: "the lock is lost", Lost: true})
	}
}

// auditDenied reports a statement for which the client has no permission.
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

// name returns Cassandra's name of a permission.
func (p permission) name() string {
	switch p {
	case permissionSelect:
		return "SELECT"
	case permissionAuthorize:
		return "AUTHORIZE"
	}
	return "MODIFY"
}
