package musiccore

import (
	"sync"
	"testing"
	"time"
)

func at(d time.Duration) Now {
	wall := t0 + Stamp(d.Microseconds())
	return Now{Boot: d, Wall: wall, Clk: wall}
}

func TestNoTermBeforeTheFirstAck(t *testing.T) {
	s := NewSession(session(1), Defaults())
	if s.Valid(at(0)) || s.Dead() {
		t.Fatal("valid without a beat")
	}
	n, ok := s.Beat(at(0))
	if n != 1 || !ok || s.Valid(at(0)) {
		t.Fatal("a beat that is only sent gives nothing")
	}
	s.Acked(at(1), at(0), n)
	if !s.Valid(at(2)) {
		t.Fatal("not valid after the acknowledgement")
	}
}

func TestLeaseCountsFromTheStart(t *testing.T) { // C5, fromAck
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(9*time.Second), at(0), n)
	if !s.Valid(at(9 * time.Second)) {
		t.Fatal("not valid before start+L")
	}
	if s.Valid(at(10 * time.Second)) {
		t.Fatal("valid at start+L")
	}
}

func TestC5DeadForEver(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	s.Acked(at(0), at(0), one)
	two, _ := s.Beat(at(9 * time.Second))
	if s.Valid(at(11 * time.Second)) {
		t.Fatal("valid past the deadline")
	}
	s.Acked(at(11*time.Second), at(9*time.Second), two)
	if s.Valid(at(11*time.Second)) || s.Valid(at(9*time.Second)) || !s.Dead() {
		t.Fatal("a late acknowledgement revived the session")
	}
	if _, ok := s.Beat(at(12 * time.Second)); ok {
		t.Fatal("a dead session beats")
	}
}

func TestC5AnAckThatFindsTheDeadlinePassedRevivesNothing(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	two, _ := s.Beat(at(9 * time.Second))
	s.Acked(at(0), at(0), one)
	s.Acked(at(11*time.Second), at(9*time.Second), two) // nobody asked in between
	if s.Valid(at(11 * time.Second)) {
		t.Fatal("revived")
	}
}

func TestFirstAckTooLate(t *testing.T) {
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(11*time.Second), at(0), n)
	if s.Valid(at(11*time.Second)) || !s.Dead() {
		t.Fatal("a session that others may have found dead came to life")
	}
}

func TestC12EitherClockEndsTheLease(t *testing.T) {
	for name, now := range map[string]Now{
		"suspended: boot goes on": {Boot: 11 * time.Second, Wall: t0},
		"wall jumps ahead":        {Boot: time.Second, Wall: t0 + Stamp(time.Hour.Microseconds())},
	} {
		s := NewSession(session(1), Defaults())
		n, _ := s.Beat(at(0))
		s.Acked(at(0), at(0), n)
		if s.Valid(now) || !s.Dead() {
			t.Errorf("%s: still valid", name)
		}
	}
}

func TestAcksOutOfOrderAndInvented(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	two, _ := s.Beat(at(3 * time.Second))
	s.Acked(at(4*time.Second), at(3*time.Second), two)
	s.Acked(at(4*time.Second), at(0), one)
	if !s.Valid(at(12 * time.Second)) {
		t.Fatal("an older acknowledgement shortened the lease")
	}
	s.Acked(at(12*time.Second), at(12*time.Second), 99)
	if s.Valid(at(13 * time.Second)) {
		t.Fatal("a beat that was never sent counts")
	}
}

func TestEnd(t *testing.T) {
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(0), at(0), n)
	s.End()
	if s.Valid(at(1)) || s.ID() != session(1) {
		t.Fatal("ended, and valid")
	}
}

func TestSessionUnderRace(t *testing.T) {
	s := NewSession(session(1), Defaults())
	var g sync.WaitGroup
	for i := range 4 {
		g.Go(func() {
			for j := range 1000 {
				now := at(time.Duration(i*1000+j) * time.Millisecond)
				if n, ok := s.Beat(now); ok {
					s.Acked(now, now, n)
				}
				s.Valid(now)
			}
		})
	}
	g.Wait()
}
