package frontend

import (
	"crypto/sha256"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/statement"
	"music/frontend/topology"
	"music/frontend/wire"
	"music/rewrite"
)

// preparedID is the id of a prepared statement. Cassandra's ids have 16 bytes (MD5 of keyspace and text), and
// so have the proxy's own.
type preparedID [16]byte

// preparedStatement is the proxy's knowledge of a prepared statement: what it does, not whether it is
// allowed. Its tables may become critical and ordinary again, so that is decided at each EXECUTE. It is
// shared by all connections and never changed.
type preparedStatement struct {
	kind     classify.Kind
	tables   []*catalog.Table // the tables that it writes, if it is a plain write
	truncate bool             // it is a TRUNCATE
	topology *topology.Select // for classify.Local and classify.Peers
	reread   *reread          // for classify.Schema and classify.Unclear
	lock     *preparedLockStatement
}

// preparing is a PREPARE that has been sent to Cassandra and has no answer yet.
type preparing struct {
	preparedStatement
	names           [][2]string   // the names of preparedStatement.tables
	lockClauseError *wire.Failure // see conn.lockClauseError
	body            []byte        // see unqualifiedBody
	asked           bool          // prepareAgain has asked
}

// reread is a prepared statement whose text is read again each time it is executed, as that of a QUERY.
type reread struct {
	text     []byte
	keyspace string // the keyspace in which it was prepared
}

// decidePrepare has Cassandra prepare the statement, and notes what an EXECUTE of it will mean. A statement
// that would be refused when executed may be prepared, since a PREPARE has no effect.
func (c *conn) decidePrepare(e wire.Envelope) decision {
	if !e.Whole() {
		return decision{route: relay.NeedWhole}
	}
	body, err := c.requestBody(&e)
	if err != nil {
		return c.unreadable(e, err)
	}
	text, whole, err := textAt(body)
	if err != nil || !whole {
		return c.unreadable(e, wire.ErrShort)
	}
	rest := body[4+len(text):]
	own, err := c.keyspaceOfPrepare(rest)
	if err != nil {
		return c.unreadable(e, err)
	}
	r := c.classify(text, own)
	return c.decidePrepareKind(r, text, rest, own).on(r.Unlisted)
}

// decidePrepareKind decides about a PREPARE whose text has been read. rest is the body after the text, and
// own the keyspace in it.
func (c *conn) decidePrepareKind(r classify.Result, text, rest []byte, own string) decision {
	p := &preparing{preparedStatement: preparedStatement{kind: r.Kind}, lockClauseError: c.lockClauseError(text, r.Name), body: unqualifiedBody(&r, text, rest)}
	switch r.Kind {
	case classify.Local, classify.Peers:
		failure := c.server.Limits().checkText(text)
		if failure != nil {
			return refused(failure)
		}
		if p.topology, failure = topology.Read(text, r.Name.Names()[1]); failure != nil {
			return refused(failure)
		}
	case classify.Schema, classify.Unclear:
		failure := c.checkSchema(text, r)
		if failure == nil {
			failure = c.server.Limits().checkReread(text)
		}
		if failure != nil {
			return refused(failure)
		}
		p.reread = &reread{text: slices.Clone(text), keyspace: c.keyspaceHere(own)}
	case classify.Writes:
		p.names, p.truncate = c.written(text, r, own), r.Verb == rewrite.Truncate
	case classify.Refused:
		return refused(r.Failure)
	case classify.Critical:
		return c.decidePrepareLock(r, text, rest, own)
	}
	return watched(&watch{kind: watchPrepare, preparing: p})
}

// classify classifies a whole text; own is as for keyspaceHere.
func (c *conn) classify(text []byte, own string) (r classify.Result) {
	c.classifier.Classify(&r, text, true, c.keyspaceHere(own))
	return r
}

// keyspaceHere returns the keyspace of names without one: the request's own, or else the connection's.
func (c *conn) keyspaceHere(own string) string {
	if used := c.keyspace.Load(); own == "" && used != nil {
		return *used
	}
	return own
}

// keyspaceOfPrepare returns the keyspace after the text of a PREPARE of protocol 5, or "" (v5 spec section
// 4.1.5).
func (c *conn) keyspaceOfPrepare(rest []byte) (string, error) {
	if c.version < byte(primitive.ProtocolVersion5) {
		return "", nil
	}
	cur, own := wire.Cursor{Body: rest}, ""
	flags := primitive.PrepareFlag(cur.Int())
	if flags.Contains(primitive.PrepareFlagWithKeyspace) {
		own = string(cur.ShortBytes())
	}
	if cur.Bad || flags&^primitive.PrepareFlagWithKeyspace != 0 {
		return "", wire.ErrShort
	}
	return own, nil
}

// written returns the names of the tables that a plain write writes, each once.
func (c *conn) written(text []byte, r classify.Result, own string) [][2]string {
	if c.server.Tables == nil {
		return nil
	}
	if r.Verb != rewrite.Batch {
		return [][2]string{r.Name.Names()}
	}
	var names [][2]string
	seen, used := map[string]bool{}, c.keyspaceHere(own)
	_, err := rewrite.Outline(text, func(ks, table rewrite.Name) {
		if key := c.classifier.TableKey(text, ks, table, used); !seen[string(key)] {
			seen[string(key)] = true
			names = append(names, key.Names())
		}
	})
	if err != nil {
		return nil
	}
	return names
}

// learn stores a statement that has been prepared, under the id in Cassandra's answer e. It returns the
// answer for the client: e itself, or for an operation under a lock one with the proxy's own id. It returns
// none if the id is one of oneForAll, and Cassandra has been asked again.
func (c *conn) learn(e wire.Envelope, w watch) (wire.Envelope, error) {
	p := w.preparing
	result, f, err := c.decodePrepared(e)
	if err != nil || result == nil {
		return e, err
	}
	if p.oneForAll(result.PreparedQueryId) {
		return c.prepareAgain(e, w), nil
	}
	if p.topology != nil {
		p.topology.SetMetadata(result.ResultMetadataId)
	}
	entry := p.preparedStatement
	for _, name := range p.names {
		entry.tables = append(entry.tables, c.server.Tables.Of(name[0], name[1]))
	}
	if p.lock != nil {
		p.lock.backendID, p.lock.tables = result.PreparedQueryId, entry.tables
		if p.lock.plainWrite() && len(result.PreparedQueryId) == len(preparedID{}) { // it has no lock clause, so it keeps one id whatever its table becomes
			p.lock.id = preparedID(result.PreparedQueryId)
		}
		p.lock.version = c.version
		p.lock.splice(result)
		result.PreparedQueryId = p.lock.id[:]
		if e, err = wire.Encode(f); err != nil {
			return e, err
		}
	}
	if len(result.PreparedQueryId) == len(preparedID{}) {
		c.server.prepared.add(preparedID(result.PreparedQueryId), &entry, c.share)
	}
	return e, nil
}

// plainWrite reports whether the statement is a write without a lock reference.
func (p *preparedLockStatement) plainWrite() bool {
	s := statement.Statement{Parsed: p.statement}
	return s.PlainWrite()
}

// ownID returns the proxy's own id for a statement. It depends only on keyspace and text, so that it is the
// same at every proxy and after a restart: drivers that prepare everywhere see one id.
func ownID(keyspace string, text []byte) preparedID {
	h := sha256.New()
	h.Write([]byte(keyspace))
	h.Write([]byte{0})
	h.Write(text)
	return preparedID(h.Sum(nil))
}

// preparedStatements is the cache of prepared statements that all connections share. It is bounded by memory,
// not by number: the least recently used are evicted, and drivers prepare them again. If a connection
// prepares more than its share, its own are evicted. It is safe for concurrent use.
type preparedStatements struct {
	limits func() *Limits

	mu   sync.Mutex
	lru  *simplelru.LRU[preparedID, cachedStatement]
	size int
}

// sharedStatement is where the cache and the connections that use a statement find it. It is empty once the
// cache has evicted the statement: no connection holds it beyond that, so that the cache's bound is that of all.
type sharedStatement struct {
	statement atomic.Pointer[preparedStatement]
	used      atomic.Bool // a connection has found it here since the cache looked last
}

// get returns the statement, or nil. It takes no lock.
func (h *sharedStatement) get() *preparedStatement {
	if h == nil {
		return nil
	}
	if !h.used.Load() {
		h.used.Store(true)
	}
	return h.statement.Load()
}

// cachedStatement is a prepared statement in memory.
type cachedStatement struct {
	*sharedStatement
	size int
	by   *preparedShare // the share of the connection that has prepared it; may be nil
}

// preparedShare lists the statements that one connection has prepared, the oldest first. It is guarded by
// preparedStatements.mu.
type preparedShare struct {
	ids  []preparedID
	size int
}

// newStatements returns an empty cache.
func newStatements(limits func() *Limits) *preparedStatements {
	s := &preparedStatements{limits: limits}
	lru, err := simplelru.NewLRU(math.MaxInt, s.evicted)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	s.lru = lru
	return s
}

// evicted is called for each statement that is removed.
func (s *preparedStatements) evicted(_ preparedID, r cachedStatement) {
	r.statement.Store(nil)
	s.size -= r.size
	if r.by != nil {
		r.by.size -= r.size
	}
}

// shared returns where a statement is found from now on, and makes it the most recently used. It returns nil if
// there is none.
func (s *preparedStatements) shared(id preparedID) *sharedStatement {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.lru.Get(id)
	return r.sharedStatement
}

// add adds a statement that a connection has prepared, or one that counts for no connection's share: by is nil. A
// statement that is in the cache already stays in the share of the connection that prepared it first.
func (s *preparedStatements) add(id preparedID, p *preparedStatement, by *preparedShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := new(sharedStatement)
	if old, ok := s.lru.Peek(id); ok {
		by, shared = old.by, old.sharedStatement
		s.lru.Remove(id)
	}
	shared.statement.Store(p)
	shared.used.Store(true) // so that it is not taken for the least recently used
	if by != nil {
		by.ids = append(slices.DeleteFunc(by.ids, func(other preparedID) bool { return other == id }), id)
	}
	r := cachedStatement{sharedStatement: shared, size: p.memory(), by: by}
	s.lru.Add(id, r)
	s.size += r.size
	if by != nil {
		by.size += r.size
		s.shrink(by)
	}
	for tries := s.lru.Len(); s.size > s.limits().Prepared && s.lru.Len() > 1; tries-- {
		if oldest, r, _ := s.lru.GetOldest(); tries > 0 && r.used.Swap(false) {
			s.lru.Get(oldest) // a connection uses it without asking the cache: another one goes first
			continue
		}
		s.lru.RemoveOldest()
	}
}

// shrink evicts the oldest statements of a share that is too large, but never the newest.
func (s *preparedStatements) shrink(by *preparedShare) {
	most := s.limits().PreparedEach
	for len(by.ids) > 1 && (by.size > most || len(by.ids) > most/entryMemory) {
		if r, ok := s.lru.Peek(by.ids[0]); ok && r.by == by {
			s.lru.Remove(by.ids[0])
		}
		by.ids = by.ids[1:]
	}
}

// Upper bounds of the memory that a statement takes, in bytes. A syntax tree has at most a term for every two
// bytes of text.
const (
	entryMemory = 512 // the statement itself, in the cache
	textMemory  = 64  // per byte of parsed text
	pairMemory  = 128 // per column or table
)

// memory returns an upper bound of the memory that the statement takes, in bytes.
func (p *preparedStatement) memory() int {
	n := entryMemory + pairMemory*len(p.tables)
	if p.topology != nil {
		n += textMemory * p.topology.Size()
	}
	if p.reread != nil {
		n += len(p.reread.text)
	}
	if p.lock != nil {
		n += textMemory*len(p.lock.text) + pairMemory*len(p.lock.columns)
	}
	return n
}
