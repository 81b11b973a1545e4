package proxy

import "github.com/rs/zerolog"

// pendingLog holds log lines about events under a shard's mutex, in order. They are written after
// the mutex is released, so that a log that blocks does not stop locks. It is guarded by the
// shard's mutex.
type pendingLog struct {
	log     zerolog.Logger
	lines   []func()
	writing bool // a goroutine is writing them
}

// later adds a function that writes a line.
func (p *pendingLog) later(line func()) { p.lines = append(p.lines, line) }

// unlock releases the shard's mutex and writes the pending lines. If another goroutine is writing,
// that one writes these lines, too, and unlock does not wait.
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
