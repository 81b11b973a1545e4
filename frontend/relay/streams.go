package relay

import (
	"math/bits"
	"sync/atomic"
)

// streamsPerPage is how many stream ids a streamPage covers. Pages are allocated when first needed.
const streamsPerPage = 512

// streamPage has a bit for each of its stream ids.
type streamPage struct {
	open    [streamsPerPage / 64]atomic.Uint64 // a request was sent to Cassandra and has no answer yet
	watched [streamsPerPage / 64]atomic.Uint64 // it is open, and the proxy must look at its answer
	marked  [streamsPerPage / 64]atomic.Uint64 // it is open, and already was when Mark was called
	overdue [streamsPerPage / 64]atomic.Uint64 // it is marked, and already was when Overdue was called
}

// Streams is the set of a connection's streams on which Cassandra has not yet answered. It is safe
// for concurrent use. Most drivers use a few low ids, so an idle connection has one page or none.
type Streams struct {
	pages [32768 / streamsPerPage]atomic.Pointer[streamPage]
}

// Begin marks a stream as open; watched means that the proxy must look at the answer. It returns
// false for a stream that is already open, on which the answer to one request could be taken for
// the answer to the other.
func (s *Streams) Begin(stream int16, watched bool) bool {
	if stream < 0 {
		return false
	}
	slot := &s.pages[stream/streamsPerPage]
	page := slot.Load()
	if page == nil {
		slot.CompareAndSwap(nil, new(streamPage))
		page = slot.Load()
	}
	word, bit := stream%streamsPerPage/64, uint64(1)<<(stream%64)
	if page.open[word].Or(bit)&bit != 0 {
		return false
	}
	if watched {
		page.watched[word].Or(bit)
	}
	return true
}

// Open reports whether a request on the stream has no answer yet.
func (s *Streams) Open(stream int16) bool {
	page := s.page(stream)
	return page != nil && page.open[stream%streamsPerPage/64].Load()>>(stream%64)&1 == 1
}

// Watched reports whether the proxy must look at the answer on an open stream.
func (s *Streams) Watched(stream int16) bool {
	page := s.page(stream)
	return page != nil && page.watched[stream%streamsPerPage/64].Load()>>(stream%64)&1 == 1
}

// End marks a stream as answered.
func (s *Streams) End(stream int16) {
	page := s.page(stream)
	if page == nil {
		return
	}
	word, mask := stream%streamsPerPage/64, ^(uint64(1) << (stream % 64))
	page.open[word].And(mask)
	for _, also := range [...]*atomic.Uint64{&page.watched[word], &page.marked[word], &page.overdue[word]} {
		if also.Load()&^mask != 0 {
			also.And(mask)
		}
	}
}

// Mark marks the streams that are open now, until they are answered. A request whose answer is
// watched may be a plain write, too: its text may have a lock clause, or it is a batch that also
// writes under locks.
func (s *Streams) Mark() {
	for p := range s.pages {
		page := s.pages[p].Load()
		if page == nil {
			continue
		}
		for w := range page.open {
			page.marked[w].Or(page.open[w].Load())
			page.marked[w].And(page.open[w].Load()) // an End in between may have missed the mark
		}
	}
}

// Marked reports whether any stream that Mark has marked has no answer yet.
func (s *Streams) Marked() bool {
	for p := range s.pages {
		page := s.pages[p].Load()
		if page == nil {
			continue
		}
		for w := range page.marked {
			if page.marked[w].Load() != 0 {
				return true
			}
		}
	}
	return false
}

// Overdue reports whether any stream that was marked at the last call has had no answer since.
func (s *Streams) Overdue() (some bool) {
	for p := range s.pages {
		page := s.pages[p].Load()
		if page == nil {
			continue
		}
		for w := range page.marked {
			marked := page.marked[w].Load()
			some = some || marked&page.overdue[w].Load() != 0
			page.overdue[w].Store(marked)
			page.overdue[w].And(page.marked[w].Load()) // an End in between may have missed it
		}
	}
	return some
}

// page returns the page of a stream, or nil if no stream of that page has been opened yet.
func (s *Streams) page(stream int16) *streamPage {
	if stream < 0 {
		return nil
	}
	return s.pages[stream/streamsPerPage].Load()
}

// Each calls f with every open stream.
func (s *Streams) Each(f func(stream int16)) {
	for p := range s.pages {
		page := s.pages[p].Load()
		if page == nil {
			continue
		}
		for w := range page.open {
			for word := page.open[w].Load(); word != 0; word &= word - 1 {
				f(int16(p*streamsPerPage + w*64 + bits.TrailingZeros64(word)))
			}
		}
	}
}

// Any reports whether any stream is open.
func (s *Streams) Any() bool {
	found := false
	s.Each(func(int16) { found = true })
	return found
}
