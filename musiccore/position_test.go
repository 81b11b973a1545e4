package musiccore

import (
	"testing"
	"time"
)

// References of a block that nobody has been given are nobody's: who waits behind one holder is told so.
func TestPositionCountsWhoWaits(t *testing.T) {
	row := Row{Guard: 512, Head: 1, Epoch: 1000, Queue: []Block{{First: 1, N: 512, Session: session(9), Req: 1, Retained: true}}}
	d, s := foreign(t, row)
	first := d.lock(Request{AtOnce: true})
	s.run()
	if g := d.state(first, StateQueued); g.Ref != 513 || g.Position != 1 {
		t.Fatalf("behind one holder: %+v", g)
	}
	second := d.lock(Request{AtOnce: true})
	s.run()
	if g := d.state(second, StateQueued); g.Ref != 514 || g.Position != 2 {
		t.Fatalf("behind the holder and one who waits: %+v", g)
	}
	if all := d.core.List(d.time()); len(all) != 2 || all[0].Position != 1 || all[1].Position != 2 {
		t.Fatalf("listed %+v", all)
	}
}

// Of an own block those in its line are known.
func TestPositionBehindAnOwnBlock(t *testing.T) {
	d, s := kept(t)
	d.lock(Request{Wait: time.Minute})
	d.lock(Request{Wait: time.Minute})
	behind := d.lock(Request{AtOnce: true})
	s.run()
	if g := d.state(behind, StateQueued); g.Ref != 10 || g.Position != 3 {
		t.Fatalf("behind the holder and two in its line: %+v", g)
	}
}

// A lease is the reference's: to ask for it again, to wait on and to renew change it only where they give another one.
func TestALeaseStaysUnlessAnotherIsGiven(t *testing.T) {
	d, s := held(t)
	d.lock(Request{AtOnce: true, Lease: time.Second, Usual: 10 * time.Second})
	s.run()
	op := d.lock(Request{Ref: 2, Wait: time.Minute, Usual: 10 * time.Second})
	d.unlock(1)
	s.run()
	if g := d.state(op, StateHeld); g.Lease != time.Second {
		t.Fatalf("resumed: %+v", g)
	}
	for _, c := range []struct{ given, want time.Duration }{{0, time.Second}, {5 * time.Second, 5 * time.Second}, {0, 5 * time.Second}} {
		if g := d.state(d.lock(Request{Ref: 2, Lease: c.given, Usual: 10 * time.Second}), StateHeld); g.Lease != c.want {
			t.Fatalf("renewed by %v: %+v", c.given, g)
		}
	}
	d.unlock(2)
	s.run()
	op = d.lock(Request{Usual: 10 * time.Second})
	s.run()
	if g := d.state(op, StateHeld); g.Lease != 10*time.Second {
		t.Fatalf("the table's: %+v", g)
	}
}

// Whose reference goes on elsewhere has the table's lease there.
func TestTheLeaseOfATakeover(t *testing.T) {
	for _, usual := range []time.Duration{time.Second, time.Hour} {
		d, s := foreign(t, theirs())
		s.beat[session(9)] = EndedBeat
		_, begin := d.begin(1, Put)
		s.run()
		if !d.answered(begin).Ticket.OK() {
			t.Fatal("no ticket")
		}
		if g := d.state(d.lock(Request{Ref: 1, Usual: usual}), StateHeld); g.Lease != usual {
			t.Fatalf("%+v, want %v", g, usual)
		}
		if g := d.state(d.lock(Request{Ref: 1, Usual: usual / 2}), StateHeld); g.Lease != usual {
			t.Fatalf("once: %+v", g)
		}
	}
}
