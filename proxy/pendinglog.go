package proxy

import "github.com/rs/zerolog"

// pendingLog holds the log lines of what has happened under a shard's mutex, in order. They are
// written after the mutex is released: a log that nobody reads must not stop a lock. The shard's
// mutex guards it.
type pendingLog struct {
	log     zerolog.Logger
	lines   []func()
	writing bool // a goroutine is writing them
}

// later adds a function that writes a line.
func (p *pendingLog) later(line func()) { p.lines = append(p.lines, line) }

// unlock releases the shard's mutex and writes the pending lines, one goroutine at a time: where
// another goroutine is writing, it leaves its lines to that one and does not wait.
func (s *shard) unlock() {
	if len(s.lines) == 0 || s.writing {
		s.mu.Unlock()
		return
	}
	s.writing = true
	for len(s.lines) > 0 {
		lines := s.lines
		s.lines = nil
		s.mu.Unlock()
		for _, write := range lines {
			write()
		}
		s.mu.Lock()
	}
	s.writing = false
	s.mu.Unlock()
}
