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

// A client sees a reference with a tag appended, so that references cannot be guessed, nor used for
// another key or another generation of the table. The limit MaxRef keeps the number below the bits
// of every double from 1 on, see statement.wholeNumber.
const (
	tagBits                   = 23
	MaxRef  musiccore.LockRef = 0x3ff<<(52-tagBits) - 1 // the highest reference that can be given
)

// References converts references to the numbers that clients see, and back. It is safe for
// concurrent use, and does not block.
type References interface {
	// Show returns a key's reference as its client sees it. The number rises with the reference.
	// generation is that of the key's table.
	Show(generation [16]byte, k musiccore.Key, ref musiccore.LockRef) int64
	// Read returns the reference for a number that a client has sent. ok is false if Show does not
	// return that number for this key and generation.
	Read(generation [16]byte, k musiccore.Key, n int64) (ref musiccore.LockRef, ok bool)
	// Stale reports whether another proxy may have shown what Read does not know.
	Stale() bool
}

// NewReferences returns References with tags made from a secret. Equal secrets give equal tags.
func NewReferences(secret []byte) References {
	seed := maphash.MakeSeed()
	return &taggedReferences{hashes: sync.Pool{New: func() any { return &keyedHash{mac: hmac.New(sha256.New, secret), seed: seed} }}}
}

// taggedReferences implements References. The tag is the first bits of a keyed hash.
type taggedReferences struct{ hashes sync.Pool }

// keyedHash computes tags. It caches recent ones, since a reference is shown once but read by each
// operation under it.
type keyedHash struct {
	mac  hash.Hash
	in   []byte // the input of the next tag
	sum  [sha256.Size]byte
	seed maphash.Seed
	late [tagsKept]knownTag // the cache, by a hash of the input
}

const (
	tagsKept    = 64     // tags in a cache; there is about one cache per processor
	maxKnownTag = 1 << 8 // the longest input whose tag is cached, in bytes
)

// knownTag is a cached tag with its input.
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

// shown returns a key's reference as its client sees it; 0 for 0.
func (s *Server) shown(generation [16]byte, k musiccore.Key, ref musiccore.LockRef) int64 {
	if ref == 0 {
		return 0
	}
	return s.References.Show(generation, k, ref)
}

// wrongReferences slows down a client that guesses references: it counts those that were never
// shown for their key.
type wrongReferences struct {
	wrong atomic.Int64
	turn  chan struct{} // a mutex: after the first wrong reference they are read one at a time
}

const (
	wrongPause    = 50 * time.Millisecond // per wrong reference of the connection so far …
	maxWrongPause = time.Second           // … up to this
)

// readReference returns the reference that the client has sent as n; 0 for 0. If n is wrong it
// blocks for a while, and so do the connection's other requests with a reference, so that guessing
// takes too long.
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
	return 0, refusal.WrongReference(t, n)
}

// pauseAfterWrong blocks for the pause after so many wrong references, or until the connection
// ends.
func (c *conn) pauseAfterWrong(wrong int64) {
	timer := time.NewTimer(min(time.Duration(wrong)*wrongPause, maxWrongPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.done:
	}
}
