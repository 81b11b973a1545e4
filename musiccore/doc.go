// Package musiccore is the lock protocol of the MUSIC proxy: who holds a key,
// with which stamps it may be written, when it must be synchronised, and what
// a client may be told. The specification is docs/protocol.md, the paper is "MUSIC:
// Multi-Site Critical Sections over Geo-Distributed State"; comments cite both
// ("docs/protocol.md 3.11, Release", "C7", "paper §IV").
//
// It takes events and returns effects. Time is an argument. It starts no
// goroutine, knows no store and imports only the standard library, and only a
// Session, which all shards share, holds a mutex: so a test can play every interleaving.
//
// # Words (docs/protocol.md 8 has all)
//
//	key          one partition of a critical table: what is locked
//	reference    1, 2, 3 … per key: the place in the queue, and the fencing token
//	generation   the life of one lock table; references of the next generation of the
//	             same table name are higher than all of the last
//	queue        the live references, head..guard
//	head, holder the lowest live reference
//	epoch        rises with each term; the CQL column is named base
//	term         the head's time on one epoch: the unit of fencing
//	window       the stamps epoch .. epoch+W-1 of a term; seq counts them up
//	dirty        the term before may have left writes that can still surface
//	synchronise  read the key at QUORUM and write it back above a fence
//	unsettled    of a term: a put has an unknown outcome
//	session      a proxy's life sign; all its terms depend on it
//	entry        a reference of this proxy from LOCK to its end, with or without a number
//	adopted      of an entry: its reference is of a dead session, and its client came here
//	orphan       a reference of this session for which there is no entry
//	block        references that one Enqueue reserved, handed out in memory
//	loan         the right to do operations under a reference, lent to another proxy for a time
//	run          several sections of one proxy in a row, under one loan
//	hint         a message between proxies that may be lost
//
// # Reading
//
// [Core] has the calls (core.go, table.go, force.go, list.go, shutdown.go, and for other proxies
// hint.go, lend.go and loan.go), effects.go, errors.go and options.go what goes in and comes out.
// A call that concerns a key finds it (keys.go) and ends in key.step (key.go). From there:
// term.go, flight.go, synch.go, stampread.go, renew.go and release.go for the life of a term;
// strict.go for the verdicts of strict tables; once.go for a lock of one statement on a new key;
// lock.go, entry.go, queue.go, enqueue.go and ending.go for references; block.go, handover.go,
// piggyback.go for keys that many clients use; lend.go for what is lent to another proxy, and
// loan.go for what is borrowed there; hint.go and head.go for what proxies tell each other;
// takeover.go, preempt.go and watch.go for dead sessions; row.go, swap.go, lwt.go, query.go and
// view.go for the lock row; session.go for a proxy's own life sign, idle.go for what is kept of a
// key that nobody holds. emit.go, timer.go and position.go serve all of these.
//
// # The lock row
//
// One row per key, two registers, each written whole by one LWT: Q = (guard,
// queue), changed IF guard = g; T = (epoch, head, dirty, owner), changed IF epoch
// = e. [Row] is the row as a value, [Swap] an LWT as a value, and [Enqueue],
// [EnqueueReleased], [Release], [Preempt], [Takeover] and [Renew] are the only ways
// to make one, or what two of them do in one.
// The epoch strictly rises, so only the owner of T on epoch e decides how that term
// ends, and any replica's T, however old, names the holder of its time.
//
// # What holds (docs/protocol.md 5)
//
//	I1   guard, epoch, head never fall; the epoch rises with each write of T
//	I2   one epoch, one sequencer; stamps are unique
//	I3   if a put is acknowledged at time e, no later term has begun before e
//	I4   a get returns the last acknowledged put, or one of unknown outcome that no answer excluded
//	I7   only the term itself makes T clean: synchronised or begun clean,
//	     with nothing unsettled or in flight
//	I12  every stamp lies in its window, and every later epoch above it
//
// I1, I3, I7 and I12 are also asserted here. If one is broken, the process does not
// stop: the term ends as lost and dirty, and [Effects] carries an [Alarm].
//
// In short, they are kept as follows. An Enqueue on an empty queue grants the lock
// by the LWT itself; else the entry of the head gets its term when T shows it. A
// reference gets a term at most once. A dirty term gives no ticket before a Synch,
// which runs while nothing is in flight, each attempt with a fresh fence; only on a
// new key may puts that read nothing come before it, and then the term stays dirty. A
// put's stamp is epoch+seq. A put without an acknowledgement in time makes the term
// unsettled: its outcome is unknown to its client, and the next Synch settles it,
// before the next operation. A Release waits for operations in flight, tries to settle,
// and leaves the row dirty if any write may still surface. The client is told of
// success only if the session was valid after the store's answer: others preempt a
// session only when it has been dead for longer than that. In a strict table a
// QUORUM read of the lock row after that answer decides instead; a lock for one statement on
// a new key, which is released when it is enqueued, has such a read in every table.
//
// # What a crash leaves behind
//
// Before an LWT is decided: perhaps a reference of a session that will be found
// dead; others pass over it. While it holds a lock: a term, until its session is
// dead; Preempt makes the next term dirty, a window above. In a Synch: a fence and
// cells in the dead term's window, one mutation for each interval, below the next
// fence. Between the answer to UNLOCK and the Release: a holder, as above. Everything
// in memory may be lost at any moment without harm to the data; it costs only
// time. Sessions are never resumed: a new process has a new one.
//
// # The caller's loop
//
// One Core serves one shard of the keys; its caller serialises the calls.
//
//	session := NewSession(id, o)
//	core := New(session, o)
//	// every L/3, and after a schema event, on any goroutine:
//	start := now()
//	if n, ok := session.Beat(start); ok {
//		if err := write(n); err == nil { // value and write timestamp n, at QUORUM
//			session.Acked(now(), start, n)
//		}
//	} else {
//		// dead for ever: every Core goes on with a new one
//		carryOut(core.Rejoin(now(), session)) // session = NewSession(…), before its first beat
//	}
//	// every L/12, before a beat and after its acknowledgement:
//	look := session.Look(now()) // and then session.Saw, with what the own row and the store's clock show
//	// per critical table, before its first operation and when it changes: core.Closed,
//	// FirstReference, ClientLease, Altered, ModeChanging and Strict; in the end core.Ordinary
//	// per operation of a client:
//	ticket, effects := core.Begin(now(), op, key, ref, Put)
//	carryOut(effects)        // outside of the caller's mutex
//	// if ticket.OK(): send the client's bytes with ticket.Stamp at QUORUM, and then, in any case:
//	verdict, effects := core.End(now(), ticket, outcome) // now() read AFTER the answer came
//	// the client hears what verdict allows, nothing else;
//	// VerdictPending: the Answer to ticket.Op says it
//
// carryOut runs every [Command], each on its own, and calls Reply exactly once
// for each; gives every [Answer] to its operation; logs every [Alarm]; passes on
// every [Note]; sends every [Hint] to its proxy; gives every [Return] to its lender's
// End, and then calls Returned; and calls Tick at Wake. An operation with a ticket has Options.OpTimeout: after
// that, End returns [VerdictUncertain] whatever the store answered.
//
// Shutdown: Drain, wait for Quiet (not for ever), Session.End, then write the
// beat [EndedBeat].
//
// # Several proxies
//
// A client may come to any proxy with its reference. If the reference belongs to another,
// living session, the answer is an [ElsewhereError]: the caller asks that session's proxy,
// whose Core treats Lock, Begin, End, Unlock and Force of a peer like those of
// its own clients, and lends the stamp. If that session is dead, the
// reference is adopted here. [Effects].Hints tell other proxies which row to
// read: a waiter's proxy tells the session of the head, and that one tells the next
// session when it releases the lock. [Core.Hear] takes the hints of others.
//
// # Blocks
//
// If sections of a key are short, an Enqueue reserves more references than there are
// clients, in a retained block (docs/protocol.md 3.17). The whole block is one
// term. Its references are handed over in memory, each when nothing of the one before
// is in flight; epoch, seq, dirty and unsettled are inherited. The whole block dies with
// its session, so a client is told its reference before the grant only while the block
// moves, and a holder that stays is made plain: T.owner is set, and nothing is handed
// over any more.
//
// The Release of a term also enqueues the clients that wait here: one LWT, IF guard = g
// AND epoch = e, has the effect of both, with nothing between them. So if sections are
// short, a LOCK waits for the Release of the term that is here, and a key that several
// proxies want costs each of them one LWT a term (docs/protocol.md 3.18).
package musiccore
