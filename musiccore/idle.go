package musiccore

// rest is what is kept of a key that nobody holds: enough for the next
// Enqueue to need no read. A stale one costs a refused LWT and nothing else.
type rest struct {
	row   Row
	died  bool  // the last holder did not give the lock back
	spare int32 // of the key
	ended []ending
}

// idle keeps a bounded number of them; the oldest goes first.
type idle struct {
	rows map[Key]rest
	ring []Key
	next int
	size int
}

// newIdle keeps at most size rows; 0 keeps none.
func newIdle(size int) idle { return idle{rows: map[Key]rest{}, size: size} }

func (i *idle) put(k Key, r rest) {
	if i.size == 0 {
		return
	}
	if _, known := i.rows[k]; !known {
		i.enter(k)
	}
	i.rows[k] = r
}

func (i *idle) enter(k Key) {
	if len(i.ring) < i.size {
		i.ring = append(i.ring, k)
		return
	}
	delete(i.rows, i.ring[i.next])
	i.ring[i.next] = k
	i.next = (i.next + 1) % i.size
}

func (i *idle) get(k Key) (rest, bool) {
	r, ok := i.rows[k]
	return r, ok
}

// forget drops the rows of a table that is no more.
func (i *idle) forget(table [16]byte) {
	for k := range i.rows {
		if k.Table == table {
			delete(i.rows, k)
		}
	}
}
