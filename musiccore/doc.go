// Package musiccore is the lock protocol of the MUSIC proxy: who holds a key,
// with which stamps it may be written, when it must be synchronised, and what
// a client may be told. The specification is docs/protocol.md, the paper is "MUSIC:
// Multi-Site Critical Sections over Geo-Distributed State"; comments cite both
// ("docs/protocol.md 3.11, Release", "C7", "paper §IV").
//
// It is fed events and answers with effects. Time is an argument. It starts no
// goroutine, holds no mutex, knows no store and imports only the standard
// library, so that every interleaving can be played in a test.
//
// # Words (docs/protocol.md 8 has all)
//
//	key          one partition of a critical table: what is locked
//	reference    1, 2, 3 … per key: the place in the queue, and the fencing token
//	generation   of a table: its lock rows from their making on; references of the
//	             next one lie above all of the last
//	queue        the live references, head..guard
//	head, holder the lowest live reference
//	epoch        rises with each term; the CQL column is named base
//	term         the head's time on one epoch: the unit of fencing
//	window       the stamps epoch .. epoch+W-1 of a term; seq counts them up
//	dirty        the term before may have left writes that can still surface
//	synchronise  read the key at QUORUM and write it back above a fence
//	unsettled    a put whose acknowledgement never came
//	session      a proxy's life sign; all its terms rest on it
//	entry        a reference of this proxy from LOCK to its end, with or without a number
//	adopted      of an entry: its reference is of a dead session, and its client came here
//	orphan       a reference of this session that no entry is for
//	block        references that one Enqueue reserved, handed out in memory
//
// # Reading
//
// [Core] has the calls (core.go, table.go, shutdown.go); key.step (key.go) is what each of them
// ends in. From there: term.go, synch.go, stampread.go, renew.go and release.go for the life of a term; lock.go,
// entry.go, queue.go and enqueue.go for references that wait; block.go, handover.go, piggyback.go
// and delegate.go for keys that are in demand; takeover.go, preempt.go and watch.go for sessions that
// died; row.go, swap.go, lwt.go and view.go for the lock row.
//
// # The lock row
//
// One row per key, two registers, each written whole by one LWT: Q = (guard,
// queue), changed IF guard = g; T = (epoch, head, dirty, owner), changed IF epoch
// = e. [Row] is the row as a value, [Swap] an LWT as a value, and [Enqueue],
// [Release], [Preempt], [Takeover] and [Renew] are the only ways to make one.
// The epoch strictly rises, so the owner of T on epoch e alone decides how that term
// ends, and any replica's T, however old, names a holder that was.
//
// # What holds (docs/protocol.md 5)
//
//	I1   guard, epoch, head never fall; the epoch rises with each write of T
//	I2   one epoch, one sequencer; stamps are unique
//	I3   a put acknowledged at e: no later term has entered before e
//	I4   a get answers the last acknowledged put, or one that nothing excluded
//	I7   T becomes clean only by the term itself: synchronised or begun clean,
//	     with nothing unsettled or in flight
//	I12  every stamp lies in its window, and every later epoch above it
//
// I1, I3, I7 and I12 are also asserted here. A broken one does not stop the
// process: the term ends as lost and dirty, and [Effects] carries an [Alarm].
//
// How they are kept, in one paragraph. An Enqueue on an empty queue grants with
// the LWT itself; else the entry of the head gets its term when T shows it, and a
// reference gets a term once, ever. A dirty term gives no ticket before a Synch,
// which runs while no put is in flight, each attempt at a fresh fence; but on a new
// key puts that read nothing go before it, and the term stays dirty. A put's
// stamp is epoch+seq. An operation without an acknowledgement in time makes the term
// unsettled, is over for its client, and is fenced by the next Synch, before
// the next operation. A Release waits for what is in flight, tries to settle,
// and says dirty if anything may still surface. The client is told of success
// only if the session was valid after the store's answer: others preempt a
// session only when it has been dead for longer than that. In a strict table a
// QUORUM read of the lock row after that answer decides instead.
//
// # What a crash leaves behind
//
// Before an LWT is decided: perhaps a reference of a session that will be dead;
// others pass over it. A holder: its term, until its session is dead; Preempt
// leaves the next one dirty, a window above. In a Synch: a fence and cells that
// all lie in the dead term's window, one mutation each, below the next fence.
// Between a Release's answer and its LWT: a holder, as above. Everything in
// memory here may be lost at any moment without harm to the data; what is lost
// is time. Sessions are never resumed: a new process has a new one.
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
//	// per operation of a client:
//	ticket, effects := core.Begin(now(), op, key, ref, Put)
//	carryOut(effects)        // outside of the caller's mutex
//	// if ticket.OK(): send the client's bytes with ticket.Stamp at QUORUM, and then, in any case:
//	verdict, effects := core.End(now(), ticket, outcome) // now() read AFTER the answer came
//	// the client hears what verdict allows, nothing else;
//	// VerdictPending: the Answer to ticket.Op says it
//
// carryOut runs every [Command], each on its own, and calls Reply exactly once
// for each; gives every [Answer] to its operation; logs every [Alarm]; and
// calls Tick at Wake. An operation that got a ticket is waited for no longer
// than Options.OpTimeout: after that End says [VerdictUncertain] whatever came.
//
// Shutdown: Drain, wait for Quiet (not for ever), Session.End, then write the
// beat [EndedBeat].
//
// # Several proxies
//
// A client may come to any proxy with its reference. Where another session has
// it and lives, the answer is an [ElsewhereError]: the caller asks that proxy,
// whose Core treats Lock, Begin, End, Unlock and Force of a peer like those of
// its own clients, and lends the stamp. Where that session is dead the
// reference is adopted here. [Effects].Hints tell other proxies where to
// look: a waiter's proxy tells the session of the head, and that one tells the next
// when it gives the head up. [Core.Hear] takes theirs.
//
// # Blocks
//
// Where sections of a key are short, an Enqueue reserves more references than
// are asked for, in a retained block (docs/protocol.md 3.17). The whole block is one
// term. Its references are handed over in memory, each when nothing of the one before
// is in flight; epoch, seq, dirty and unsettled go on. A client is told its reference
// before the grant only while the block moves: the session's death ends all
// of it. So the reference of a holder that stays is made plain first: T.owner is set, and nothing
// is handed over any more.
//
// The Release of a term also enqueues those that wait here: one LWT, IF guard = g AND
// epoch = e, does what the two do with nothing between them. So where sections are
// short, a LOCK waits for the Release of the term that is here, and a key that several
// proxies want costs each of them one LWT a term (docs/protocol.md 3.18).
package musiccore
