package musiccore

// idleKey is what is kept of a key without a holder, so that the next Enqueue needs no read. If it
// is out of date, that costs a refused LWT and nothing else.
type idleKey struct {
	row           Row     // zero: it is not kept
	first         LockRef // lower references and stamps than these may have been given, whatever the row shows (key.rowLost)
	closed        Stamp
	lastDied      bool  // the last holder did not release the lock
	nextBlockSize int32 // of the key
	endings       endings
	settled       settled
}

// idleKeyBytes is the longest key that is kept when it is idle. Cassandra takes keys of 64 KiB: so
// many of those would take gigabytes.
const idleKeyBytes = 1 << 10

// idleKeys keeps a bounded number of idle keys; the oldest goes first.
type idleKeys struct {
	rows map[Key]idleKey
	ring []Key
	next int
	size int
}

// newIdle keeps at most size keys; 0 keeps none.
func newIdle(size int) idleKeys { return idleKeys{rows: map[Key]idleKey{}, size: size} }

// put keeps what is known of a key, in the place of the key that came first if there are too many.
func (i *idleKeys) put(k Key, r idleKey) {
	if i.size == 0 || len(k.PK) > idleKeyBytes {
		return
	}
	if _, known := i.rows[k]; !known {
		i.enter(k)
	}
	i.rows[k] = r
}

// enter takes a key into the order in which keys are dropped.
func (i *idleKeys) enter(k Key) {
	if len(i.ring) < i.size {
		i.ring = append(i.ring, k)
		return
	}
	delete(i.rows, i.ring[i.next])
	i.ring[i.next] = k
	i.next = (i.next + 1) % i.size
}

// get returns what is kept of a key.
func (i *idleKeys) get(k Key) (idleKey, bool) {
	r, ok := i.rows[k]
	return r, ok
}

// forget drops the keys of a table that is no more.
func (i *idleKeys) forget(table [16]byte) {
	for k := range i.rows {
		if k.Table == table {
			delete(i.rows, k)
		}
	}
}
