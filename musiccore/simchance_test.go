package musiccore

import (
	"fmt"
	"time"
)

// fault is one kind of random event in a run. The last ones are not faults but steps of clients,
// which the shrinker may leave out.
type fault uint8

// The faults of docs/protocol.md 5, I13.
const (
	lwtLost       fault = iota // an LWT is never executed
	lwtDeaf                    // an LWT is executed, its answer is lost
	lwtLate                    // an LWT is executed after its sender was told "unknown"
	commitMissed               // a replica of the lock row never gets it
	commitLate                 // a replica of the lock row gets it late
	rowLost                    // a read of the lock row is not answered
	rowLate                    // a read of the lock row is answered late
	beatLost                   // a beat is written late and not acknowledged
	beatLate                   // a beat is written and acknowledged late
	beatDeaf                   // a beat is written in time and acknowledged late
	beatOld                    // a read of a beat takes long
	beatUnread                 // a beat cannot be read
	dataMissed                 // a replica never gets a mutation
	dataLate                   // a replica gets a mutation late
	dataHinted                 // a replica gets a mutation very late
	dataDoubled                // a replica gets a mutation again, very late
	dataDeaf                   // an acknowledgement is lost
	ackLate                    // an acknowledgement is late
	dataUnread                 // a QUORUM read of the data is not answered
	dataDown                   // a replica is down for a while
	dataTooLarge               // a key does not fit one page
	pause                      // a process stops for a while
	cutOff                     // a process cannot reach the lock store for a while
	suspend                    // a process stops together with its BOOTTIME, which should not happen; its wall clock goes on
	freeze                     // a process stops together with every clock of its machine
	crash                      // a process crashes and restarts with another session
	shutdown                   // a process shuts down in order
	wallJump                   // a wall clock jumps forward or back
	clkJump                    // clk() jumps forward or back
	clkGone                    // the nodes' clocks differ too much for new terms
	clockRate                  // clocks run at another rate, within eps
	clockSlewed                // BOOTTIME and wall clock are slewed, by up to 10 %
	clockWild                  // clocks run at another rate, beyond eps
	schemaEvent                // a table was altered
	closedRaised               // plain writes, and then a later closed
	tableLost                  // a process takes the table for dropped and forgets its keys
	putLate                    // a client sends its put late
	putRefused                 // a put is definitely refused
	refForged                  // a client uses a reference that is not its own
	endTwice                   // a ticket is ended twice
	clientGone                 // a waiting client disconnects
	clientSlow                 // a client pauses between two operations
	clientForgets              // a client never unlocks
	clientMoves                // a client continues at another proxy
	clientMany                 // a client does more than a window holds
	peerLost                   // a message between proxies is lost
	peerLate                   // a message between proxies is late
	peerTwice                  // a message between proxies arrives twice
	ownerLeaves                // an owner pauses, shuts down or crashes while its client works
	forces                     // an operator ends a lock by force
	aClient                    // a client takes part
	aSection                   // a client does a section
	anOperation                // a client does an operation
	faults                     // how many there are
)

// String returns the name of the fault in the report.
func (f fault) String() string {
	return [faults]string{
		"LWT lost", "LWT applied, answer lost", "LWT applied late", "commit missed by a replica", "commit late at a replica",
		"lock row unread", "lock row read late", "beat late and unheard", "beat late", "beat acknowledged late", "beat read slowly", "beat unread",
		"mutation missed by a replica", "mutation late", "mutation hinted", "mutation doubled", "acknowledgement lost",
		"acknowledgement late", "data unread", "replica away", "key too large", "proxy paused", "proxy cut off",
		"proxy suspended with its boot clock", "proxy stopped with all its clocks", "proxy crashed", "proxy shut down", "wall clock jump", "clk() jump", "clocks differ", "clock rate within eps", "clocks slewed",
		"clock rate beyond eps", "schema event", "closed raised", "table taken for dropped", "put sent late", "put refused",
		"reference forged", "End twice", "client gone",
		"client slow", "client forgets", "client moves", "client fills a window", "peer message lost", "peer message late",
		"peer message doubled", "owner leaves", "lock forced", "client", "section", "operation",
	}[f]
}

// cut identifies one random event: the n-th of a kind at one actor. A run without it is the same up
// to that moment.
type cut struct {
	what fault
	who  uint8
	n    int32
}

func (c cut) String() string { return fmt.Sprintf("%v %d of actor %d", c.what, c.n, c.who) }

// chance is the source of randomness of one actor. Each step of an actor forks its own, so that
// leaving out an event changes as little as possible in the rest of the run.
type chance struct {
	s   *sim
	who *actor
	x   uint64
}

// actor counts the events of each kind at one actor.
type actor struct {
	id uint8
	n  [faults]int32
}

func (s *sim) newChance() chance {
	s.actors++
	return chance{s: s, who: &actor{id: s.actors}, x: mixed(uint64(s.seed)<<8 | uint64(s.actors))}
}

// mixed is splitmix64's finaliser.
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (c *chance) fork() chance {
	c.x++
	return chance{s: c.s, who: c.who, x: mixed(c.x)}
}

// n returns a number from 0 to n-1.
func (c *chance) n(n int) int {
	c.x++
	return int(mixed(c.x) >> 33 % uint64(n))
}

// strikes reports whether a fault happens now: about once in n calls, more or less often in this
// run, and never after the faults have ended.
func (c *chance) strikes(f fault, n int) bool {
	roll := c.n(2 * n)
	return c.s.faults && roll < int(c.s.mix[f]) && c.happens(f)
}

// happens counts the event and returns true, unless this run leaves it out.
func (c *chance) happens(f fault) bool {
	s, id := c.s, cut{f, c.who.id, c.who.n[f]}
	c.who.n[f]++
	if s.cuts[id] {
		return false
	}
	if s.recording {
		s.struck = append(s.struck, id)
	}
	s.tally.faults[f]++
	if f < aClient {
		s.tell("        * %v", f)
	}
	return true
}

func (c *chance) ms(n int) time.Duration   { return time.Duration(1+c.n(n)) * time.Millisecond }
func (c *chance) short() time.Duration     { return c.ms(20) }
func (c *chance) slow() time.Duration      { return c.ms(300) }
func (c *chance) late() time.Duration      { return c.ms(4000) }
func (c *chance) hinted() time.Duration    { return c.ms(15_000) }
func (c *chance) timeout() time.Duration   { return 100*time.Millisecond + c.ms(150) }
func (c *chance) between(a, b Stamp) Stamp { return a + Stamp(c.n(int(b-a))) }

// swarm draws how often each fault happens in this run: never, about as its call says, or more
// often. Every fourth run has only the faults of one theme.
func (s *sim) swarm() {
	w := &s.world
	for f := range s.mix {
		s.mix[f] = [...]uint8{0, 0, 1, 2, 2, 2, 3, 6}[w.n(8)]
	}
	s.wild, s.strict, s.lends = w.n(8) == 0, w.n(4) == 0, w.n(4) == 0
	switch w.n(8) {
	case 0:
		s.mix = [faults]uint8{}
	case 1, 2:
		s.theme(w.n(len(themes())))
	}
	if s.lends {
		for _, f := range []fault{beatLost, beatLate, beatDeaf, beatOld, beatUnread, cutOff, rowLost, rowLate, lwtLost, lwtDeaf, lwtLate, clkGone} {
			s.mix[f] = min(s.mix[f], 1)
		}
	}
}

const loanTheme = 6 // of themes

// themes are groups of faults that together lead to states which none of them leads to alone.
func themes() [][]fault {
	return [][]fault{
		{forces, commitMissed, rowLate, lwtDeaf}, // strict tables
		{beatLost, beatLate, beatDeaf, beatOld, cutOff, clockRate, clockSlewed, pause, suspend, freeze, wallJump},                           // leases
		{closedRaised, dataMissed, dataLate, dataHinted, dataDeaf, clientMany},                                                              // plain writes
		{commitMissed, lwtLost, lwtDeaf, rowLate, rowLost, crash, tableLost},                                                                // lock rows
		{dataDeaf, ackLate, putLate, dataLate, dataUnread, endTwice, clientMany, pause},                                                     // unsettled puts
		{crash, shutdown, clientMoves, ownerLeaves, peerLost, peerLate, clientSlow, refForged, beatOld},                                     // takeovers
		{peerLost, peerLate, peerTwice, dataDeaf, dataHinted, clientSlow, putLate, pause, freeze, clockRate, clockSlewed, cutOff, shutdown}, // loans
	}
}

func (s *sim) theme(n int) {
	s.mix = [faults]uint8{}
	for _, f := range themes()[n] {
		s.mix[f] = uint8(3 + s.world.n(6))
	}
	s.strict = s.strict || n == 0
	if n == loanTheme {
		s.wild, s.strict, s.lends = false, false, true
	}
	if n == 1 {
		s.wild = s.world.n(3) != 0
		s.mix[clientMany] = 6
	}
}
