/* The session lease (docs/protocol.md 3.2, Session and Dead(x); I9): a session that another proxy has found dead is
 * never valid again. It is what lapsed[] in the other models stands for.
 *
 * One owner writes beats 1, 2, .. with QUORUM into one register; one observer reads it at QUORUM. Both count on
 * ONE clock: that the rates differ by less than eps is the factor (1+eps) of the wait, which is arithmetic and not
 * modelled, and so is the margin. A beat may reach a quorum at any time after its start, its acknowledgement may
 * come at any time after that, and a read returns anything that regularity allows: what was acknowledged or
 * read before it began, or a beat under way. Left out: the owner's restart (a new session), beat = maxint,
 * nodes that lose what they acknowledged.
 */
#define L 3                     /* the lease, in ticks */
#ifndef END
#define END 14
#endif
#define NOBODY 255

byte now;
byte deadline = L;              /* the owner is valid while now < deadline. The first beat was acknowledged at 0 */
bit dead;                       /* the owner saw its deadline pass: for ever */
byte acked, visible;            /* beats: acknowledged, and seen or seeable by every later read */
byte sent, sentAt;              /* the beat under way, or 0 */
bit landed;                     /* it stands on a quorum */
bit shadowed;                   /* its write timestamp lies behind the one before: acknowledged, without effect */
bit reading;
byte readAt, atLeast;           /* of the read under way: its start, the least beat it must return */
byte seen = NOBODY;             /* by the observer */
byte since;
bit preempted;

#ifdef RESUME                   /* C5: the acknowledgement of a late beat makes the session valid again */
#define FOREVER 0
#else
#define FOREVER 1
#endif
#define VALID (!dead && now < deadline)

byte alive = 1;
#define HOLDS(property, condition) property = (condition); assert(property)

inline watch() { HOLDS(alive, !(preempted && VALID)) }

inline came() {                 /* the acknowledgement */
#ifdef FROMACK
	sentAt = now;
#endif
	if
	:: !dead ->
		acked = sent;
		if :: sentAt + L > deadline -> deadline = sentAt + L :: else fi;
		printf("t=%d: the owner hears that beat %d is done: valid until %d\n", now, sent, deadline)
	:: else -> printf("t=%d: the owner hears that beat %d is done, too late\n", now, sent)
	fi;
	if :: !shadowed && sent > visible -> visible = sent :: else fi;
	sent = 0; sentAt = 0; landed = 0; shadowed = 0;
	watch()
}

inline start(v) {
	sent = acked + 1; sentAt = now; shadowed = v;
	printf("t=%d: the owner sends beat %d\n", now, sent)
}

inline returns(v) {
	reading = 0;
	printf("t=%d: the observer's read of t=%d returns beat %d\n", now, readAt, v);
	if :: v > visible -> visible = v :: else fi;
	if
	:: seen != v ->
		seen = v; since = now;
#ifdef FROMSTART
		since = readAt;
#endif
	:: seen == v && readAt >= since + L -> preempted = 1; printf("t=%d: the observer finds the session dead\n", now)
	:: else
	fi;
	readAt = 0; atLeast = 0;
	watch()
}

active proctype clock() {
	do
	:: d_step { now < END -> now++; if :: now >= deadline && FOREVER -> dead = 1 :: else fi }
	od
}

active proctype owner() {
	do
	:: d_step { sent == 0 && !dead && acked < 4 -> start(0) }
#ifdef WALL                     /* C5: stamped by a clock that stepped back */
	:: d_step { sent == 0 && !dead && acked < 4 -> start(1) }
#endif
	:: d_step { sent != 0 && !landed -> landed = 1 }
	:: d_step { sent != 0 && landed -> came() }
	od
}

active proctype observer() {
	do
	:: d_step {
		!reading && !preempted ->
		reading = 1; readAt = now;
		atLeast = (landed && !shadowed && sent > visible -> sent : visible)
	   }
	:: d_step { reading -> returns(atLeast) }
	:: d_step { reading && visible > atLeast -> returns(visible) }
	:: d_step { reading && sent > atLeast && !shadowed -> returns(sent) }
	od
}
