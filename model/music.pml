/* The lock protocol (docs/protocol.md) at small scope.
 *
 * What is in it: Enqueue with and without a grant, Poll on any T of the past, Preempt, Takeover, Release at base+seq,
 * Renew, references given up, a proxy's sweep of its own forgotten head, Synch and Settle by Synch, strict mode, blocks
 * with hand-over and one extension. LWTs are decided in any order, late, never, or after their issuer's session is dead.
 * Every process may stop between any two of its steps: nothing forces it to go on, so each crash is in the search.
 *
 * What is abstracted, and why that loses nothing that the properties ask about:
 *   leases       one bit: from the moment it is set, valid() is false and others may find the session Dead (lease.pml).
 *                What a dead proxy had under way may still happen, also a Release or a Synch that it sends late.
 *   clk()        base + the least step; with JUMP also a window further. Only the order of the numbers matters.
 *   the data     one cell (store.pml says why).
 *   the client   sequential: one operation at a time. Any number of gets; the puts are counted by the cast.
 *   QUORUM reads of data are atomic, or with APART their two replicas are read one after the other.
 *   commit       with leases the newest T stands on a quorum; a QUORUM read that misses it only makes an LWT that is
 *                refused. LOOSE and strict mode have it. NEAR: the answer to an Enqueue that grants does not say that
 *                it does; NEARALL: nor that to any other LWT.
 *   reads of Q   are of the newest: too old a row makes a condition that is refused.
 * What is left out: closed and the setting of a table, Remote (one sequencer serves it all), hints (they grant nothing),
 * several cells and rows, TTLs, lists, paging (one mutation, or torn: M1), operations in flight side by side, schema changes,
 * Renew for a stamp ahead of the window, the hand-over record that docs/protocol.md 3.17 has as an option, Paxos itself,
 * changes of the ring, and liveness: a key that is stuck breaks nothing here.
 *
 * Variants are flags of the preprocessor: each takes one rule away. Casts are in scopes.pml.
 */

/* A tenure is the record of one term in its proxy's memory. In a block of retained references one tenure
 * serves them one after the other: cur. A plain lock is a block of one. */
typedef Tenure { byte base; byte seq; byte cur; byte last; bit dirty; bit synced; bit unsettled; bit flying; bit busy; bit open };

#include "store.pml"

#define FULL 1                  /* how a user comes to its reference: it enqueues, ... */
#define LOCAL 2                 /* ... waits inside the block of the user whose tenure it shares, ... */
#define OVER 3                  /* ... or takes over the reference of the dead session of user n */

#define S sessOfUser[a]
#define t tenOf[a]
#define NEEDS (ten[t].unsettled || (ten[t].dirty && !ten[t].synced))
#define STAYSDIRTY (ten[t].unsettled || ten[t].flying || (ten[t].dirty && !ten[t].synced))
#ifdef EARLIER                  /* a reference below cur is still served */
#define MINE (ten[t].open && ten[t].cur >= r)
#else
#define MINE (ten[t].open && ten[t].cur == r)
#endif
#define NAME 'A' + a

#ifdef JUMP                     /* clk() may lie far above base */
#define CLK if :: c = 0 :: c = W fi
#else
#define CLK skip
#endif

/* What a client may be told, and may ask. */
#define SAW(b) (T.base == (b) || (loose && P.base == (b)))
#ifdef STRICT                   /* a QUORUM read of the lock row after the data operation */
#define TELL (SAW(ten[t].base) || (ten[t].busy && SAW(nextBase[t])))
#define LOST (!TELL)
#else
#ifdef NOCHECK                  /* C14 */
#define TELL true
#else
#define TELL VALID(S)
#endif
#define LOST (!VALID(S))
#endif
#ifdef C9                       /* get with an unsettled put of the same term */
#define MAYGET (MINE && VALID(S) && (!ten[t].dirty || ten[t].synced))
#else
#define MAYGET (MINE && VALID(S) && !NEEDS)
#endif
#define MAYSYNCH (MINE && NEEDS && !ten[t].flying && fails <= FAILS)
#ifndef FAILS
#define FAILS 0                 /* how often a synchronise may fail before its user must release */
#endif

#ifdef LOCALDIRTY               /* M6: a dirty term trusts a LOCAL_ONE read */
#define SURE(b) true
#else
#define SURE(b) SAW(b)
#endif

/* repaired: a QUORUM read that saw the newest T has put it on a quorum. */
inline repaired() {
#ifndef NOREPAIR
	firm()
#else
	skip
#endif
}

#define RETAINED(R) (blockLast != 0 && R.owner == NONE && R.head >= blockFirst && R.head <= blockLast)
#ifdef WAITING                  /* C3: also one that waits */
#define TAKEABLE(R) (R.head <= guard && refOf[n] >= R.head && sessOf[refOf[n]] != S && DEAD(sessOf[refOf[n]]))
#else
#ifdef BLKTAKE
#define TAKEABLE(R) (R.head <= guard && refOf[n] != 0 && (R.head == refOf[n] || (RETAINED(R) && refOf[n] > R.head)) && OWNER(R) != S && DEAD(OWNER(R)))
#else
#define TAKEABLE(R) (R.head <= guard && refOf[n] == R.head && !RETAINED(R) && OWNER(R) != S && DEAD(OWNER(R)))
#endif
#endif
#ifdef C2
#define DEADREF(R, ref) (ref > R.head && ref <= guard && DEAD(sessOf[ref]))
#define ENDABLE(R) (OWNER(R) != S && (DEADREF(R, 2) || DEADREF(R, 3)))
#else
#define ENDABLE(R) (R.head <= guard && OWNER(R) != S && DEAD(OWNER(R)))
#endif
#ifdef RELFORGET                /* an own release of unknown fate is forgotten */
#define SILENT(u) (lwt[u].kind == 0 || lwt[u].kind == TERM)
#else
#ifdef EXTFORGET                /* an own extension of unknown fate is forgotten */
#define SILENT(u) (lwt[u].kind == 0 || lwt[u].kind == EXTEND)
#else
#define SILENT(u) (lwt[u].kind == 0)
#endif
#endif
#define UNKNOWN(u, R) (sessOfUser[u] != S || ((SILENT(u) || u == a) && !ten[tenOf[u]].open && (left[u] || refOf[u] != R.head)))
#define SWEEPABLE(R) (R.head <= guard && OWNER(R) == S && VALID(S) && UNKNOWN(0, R) && UNKNOWN(1, R) && UNKNOWN(2, R) && UNKNOWN(3, R) && UNKNOWN(4, R))
#define GIVENUP(ref) ((abandoned[0] && refOf[0] == ref) || (abandoned[1] && refOf[1] == ref))

/* granted: the user enters a term of its own. */
inline granted(newbase, soiled) {
	ten[t].base = newbase; ten[t].dirty = soiled; ten[t].seq = 2; ten[t].cur = r; ten[t].open = 1;
	ten[t].synced = 0; ten[t].unsettled = 0;
#ifndef C15
	seen1[r] = 0; seen2[r] = 0; soiled1[r] = 0; soiled2[r] = 0;
#endif
	enter(a, S, ten[t].base, r)
}

/* polled: the same, by a T that a LOCAL_ONE read returned; a QUORUM read first when it is dirty. */
inline polled(named, soiled) {
	printf("%c is granted reference %d at base %d, dirty %d\n", NAME, r, named, soiled);
#ifndef LOCALDIRTY
	if :: soiled && T.base == named -> repaired() :: else fi;
#endif
	granted(named, soiled)
}

/* given: the enqueue was applied. References after the first are for the local users, whose slots follow. */
inline given() {
	r = lwt[a].g + 1;
	refOf[a] = r;
	ten[t].last = r + lwt[a].n - 1;
	k = 1;
	do
	:: k < lwt[a].n -> refOf[a+k] = r + k; k++
	:: else -> k = 0; break
	od
}

/* answered and acknowledged: a client is told of a get, of a put. */
inline answered() {
	printf("%c is told: the value is %d\n", NAME, v);
	report(ten[t].base, r);
	HOLDS(latest_state, v == truth || ((maybe >> v) & 1));
	truth = v; maybe = 0
}
inline acknowledged(p) {
	printf("%c is told: put %d is done\n", NAME, p);
	report(ten[t].base, r);
	truth = p; maybe = 0
}

/* handedOver: no LWT. The tenure goes on with the next reference of the block. */
#define HANDABLE (MINE && ten[t].cur == r && r < ten[t].last && refOf[t + r + 1 - refOf[t]] == r + 1 && VALID(S))
inline handedOver() {
	printf("%c hands over: reference %d is next\n", NAME, r + 1);
	ten[t].cur = r + 1;
#ifdef BLKSETTLE
	ten[t].unsettled = 0;
#endif
#ifdef BLKDIRTY
	ten[t].dirty = 0;
#endif
#ifdef BLKSEQ
	ten[t].seq = 2;
#endif
	inside[a] = 0
}

/* overtake issues the LWT of a takeover, seen in register R. */
inline overtake(R) {
	lwt[a].kind = TERM; lwt[a].b = R.base; lwt[a].base = R.base + W + c; lwt[a].head = r; lwt[a].dirty = 1; lwt[a].owner = S;
#ifdef C3
	lwt[a].ref = r; lwt[a].g = (R.head == r -> OWNER(R) : sessOf[r]);
#endif
	printf("%c takes reference %d over IF base = %d, base to be %d\n", NAME, r, lwt[a].b, lwt[a].base);
	c = 0
}

/* preempt passes over the head, which may be a whole block, and with j over the dead that wait behind it. */
#define NEXT(R) ((RETAINED(R) -> blockLast : R.head) + 1)
#define PASS(R) if :: j = 0 :: NEXT(R) <= guard && DEAD(sessOf[NEXT(R)]) -> j = 1 fi
inline preempt(R) {
	lwt[a].kind = TERM; lwt[a].b = R.base; lwt[a].base = R.base + W + c; lwt[a].dirty = 1;
	lwt[a].head = NEXT(R);
	do
	:: j && lwt[a].head <= guard && DEAD(sessOf[lwt[a].head]) -> lwt[a].head++
	:: else -> j = 0; break
	od;
#ifdef C1
	lwt[a].ref = R.head;
#endif
#ifdef C2                       /* a stale view takes a waiting reference of a dead session for the head */
	k = R.head;
	do
	:: k <= guard && !DEAD(sessOf[k]) -> k++
	:: else -> break
	od;
	lwt[a].head = k + 1;
	k = 0;
#endif
#ifdef NODIRTY                  /* C14 */
	lwt[a].dirty = R.dirty;
#endif
	printf("%c preempts reference %d IF base = %d, base to be %d, head %d\n", NAME, R.head, lwt[a].b, lwt[a].base, lwt[a].head);
	c = 0
}

/* sweep: dirty, but for a reference that was given up before it had a term. */
inline sweep(R) {
	lwt[a].kind = TERM; lwt[a].b = R.base; lwt[a].base = R.base + W + c; lwt[a].dirty = 1;
	lwt[a].head = NEXT(R);
	if :: GIVENUP(R.head) -> lwt[a].dirty = R.dirty; lwt[a].base = R.base + 2 + c :: else fi;
#ifdef SWEEPCLEAN
	lwt[a].dirty = R.dirty;
#endif
#ifdef ABANDONCLEAN             /* C6 */
	lwt[a].dirty = 0;
#endif
	printf("%c sweeps reference %d away IF base = %d, base to be %d, head %d, dirty %d\n", NAME, R.head, lwt[a].b, lwt[a].base, lwt[a].head, lwt[a].dirty);
	c = 0
}

/* extend issues the LWT of a renewal, or of one more reference for a block; extended goes on at its base. */
inline extend() {
	lwt[a].kind = (e == 0 -> TERM : EXTEND); lwt[a].g = guard; lwt[a].b = ten[t].base; lwt[a].base = ten[t].base + W + c;
	lwt[a].head = ten[t].cur; lwt[a].dirty = STAYSDIRTY; lwt[a].just = !STAYSDIRTY; lwt[a].sess = S;
	lwt[a].owner = (e == 0 -> S : NONE); lwt[a].n = (e == 0 -> 0 : 1);
	ten[t].busy = 1; nextBase[t] = lwt[a].base;
	printf("%c extends its term IF base = %d, base to be %d, dirty %d\n", 'A' + t, lwt[a].b, lwt[a].base, lwt[a].dirty);
	c = 0
}

inline extended() {
	firm();
	ten[t].base = lwt[a].base; ten[t].seq = 2; ten[t].busy = 0;
	if :: e != 0 -> ten[t].last++; refOf[e] = ten[t].last :: else fi;
	printf("%c hears that its base is %d now\n", 'A' + t, ten[t].base);
	clear(a)
}

/* heard: the issuer learns the fate of its LWT. */
inline heard() {
	if :: lwt[a].kind == APPLIED -> endFirm() :: else fi;
	clear(a)
}

/* fenced sends what a synchronise writes: a fence and the cell above it, in one mutation. */
inline fenced() {
#ifdef BLKFENCE
	stamp = ten[t].base + 1;
#else
	stamp = ten[t].base + ten[t].seq + 1; ten[t].seq = ten[t].seq + 2;
	stamped(t, ten[t].base, stamp);
#endif
	printf("%c synchronises: read %d, writes it at stamp %d\n", NAME, v, stamp);
#ifdef NOFENCE                  /* C13, paper: only what was read is written */
	if :: v != 0 -> send(stamp, v) :: else -> stamp = 0 fi
#else
#ifdef FENCEFIRST               /* C13: the fence is acknowledged before the cell is sent */
	stamp--; kept = v; v = 0;
#endif
	send(stamp, v)
#endif
}

/* settled: every chunk of a synchronise is acknowledged. */
inline settled() {
	printf("%c has synchronised\n", NAME);
	ten[t].synced = 1; ten[t].unsettled = 0;
	stamp = 0; v = 0
}

/* forget empties a tenure. */
inline forget(u) {
	ten[u].open = 0; ten[u].base = 0; ten[u].seq = 0; ten[u].cur = 0; ten[u].last = 0; ten[u].dirty = 0;
	ten[u].synced = 0; ten[u].unsettled = 0; ten[u].flying = 0; ten[u].busy = 0
}

#ifdef EXTPRESUME               /* an extension of unknown fate is counted */
#define MAYRELEASE true
#define LASTREF (ten[t].last + ten[t].busy)
#else
#define MAYRELEASE (!ten[t].busy)
#define LASTREF ten[t].last
#endif

/* released closes the tenure and issues the LWT that ends it. */
inline released() {
	lwt[a].kind = TERM; lwt[a].b = ten[t].base; lwt[a].base = ten[t].base + ten[t].seq + c;
	lwt[a].head = LASTREF + 1; lwt[a].dirty = STAYSDIRTY; lwt[a].just = !STAYSDIRTY;
#ifdef C1
	lwt[a].ref = r;
#endif
#ifdef C6
	lwt[a].dirty = ten[t].unsettled;
#endif
#ifdef C7
	lwt[a].dirty = ten[t].dirty && !ten[t].synced;
#endif
	left[a] = 1; forget(t); inside[a] = 0;
	printf("%c releases IF base = %d, base to be %d, head %d, dirty %d\n", NAME, lwt[a].b, lwt[a].base, lwt[a].head, lwt[a].dirty);
	c = 0
}

/* user is a client and what its proxies do for it: one lock, puts, gets. */
proctype user(byte a; byte how; byte puts; byte n) {
	byte r, v, stamp;       /* its reference; the value of the operation in flight, the stamp */
	byte fails;             /* synchronises that did not succeed */
#ifdef C16
	byte late, lateStamp;
#endif
#ifdef FENCEFIRST
	byte kept;
#endif

	if
	:: how == FULL -> goto ask
	:: how == LOCAL -> goto follow
	:: how == OVER -> goto over
	fi;

	/* Enqueue. A row read too old makes a condition that is refused, so to read the newest loses nothing. */
ask:	atomic {
		VALID(S) -> CLK;
		d_step {
			lwt[a].sess = S; lwt[a].n = n; lwt[a].g = guard; lwt[a].b = T.base;
			if
			:: T.head > guard ->
				lwt[a].kind = FAST; lwt[a].base = T.base + 1 + c; lwt[a].head = guard + 1; lwt[a].dirty = T.dirty
			:: else -> lwt[a].kind = APPEND
			fi;
			printf("%c enqueues IF guard = %d, base to be %d\n", NAME, lwt[a].g, lwt[a].base);
			c = 0
		}
	}
	if
	:: d_step {                     /* applied on an empty queue: the LWT is the grant */
		lwt[a].kind == APPLIED && lwt[a].base != 0 && VALID(S) ->
		grantFirm(); given();
		printf("%c hears that it was applied: it holds reference %d at base %d, dirty %d\n", NAME, r, lwt[a].base, lwt[a].dirty);
		granted(lwt[a].base, lwt[a].dirty);
		clear(a)
	   } -> goto section
	:: d_step {                     /* applied; or unknown, sent again, refused, and found in the row */
		lwt[a].kind == APPLIED ->
		given(); clear(a);
		printf("%c finds its reference %d in the queue\n", NAME, r)
	   }
	:: d_step { lwt[a].kind == REFUSED -> clear(a); printf("%c was refused\n", NAME) } -> goto ask
	fi;

	/* Poll: any T of the past, and only for a reference that has not had a term */
wait:	if
	:: d_step { VALID(S) && seen1[r] != 0 && (!soiled1[r] || SURE(seen1[r])) -> polled(seen1[r], soiled1[r]) } -> goto section
	:: d_step { VALID(S) && seen2[r] != 0 && (!soiled2[r] || SURE(seen2[r])) -> polled(seen2[r], soiled2[r]) } -> goto section
	:: T.head > r -> goto done
#ifdef ABANDON
	:: d_step { printf("%c gives reference %d up without having had it\n", NAME, r); abandoned[a] = 1 } -> goto done
#endif
#ifdef ROWS                     /* C14: a row per reference, and this replica lacks the ones before */
	:: d_step { VALID(S) && T.head < r -> polled(T.base, T.dirty) } -> goto section
#endif
	fi;

	/* A retained reference waits inside its proxy. */
follow:	if
	:: d_step {
		refOf[a] != 0 && ten[t].open && ten[t].cur == refOf[a] && VALID(S) ->
		r = refOf[a];
		enter(a, S, ten[t].base, r)
	   } -> goto section
	fi;

	/* Takeover */
over:	if
	:: atomic { VALID(S) && TAKEABLE(T) -> r = refOf[n]; CLK; d_step { repaired(); overtake(T) } }
	:: atomic { VALID(S) && loose && TAKEABLE(P) -> r = refOf[n]; CLK; d_step { overtake(P) } }
	fi;
	if
	:: d_step {
		lwt[a].kind == APPLIED && VALID(S) ->
		endFirm(); refOf[a] = r; ten[t].last = r;
		printf("%c hears that it was applied: it holds reference %d at base %d\n", NAME, r, lwt[a].base);
		granted(lwt[a].base, 1);
		clear(a)
	   }
	:: d_step { lwt[a].kind == REFUSED -> clear(a); r = 0 } -> goto over
	fi;

section:
	if
	:: d_step {
		MINE && VALID(S) && !NEEDS && puts > 0 ->
		puts--;
		v = 2*a + puts + 1;
		assert(v < 8);
#ifdef DELETES
		if :: a == 0 -> v = 0 :: else fi;
#endif
		stamp = ten[t].base + ten[t].seq; ten[t].seq++; ten[t].flying = 1;
		printf("%c puts %d at stamp %d\n", NAME, v, stamp);
		stamped(t, ten[t].base, stamp);
		send(stamp, v); tidy();
		maybe = maybe | (1 << v)
	   } -> goto putting
#ifdef APART                    /* the replicas of a QUORUM read are read one after the other */
	:: atomic { MAYGET -> firstHalf(stamp, v); d_step { tidy() } } -> goto getting
	:: atomic { MAYSYNCH -> firstHalf(stamp, v); d_step { tidy() } } -> goto synching
#else
	:: atomic { MAYGET -> read(v); d_step { tidy() } } -> goto got
	:: atomic { MAYSYNCH -> read(v); d_step { fenced(); tidy() } } -> goto synched
#endif
#ifdef C16                      /* an acknowledgement after its time is told, though Synch fenced the put */
	:: atomic { lateStamp != 0 && VALID(S) -> spread(lateStamp, late); d_step { tidy(); acknowledged(late); lateStamp = 0; late = 0 } } -> goto section
#endif
	/* hand-over and release, also by a proxy that was paused */
#ifdef EARLIER
	:: d_step { HANDABLE -> handedOver(); inside[a] = r } -> goto section
#else
	:: d_step { HANDABLE -> handedOver() } -> goto done
#endif
	:: atomic { MINE && MAYRELEASE -> CLK; d_step { released() } } -> goto releasing
	:: !MINE -> goto done
	fi;

#ifdef APART
getting:
	atomic { secondHalf(stamp, v); d_step { stamp = 0; tidy() } };
#endif
got:	if
	:: d_step { TELL -> answered(); v = 0 } -> goto section
	:: d_step { LOST -> v = 0 } -> goto section
	fi;

putting:
	if
	:: atomic { TELL -> spread(stamp, v); d_step { tidy(); acknowledged(v); ten[t].flying = 0; stamp = 0; v = 0 } } -> goto section
	:: d_step {
		printf("%c is told: outcome of put %d unknown\n", NAME, v);
		ten[t].flying = 0; ten[t].unsettled = 1;
#ifdef C16
		late = v; lateStamp = stamp;
#endif
		stamp = 0; v = 0
	   } -> goto section
#ifdef NODRAIN
	:: d_step { HANDABLE -> handedOver() } -> goto putting
#endif
	fi;

	/* Synch, also as Settle: exclusive in the term, each attempt at a fresh fence; a crash is a process that stops. */
#ifdef APART
synching:
	atomic { secondHalf(stamp, v); d_step { fenced(); tidy() } };
#endif
synched:
#ifdef FENCEFIRST
	atomic { spread(stamp, 0); d_step { stamp++; v = kept; kept = 0; send(stamp, v); tidy() } };
#endif
	if
	:: atomic { spread(stamp, v); d_step { tidy(); settled() } } -> goto section
	:: d_step { fails++; stamp = 0; v = 0 } -> goto section
	fi;

releasing:
	if
	:: d_step { lwt[a].kind >= APPLIED -> heard() }
	fi;
#ifdef C15
	goto wait;
#endif
done:	atomic { inside[a] = 0; left[a] = 1; r = 0; v = 0; stamp = 0; fails = 0; puts = 0; n = 0 }
}

/* preemptor ends the term of a dead session's head. Its proxy may try as often as it was refused. */
proctype preemptor(byte a) {
again:	if
	:: atomic { VALID(S) && ENDABLE(T) -> CLK; PASS(T); d_step { repaired(); preempt(T) } }
	:: atomic { VALID(S) && loose && ENDABLE(P) -> CLK; PASS(P); d_step { preempt(P) } }
	fi;
	if
	:: d_step { lwt[a].kind >= APPLIED -> heard() }
	fi;
	goto again
}

/* sweeper releases a reference of its own session that is at the head and that memory does not know. */
proctype sweeper(byte a) {
	if
	:: atomic { SWEEPABLE(T) -> CLK; d_step { repaired(); sweep(T) } }
	:: atomic { loose && SWEEPABLE(P) -> CLK; d_step { sweep(P) } }
	fi;
	d_step { lwt[a].kind >= APPLIED -> heard() }
}

/* extender renews the term of tenure t, or gives a block one more reference, for user e; operations go on at the old base. */
proctype extender(byte a; byte e) {
	atomic {
		ten[t].open && VALID(S) && !ten[t].busy && (e == 0 || (guard == ten[t].last && blockLast == ten[t].last));
		CLK;
		d_step { extend() }
	}
	if
	:: d_step { lwt[a].kind == APPLIED -> extended() }
	:: d_step { lwt[a].kind == REFUSED -> ten[t].busy = 0; clear(a) }
#ifdef EXTFORGET
	:: d_step { ten[t].busy -> printf("%c forgets its extension\n", 'A' + t); ten[t].busy = 0 }
#endif
	fi
}

/* world decides LWTs, in any order, at any time or never, and ends leases. */
#define FLYING(u) (lwt[u].kind != 0 && lwt[u].kind < APPLIED)
#define LIVES(u, s) (sessOfUser[u] == s && (!left[u] || refOf[u] >= T.head))
#define LAPSE(s) :: d_step { maylapse[s] && !lapsed[s] && (LIVES(0, s) || LIVES(1, s) || LIVES(2, s) || LIVES(3, s)) -> printf("the lease of session %d ends\n", s); lapsed[s] = 1 }
#define REVIVE(s) :: d_step { lapsed[s] && !revived[s] -> printf("a late beat revives session %d\n", s); revived[s] = 1 }
proctype world() {
	do
	:: atomic {
		if
		:: FLYING(0) -> i = 0 :: FLYING(1) -> i = 1 :: FLYING(2) -> i = 2
		:: FLYING(3) -> i = 3 :: FLYING(4) -> i = 4
#if USERS > 5
		:: FLYING(5) -> i = 5
#endif
		fi;
		d_step { decide(i); i = 0 }
	   }
	LAPSE(1) LAPSE(2) LAPSE(3)
#ifdef C5
	REVIVE(1)
#endif
	od
}

#include "scopes.pml"
