package frontend

import "sync"

// tokens has the LOCKs on several keys that have the same TOKEN run one after the other. Both get the same references,
// and the one that does not get all of its keys, or whose client is gone, releases what the other's client is told it
// holds. It is safe for concurrent use.
type tokens struct {
	mu      sync.Mutex
	running map[tokenName]chan struct{} // closed when it ends
}

// tokenName is a TOKEN, with the table that its LOCK is on.
type tokenName struct{ table, token [16]byte }

// take waits until no other LOCK of that name runs; one without a TOKEN never waits. ok is false if limit or over is
// closed before; else free must be called in the end.
func (t *tokens) take(name tokenName, limit, over <-chan struct{}) (free func(), ok bool) {
	if name.token == [16]byte{} {
		return func() {}, true
	}
	for {
		other, free := t.tryTake(name)
		if other == nil {
			return free, true
		}
		select {
		case <-other:
		case <-limit:
			return nil, false
		case <-over:
			return nil, false
		}
	}
}

// tryTake is take without waiting: if another LOCK runs, it returns what is closed when that ends.
func (t *tokens) tryTake(name tokenName) (other <-chan struct{}, free func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if running := t.running[name]; running != nil {
		return running, nil
	}
	if t.running == nil {
		t.running = map[tokenName]chan struct{}{}
	}
	own := make(chan struct{})
	t.running[name] = own
	return nil, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, name)
		close(own)
	}
}
