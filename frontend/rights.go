package frontend

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/rewrite"
)

// rightsLast is how long Cassandra's word that a client may write a table is believed (DESIGN.md 2).
const rightsLast = 2 * time.Second

// right is what the client of a connection wants to do with a table: LOCK and UNLOCK need to write it, LIST LOCKS to read it.
type right struct {
	table *Table
	read  bool
}

// rights remembers what the client of a connection may do.
type rights struct {
	mu    sync.Mutex
	until map[right]time.Time
}

// may tells whether Cassandra has just said that the client may do this, or has no roles at all.
func (c *conn) may(r right) bool {
	if !c.authenticated.Load() {
		return true
	}
	c.rights.mu.Lock()
	defer c.rights.mu.Unlock()
	return time.Now().Before(c.rights.until[r])
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

// probe is a statement that Cassandra executes only for a role that has the right, and that names no row: it reads and writes
// nothing (tried on 5.0.8: no mutation is made). It travels on the client's own connection, in the stream of its request; act follows where
// it is let through, and the client gets Cassandra's own words where it is not.
func (c *conn) probe(h header, r right, critical *Critical, act func()) ([]byte, *Failure) {
	text := "DELETE FROM "
	if r.read {
		text = "SELECT " + rewrite.Quote(critical.Key[0].Name) + " FROM "
	}
	text += rewrite.Quote(r.table.Keyspace) + "." + rewrite.Quote(r.table.Name) + " WHERE "
	for i, column := range critical.Key {
		if i > 0 {
			text += " AND "
		}
		text += rewrite.Quote(column.Name) + " IN ()"
	}
	body := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	p := parameters{consistency: primitive.ConsistencyLevelOne}
	body = p.appendTo(body, c.version)
	h = header{version: h.version, stream: h.stream, opcode: primitive.OpCodeQuery, length: uint32(len(body))}
	if !c.streams.begin(h.stream, true) {
		return nil, inUse(h.stream)
	}
	c.watches.add(h.stream, watch{kind: watchRights, allowed: func() {
		c.rights.note(r)
		act()
	}})
	return append(h.appendTo(make([]byte, 0, headerSize+len(body))), body...), nil
}
