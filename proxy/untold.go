package proxy

// untold is what has happened under a shard's mutex and is still to be written to the log, in its order: a log that nobody reads must
// not stop a lock. The mutex guards it.
type untold struct {
	lines   []func()
	telling bool // somebody writes them
}

// say has something written once the mutex is free.
func (u *untold) say(line func()) { u.lines = append(u.lines, line) }

// unlock lets the shard go and writes what has happened, one goroutine at a time. Who finds another at it leaves its own lines to that
// one, and waits for nothing.
func (s *shard) unlock() {
	if len(s.lines) == 0 || s.telling {
		s.mu.Unlock()
		return
	}
	s.telling = true
	for len(s.lines) > 0 {
		lines := s.lines
		s.lines = nil
		s.mu.Unlock()
		for _, write := range lines {
			write()
		}
		s.mu.Lock()
	}
	s.telling = false
	s.mu.Unlock()
}
