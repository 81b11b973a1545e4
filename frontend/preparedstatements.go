package frontend

import (
	"math"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// preparedStatements are those that all connections share. They are bounded by the memory that they take, not by their number:
// those that were not used for longest are forgotten, and drivers prepare them again. A connection that prepares more than its share
// makes room among its own.
type preparedStatements struct {
	all, each int // bytes

	mu   sync.Mutex
	lru  *simplelru.LRU[preparedID, cachedStatement]
	size int
}

// cachedStatement is a prepared statement in memory.
type cachedStatement struct {
	*preparedStatement
	size int
	by   *preparedShare // who has prepared it; nil counts for nobody
}

// preparedShare is what one connection has prepared, the oldest first. Its statements' mutex guards it.
type preparedShare struct {
	ids  []preparedID
	size int
}

// newStatements remembers none.
func newStatements(all, each int) *preparedStatements {
	s := &preparedStatements{all: all, each: each}
	lru, err := simplelru.NewLRU(math.MaxInt, s.evicted)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	s.lru = lru
	return s
}

// evicted is told of each one that goes.
func (s *preparedStatements) evicted(_ preparedID, r cachedStatement) {
	s.size -= r.size
	if r.by != nil {
		r.by.size -= r.size
	}
}

// Get returns a statement.
func (s *preparedStatements) Get(id preparedID) (*preparedStatement, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.lru.Get(id)
	return r.preparedStatement, ok
}

// Add remembers a statement for nobody in particular.
func (s *preparedStatements) Add(id preparedID, p *preparedStatement) { s.add(id, p, nil) }

// add remembers a statement that a connection has prepared. One that is known already stays the share of who prepared it first.
func (s *preparedStatements) add(id preparedID, p *preparedStatement, by *preparedShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.lru.Peek(id); ok {
		by = old.by
		s.lru.Remove(id)
	}
	if by != nil {
		by.ids = append(slices.DeleteFunc(by.ids, func(other preparedID) bool { return other == id }), id)
	}
	r := cachedStatement{preparedStatement: p, size: p.memory(), by: by}
	s.lru.Add(id, r)
	s.size += r.size
	if by != nil {
		by.size += r.size
		s.shrink(by)
	}
	for s.size > s.all && s.lru.Len() > 1 {
		s.lru.RemoveOldest()
	}
}

// shrink forgets the oldest of a share that is too large, but for the last one.
func (s *preparedStatements) shrink(by *preparedShare) {
	for len(by.ids) > 1 && (by.size > s.each || len(by.ids) > s.each/entryMemory) {
		if r, ok := s.lru.Peek(by.ids[0]); ok && r.by == by {
			s.lru.Remove(by.ids[0])
		}
		by.ids = by.ids[1:]
	}
}

// Len is how many there are.
func (s *preparedStatements) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lru.Len()
}

// What a statement takes of memory, at most: a syntax tree has a term for every two bytes of text.
const (
	entryMemory = 512 // with its place among the others
	textMemory  = 64  // of each byte of text that is kept read
	pairMemory  = 128 // of each column or table
)

// memory is how many bytes a statement takes, by a cautious estimate.
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
