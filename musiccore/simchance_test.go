package musiccore

import (
	"fmt"
	"time"
)

// fault is one kind of thing that chance does to a run. The last ones are no
// faults but steps of clients: what the shrinker may leave out.
type fault uint8

// The faults of docs/protocol.md 5, I13.
const (
	lwtLost       fault = iota // never happens
	lwtDeaf                    // happens, nobody hears
	lwtLate                    // happens after the issuer was told "unknown"
	commitMissed               // a replica of the lock row never gets it
	commitLate                 // … or late
	rowLost                    // a read of the lock row brings nothing
	rowLate                    // … or brings its row late
	beatLost                   // a beat is written late, and its issuer hears nothing
	beatLate                   // a beat is written and acknowledged late
	beatDeaf                   // a beat is written, and acknowledged late
	beatOld                    // a beat is read at some time between asking and answer
	beatUnread                 // a beat cannot be read
	dataMissed                 // a replica never gets a mutation
	dataLate                   // … or late
	dataHinted                 // … or very late
	dataDoubled                // … or again, very late
	dataDeaf                   // the acknowledgement never comes
	ackLate                    // … or late
	dataUnread                 // a QUORUM read of the data brings nothing
	dataDown                   // a replica is away for a while
	dataTooLarge               // a key does not fit one page
	pause                      // a process stops for a while
	cutOff                     // a process reaches the lock store with nothing for a while
	suspend                    // … and its BOOTTIME with it, against all rules: the wall clock knows
	freeze                     // … and every clock of its machine with it
	crash                      // a process dies and comes back as another
	shutdown                   // a process ends in order
	wallJump                   // its wall clock jumps, either way
	clkJump                    // its clk() jumps, either way
	clkGone                    // its clocks differ too much for new terms
	clockRate                  // its clocks run at another rate, within eps
	clockSlewed                // its BOOTTIME and wall clock are slewed, by up to 10 %
	clockWild                  // … and beyond
	schemaEvent                // a table was altered
	closedRaised               // plain writes, and then a later closed
	tableLost                  // a table is taken for dropped: its keys are forgotten
	putLate                    // a client sends its put late
	putRefused                 // a put is definitely refused
	refForged                  // a client names a reference that is not its own
	endTwice                   // an End is given twice
	clientGone                 // a waiting client goes away
	clientSlow                 // a client thinks for long
	clientForgets              // a client never unlocks
	clientMoves                // a client goes on at another proxy
	clientMany                 // a client does more than a window holds
	peerLost                   // a message between proxies is lost
	peerLate                   // … or late
	peerTwice                  // … or comes twice
	ownerLeaves                // an owner stops, ends or dies while its client works
	forces                     // somebody forces a lock
	aClient                    // a client is there at all
	aSection                   // a client does a section
	anOperation                // a client does an operation
	faults                     // how many there are
)

// String names a kind as the report does.
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

// cut names one moment at which chance struck: the n-th of a kind that one
// actor met. A run without it is the same until there.
type cut struct {
	what fault
	who  uint8
	n    int32
}

func (c cut) String() string { return fmt.Sprintf("%v %d of actor %d", c.what, c.n, c.who) }

// chance is a source of chance of one actor. Each step of an actor forks its
// own, so that what is left out of a run changes as little as possible.
type chance struct {
	s   *sim
	who *actor
	x   uint64
}

// actor counts what has struck whom.
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

// n answers 0 … n-1.
func (c *chance) n(n int) int {
	c.x++
	return int(mixed(c.x) >> 33 % uint64(n))
}

// strikes is true about once in n times, more or less often in this run, and
// never once the faults have ended.
func (c *chance) strikes(f fault, n int) bool {
	roll := c.n(2 * n)
	return c.s.faults && roll < int(c.s.mix[f]) && c.happens(f)
}

// happens counts a strike, unless this run leaves it out.
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

// swarm draws how often each fault strikes in this run: not at all, about as
// said, or more. In every fourth run one theme is all that happens.
func (s *sim) swarm() {
	w := &s.world
	for f := range s.mix {
		s.mix[f] = [...]uint8{0, 0, 1, 2, 2, 2, 3, 6}[w.n(8)]
	}
	s.wild, s.strict = w.n(8) == 0, w.n(4) == 0
	switch w.n(8) {
	case 0:
		s.mix = [faults]uint8{}
	case 1, 2:
		s.theme(w.n(len(themes())))
	}
}

// themes are faults that bring about together what none brings about alone.
func themes() [][]fault {
	return [][]fault{
		{forces, commitMissed, rowLate, lwtDeaf}, // strict tables
		{beatLost, beatLate, beatDeaf, beatOld, cutOff, clockRate, clockSlewed, pause, suspend, freeze, wallJump}, // leases
		{closedRaised, dataMissed, dataLate, dataHinted, dataDeaf, clientMany},                                    // plain writes
		{commitMissed, lwtLost, lwtDeaf, rowLate, rowLost, crash, tableLost},                                      // lock rows
		{dataDeaf, ackLate, putLate, dataLate, dataUnread, endTwice, clientMany, pause},                           // unsettled puts
		{crash, shutdown, clientMoves, ownerLeaves, peerLost, peerLate, clientSlow, refForged, beatOld},           // takeovers
	}
}

func (s *sim) theme(n int) {
	s.mix = [faults]uint8{}
	for _, f := range themes()[n] {
		s.mix[f] = uint8(3 + s.world.n(6))
	}
	s.strict = s.strict || n == 0
	if n == 1 {
		s.wild = s.world.n(3) != 0
		s.mix[clientMany] = 6
	}
}
