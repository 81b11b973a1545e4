package frontend

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/frontend/wire"
	"music/musiccore"
)

// A client sees a reference with a tag behind it, so that nobody can guess one, and none serves for
// another key or for locks that were made anew. With MaxRef, all of it is below the bits of every
// double from 1 on (wholeNumber).
const (
	tagBits                   = 23
	MaxRef  musiccore.LockRef = 0x3ff<<(52-tagBits) - 1 // the highest reference that can be given
)

// References are what clients see of references. The methods may be called by many at once, and do
// not block.
type References interface {
	// Show is a key's reference as its client sees it: it rises with the reference. generation is that of the key's table.
	Show(generation [16]byte, k musiccore.Key, ref musiccore.LockRef) int64
	// Read is the reference that a client names. ok is false where that was not shown for this key, in this generation.
	Read(generation [16]byte, k musiccore.Key, n int64) (ref musiccore.LockRef, ok bool)
	// Stale reports whether another proxy may have shown what Read does not know.
	Stale() bool
}

// NewReferences makes References that whoever has the same secret makes alike. Who does not know it
// can only guess.
func NewReferences(secret []byte) References {
	seed := maphash.MakeSeed()
	return &taggedReferences{hashes: sync.Pool{New: func() any { return &keyedHash{mac: hmac.New(sha256.New, secret), seed: seed} }}}
}

// taggedReferences put the first bits of a keyed hash behind a reference.
type taggedReferences struct{ hashes sync.Pool }

// keyedHash is the memory that one tag takes, with the tags of late: a reference is shown once, and
// read by each operation under it.
type keyedHash struct {
	mac  hash.Hash
	in   []byte
	sum  [sha256.Size]byte
	seed maphash.Seed
	late [tagsKept]knownTag
}

const (
	tagsKept    = 64     // of each processor, roughly
	maxKnownTag = 1 << 8 // bytes of what a tag is made of, of which it is kept
)

// knownTag is the tag of what it was made of.
type knownTag struct {
	in  []byte
	tag uint32
}

// tag returns the tag of h.in.
func (h *keyedHash) tag() uint32 {
	known := &h.late[maphash.Bytes(h.seed, h.in)%tagsKept]
	if len(known.in) > 0 && bytes.Equal(known.in, h.in) {
		return known.tag
	}
	h.mac.Reset()
	_, _ = h.mac.Write(h.in)
	tag := binary.BigEndian.Uint32(h.mac.Sum(h.sum[:0])) >> (32 - tagBits)
	if len(h.in) <= maxKnownTag {
		known.in, known.tag = append(known.in[:0], h.in...), tag
	}
	return tag
}

// Show implements References.
func (t *taggedReferences) Show(generation [16]byte, k musiccore.Key, ref musiccore.LockRef) int64 {
	h := t.hashes.Get().(*keyedHash) //nolint:errcheck // the pool has nothing else
	defer t.hashes.Put(h)
	h.in = append(append(h.in[:0], generation[:]...), k.Table[:]...)
	h.in = append(binary.BigEndian.AppendUint64(h.in, uint64(ref)), k.PK...)
	return int64(ref)<<tagBits | int64(h.tag())
}

// Read implements References.
func (t *taggedReferences) Read(generation [16]byte, k musiccore.Key, n int64) (ref musiccore.LockRef, ok bool) {
	ref = musiccore.LockRef(n >> tagBits)
	return ref, ref > 0 && ref <= MaxRef && t.Show(generation, k, ref) == n
}

// Stale implements References: nothing changes the secret.
func (t *taggedReferences) Stale() bool { return false }

// shown returns a key's reference as its client sees it; 0 is none.
func (s *Server) shown(generation [16]byte, k musiccore.Key, ref musiccore.LockRef) int64 {
	if ref == 0 {
		return 0
	}
	return s.References.Show(generation, k, ref)
}

// wrongReferences counts the references that a connection has named and that were never shown for
// their key, and makes them slow.
type wrongReferences struct {
	wrong atomic.Int64
	turn  chan struct{} // has room for one: once there are wrong ones, references are read one at a time
}

const (
	wrongPause    = 50 * time.Millisecond // for each wrong reference of the connection so far …
	maxWrongPause = time.Second           // … up to this
)

// readReference returns the reference of a key that the client names by n; 0 where it names none. A
// wrong one is answered late, and nothing else of the connection that names one goes on meanwhile,
// so that guessing takes for ever.
func (c *conn) readReference(critical *catalog.Critical, t *catalog.Table, k musiccore.Key, n int64) (musiccore.LockRef, *wire.Failure) {
	if n == 0 {
		return 0, nil
	}
	suspect := c.guesses.wrong.Load() > 0
	if suspect {
		c.guesses.turn <- struct{}{}
		defer func() { <-c.guesses.turn }()
	}
	ref, ok := c.server.References.Read(critical.Generation, k, n)
	if ok {
		return ref, nil
	}
	if c.server.References.Stale() {
		return 0, refusal.StaleReferences(t)
	}
	wrong := c.guesses.wrong.Add(1)
	if !suspect {
		c.guesses.turn <- struct{}{}
		defer func() { <-c.guesses.turn }()
	}
	c.audit("not a reference of this key", t, k, musiccore.LockRef(n>>tagBits))
	c.pauseAfterWrong(wrong)
	return 0, refusal.OfOperation(musiccore.ErrNotHeld, t, n)
}

// pauseAfterWrong blocks for as long as so many wrong references are worth, or until the connection
// ends.
func (c *conn) pauseAfterWrong(wrong int64) {
	timer := time.NewTimer(min(time.Duration(wrong)*wrongPause, maxWrongPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.done:
	}
}
