package frontend

import (
	"math/bits"
	"sync/atomic"
)

// streamsPerPage is how many stream ids one lazily made page of a connection's bookkeeping covers.
const streamsPerPage = 512

// streamPage has a bit for each of its stream ids.
type streamPage struct {
	open    [streamsPerPage / 64]atomic.Uint64 // a request went to the backend and has no answer yet
	watched [streamsPerPage / 64]atomic.Uint64 // … and its answer concerns the proxy
	marked  [streamsPerPage / 64]atomic.Uint64 // … and had none either when mark was called
}

// streams knows which requests of a connection the backend still owes an answer to. Any goroutine may open and close them.
// Most drivers use a few low ids, so an idle connection has one page or none.
type streams struct {
	pages [32768 / streamsPerPage]atomic.Pointer[streamPage]
}

// begin marks a stream as open; watched, as one whose answer concerns the proxy. It is false for a stream that is open already:
// the answer to one request would be taken for that to the other.
func (s *streams) begin(stream int16, watched bool) bool {
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

// open tells whether a request on the stream has no answer yet.
func (s *streams) open(stream int16) bool {
	page := s.page(stream)
	return page != nil && page.open[stream%streamsPerPage/64].Load()>>(stream%64)&1 == 1
}

// watched tells whether the answer on an open stream concerns the proxy.
func (s *streams) watched(stream int16) bool {
	page := s.page(stream)
	return page != nil && page.watched[stream%streamsPerPage/64].Load()>>(stream%64)&1 == 1
}

// end marks a stream as answered.
func (s *streams) end(stream int16) {
	page := s.page(stream)
	if page == nil {
		return
	}
	word, mask := stream%streamsPerPage/64, ^(uint64(1) << (stream % 64))
	page.open[word].And(mask)
	for _, also := range [...]*atomic.Uint64{&page.watched[word], &page.marked[word]} {
		if also.Load()&^mask != 0 {
			also.And(mask)
		}
	}
}

// mark marks the streams that are open now, until they are answered, but for those whose answer concerns the proxy: none of their
// requests is a write of plain CQL.
func (s *streams) mark() {
	for p := range s.pages {
		page := s.pages[p].Load()
		if page == nil {
			continue
		}
		for w := range page.open {
			page.marked[w].Or(page.open[w].Load() &^ page.watched[w].Load())
			page.marked[w].And(page.open[w].Load()) // what ended meanwhile has not seen its mark
		}
	}
}

// marked tells whether a stream that mark has marked has no answer yet.
func (s *streams) marked() bool {
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

func (s *streams) page(stream int16) *streamPage {
	if stream < 0 {
		return nil
	}
	return s.pages[stream/streamsPerPage].Load()
}

// each calls f with every open stream.
func (s *streams) each(f func(stream int16)) {
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

// any tells whether a stream is open.
func (s *streams) any() bool {
	found := false
	s.each(func(int16) { found = true })
	return found
}
