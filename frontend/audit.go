package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/message"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// Refusal is an attempt at a lock that was refused.
type Refusal struct {
	By    musiccore.Client
	Table *catalog.Table
	Key   musiccore.Key     // no PK where the statement names no single key
	Ref   musiccore.LockRef // as LIST LOCKS shows it: a number that was made up is shown likewise; 0 is none
	Why   string
	Lost  bool // an operation under a lock that was lost: it is fenced off
}

// who is the client, for the audit.
func (c *conn) who() musiccore.Client {
	return musiccore.Client{Role: c.claimedRole, Address: c.client.RemoteAddr().String()}
}

// audit tells of an attempt that was refused.
func (c *conn) audit(why string, t *catalog.Table, k musiccore.Key, ref musiccore.LockRef) {
	if c.server.Audit != nil {
		c.server.Audit(Refusal{By: c.who(), Table: t, Key: k, Ref: ref, Why: why})
	}
}

// fencedOff tells of an operation under a lock that was lost.
func (c *conn) fencedOff(f *sentOperation, ref musiccore.LockRef) {
	if c.server.Audit != nil {
		c.server.Audit(Refusal{By: c.who(), Table: f.table, Key: f.key, Ref: ref, Why: "the lock is lost", Lost: true})
	}
}

// denied tells of a statement that its client has no right to.
func (c *conn) denied(e wire.Envelope, s *lockStatement, what permission) {
	f, err := c.decode(e)
	if err != nil {
		return
	}
	if _, ok := f.Body.Message.(*message.Unauthorized); !ok {
		return
	}
	why, k, ref := "no right to "+what.name(), musiccore.Key{Table: s.critical.ID}, musiccore.LockRef(0)
	if s.statement != nil && !s.several() {
		if key, f := s.key(); f == nil {
			k = key
		}
		if n, f := s.ref(); f == nil {
			ref = musiccore.LockRef(n >> tagBits)
		}
	}
	c.audit(why, s.table, k, ref)
}

// name is the word that Cassandra has for a permission.
func (p permission) name() string {
	switch p {
	case permissionSelect:
		return "SELECT"
	case permissionAuthorize:
		return "AUTHORIZE"
	}
	return "MODIFY"
}
