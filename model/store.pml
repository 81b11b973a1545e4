/* What stands in Cassandra, and what an all-knowing observer writes down.
 *
 * One key. Its lock row is two registers, each written whole by one LWT:
 *   Q = (guard, the session of each reference)   T = (base, head, dirty, owner)
 * Its data is ONE cell on three replicas, last write wins. Why one cell is enough: a fenced write and a
 * synchronise are each one mutation of one partition, and a synchronise carries every cell and the fence, so
 * the history of any one cell of the partition is a run of this model. What is lost: batches torn between
 * pages, TTLs, lists.
 *
 * With one cell a replica is the one mutation with the highest stamp that it has taken (a fence with nothing
 * under it is the value 0, absent). Everything below that stamp is dominated there, delivered or not.
 * Taking mutations commutes with everything except a read of the same replica and the count of an
 * acknowledgement, so the model lets a mutation arrive just before a replica is read (arrive) or just
 * before a quorum is counted (spread): any delay, loss, reordering, doubling or hint is one of those runs.
 * Replicas have no names: they are kept sorted by stamp, highest first.
 */

#ifdef NEARALL
#define NEAR
#endif
#if defined(STRICT) || defined(NEAR)
#define LOOSE
#endif
#ifndef W
#define W 16                    /* width of a window; scripts use fewer stamps, asserted */
#endif
#define REFS 6                  /* references 1..REFS-1 */
#ifndef USERS
#define USERS 5                 /* users, extenders and preemptors: a slot each */
#endif
#define SESSIONS 6              /* 1..SESSIONS-1 */
#ifndef MOVING
#define MOVING 8                /* mutations that some replica has not taken */
#endif
#define NONE 0

typedef Reg { byte base; byte head; bit dirty; byte owner };
typedef Lwt { byte kind; byte g; byte b; byte base; byte head; bit dirty; byte owner; byte sess; byte n; byte ref; bit just };

/* An LWT in a user's slot: on its way, or its fate. It may be decided at any time, also
 * when its user's session is dead, or never: that is the LWT of unknown fate. The same bytes sent again are the same
 * LWT: its condition is false for ever once it was applied, or once it was refused. */
#define APPEND 1                /* enqueue behind others: IF guard = g */
#define FAST 2                  /* enqueue on an empty queue, which grants: IF guard = g AND base = b */
#define TERM 3                  /* release, preempt, takeover, renew: IF base = b */
#define EXTEND 4                /* a block gets one more reference: IF guard = g AND base = b */
#define APPLIED 5
#define REFUSED 6

byte guard;
byte sessOf[REFS];
byte blockFirst, blockLast;     /* the retained tuple in the queue, if there is one */
Reg T, P;                       /* T, and the T before it while T is loose */
bit loose;                      /* the newest T may stand on a minority: a QUORUM read returns T or P. Only with
                                   LOOSE and in strict mode: with leases such a read only makes an LWT that is refused */
byte seen1[REFS], seen2[REFS];  /* bases of the T's that ever named the reference holder with owner NONE ... */
bit soiled1[REFS], soiled2[REFS]; /* ... and their dirty: what a LOCAL_ONE read may return, however late */
Lwt lwt[USERS];
bit lapsed[SESSIONS];           /* valid() is false for ever, and others may see the session as Dead (lease.pml) */
bit revived[SESSIONS];          /* variant C5 only */

byte id[3], val[3];             /* the replicas */
byte mid[MOVING], mval[MOVING]; /* mutations on their way, by stamp; 0: none */

/* What the proxies keep in memory, and the cast: which session and tenure a slot belongs to. */
Tenure ten[USERS];
byte nextBase[USERS];           /* of a renewal or extension on its way */
byte refOf[USERS];
bit left[USERS];                /* done with its reference */
bit abandoned[USERS];           /* ... which never had a term */
byte sessOfUser[USERS], tenOf[USERS];
bit maylapse[SESSIONS];
#ifdef APART
byte half[USERS];               /* replica + 1 of which a slot has read its half of a QUORUM read */
#endif

/* What the observer knows. Nothing of it is read by the protocol. */
byte truth;                     /* the true value: the last acknowledged put, or what a get has answered since */
byte maybe;                     /* bit v: put v has no acknowledgement, and nothing has excluded it */
byte topBase, topRef;           /* the latest term, and the latest reference in it, that entered */
byte told;                      /* the highest reference of which a client was told success */
byte inside[USERS];             /* reference of a user between its grant and its leaving, or 0 */
byte wrote[USERS], wroteTo[USERS]; /* by tenure: base of the window it wrote in, highest stamp of it */

/* The properties. Each is asserted under its own name, so that the checker's message says what broke. */
byte exclusivity = 1, latest_state = 1, order = 1;  /* of what clients are told: E, I3, I4 */
byte two_holders = 1;                               /* of what clients may believe */
byte windows = 1, registers = 1, dirty_rule = 1, clean_below = 1; /* what makes it so: I2, I1, I7, I6 */

#define HOLDS(property, condition) property = (condition); assert(property)
#ifdef TOLD                     /* only what clients are told: does a fault reach them? */
#define INNER(property, condition) skip
#else
#define INNER(property, condition) HOLDS(property, condition)
#endif

byte i, j, c, k, x;             /* scratch inside one step; 0 between steps */

#ifdef STRICT
#define VALID(s) true
#define DEAD(s) true
#else
#define VALID(s) (!lapsed[s] || revived[s])
#define DEAD(s) (lapsed[s])
#endif

/* tidy makes equal situations equal states: replicas sorted, forgotten what every replica is above of. */
inline tidy() {
	if :: id[0] < id[1] -> swap(0, 1) :: else fi;
	if :: id[1] < id[2] -> swap(1, 2) :: else fi;
	if :: id[0] < id[1] -> swap(0, 1) :: else fi;
	do
	:: mid[0] != 0 && mid[0] <= id[2] ->
		k = 0;
		do
		:: k < MOVING - 1 -> mid[k] = mid[k+1]; mval[k] = mval[k+1]; k++
		:: else -> mid[k] = 0; mval[k] = 0; k = 0; break
		od
	:: else -> break
	od;
	i = 0; j = 0; c = 0
}

inline swap(p, q) {
	x = id[p]; id[p] = id[q]; id[q] = x;
	x = val[p]; val[p] = val[q]; val[q] = x;
#ifdef APART
	x = 0;
	do
	:: x < USERS ->
		if :: half[x] == p+1 -> half[x] = q+1 :: half[x] == q+1 -> half[x] = p+1 :: else fi;
		x++
	:: else -> break
	od;
#endif
	x = 0
}

/* send puts a mutation on its way. */
inline send(stamp, v) {
	k = MOVING - 1;
	assert(mid[k] == 0);
	do
	:: k > 0 && (mid[k-1] == 0 || mid[k-1] > stamp) -> mid[k] = mid[k-1]; mval[k] = mval[k-1]; k--
	:: else -> break
	od;
	mid[k] = stamp; mval[k] = v;
	k = 0
}

/* arrive: before replica r is read, any one mutation may reach it. */
inline arrive(r) {
	if
	:: skip
	:: mid[0] > id[r] -> id[r] = mid[0]; val[r] = mval[0]
	:: mid[1] > id[r] -> id[r] = mid[1]; val[r] = mval[1]
	:: mid[2] > id[r] -> id[r] = mid[2]; val[r] = mval[2]
	:: mid[3] > id[r] -> id[r] = mid[3]; val[r] = mval[3]
	:: mid[4] > id[r] -> id[r] = mid[4]; val[r] = mval[4]
	:: mid[5] > id[r] -> id[r] = mid[5]; val[r] = mval[5]
	:: mid[6] > id[r] -> id[r] = mid[6]; val[r] = mval[6]
	:: mid[7] > id[r] -> id[r] = mid[7]; val[r] = mval[7]
	fi
}

#define TAKE(r, stamp, v) if :: id[r] < stamp -> id[r] = stamp; val[r] = v :: else fi

/* spread: a quorum acknowledges the mutation. Which two it is, is open. */
inline spread(stamp, v) {
	if
	:: id[1] >= stamp
	:: id[1] < stamp -> TAKE(0, stamp, v); TAKE(1, stamp, v)
	:: id[1] < stamp && id[2] != id[1] -> TAKE(0, stamp, v); TAKE(2, stamp, v)
	:: id[0] < stamp && id[1] != id[0] -> TAKE(1, stamp, v); TAKE(2, stamp, v)
	fi
}

/* read: a QUORUM read of the cell into v by replicas i and j, with blocking read repair. */
inline read(v) {
	if :: i = 0; j = 1 :: id[2] != id[1] -> i = 0; j = 2 :: id[0] != id[1] -> i = 1; j = 2 fi;
	arrive(i);
	arrive(j);
	d_step {
		if :: id[i] >= id[j] -> k = i :: else -> k = j fi;
		v = val[k];
#ifndef NOREPAIR
		x = id[k];
		TAKE(i, x, v);
		TAKE(j, x, v);
		x = 0;
#endif
		k = 0
	}
}

#ifdef APART
/* firstHalf and secondHalf: the same, the replicas one after the other. */
inline firstHalf(stamp_, v) {
	if :: i = 0 :: id[1] != id[0] -> i = 1 :: id[2] != id[1] -> i = 2 fi;
	arrive(i);
	stamp_ = id[i]; v = val[i]; half[a] = i + 1
}
inline secondHalf(stamp_, v) {
	if :: half[a] != 1 -> j = 0 :: half[a] != 2 -> j = 1 :: half[a] != 3 -> j = 2 fi;
	arrive(j);
	i = half[a] - 1;
	if :: id[j] > stamp_ -> stamp_ = id[j]; v = val[j] :: else fi;
#ifndef NOREPAIR
	TAKE(i, stamp_, v);
	TAKE(j, stamp_, v);
#endif
	half[a] = 0
}
#endif

/* setT is a term change: I1, I6 and I7 are asserted with each. */
inline setT(a) {
	INNER(registers, lwt[a].base > T.base && lwt[a].head >= T.head && lwt[a].head <= guard + 1);
	INNER(dirty_rule, lwt[a].dirty || !T.dirty || lwt[a].just);
	if
	:: !lwt[a].dirty ->
		do
		:: k < MOVING ->
			INNER(clean_below, mid[k] == 0 || mid[k] >= lwt[a].base || id[1] >= mid[k] || lwt[a].head == T.head);
			k++
		:: else -> k = 0; break
		od
	:: else
	fi;
	x = T.head;
#ifdef LOOSE
	P.base = T.base; P.head = T.head; P.dirty = T.dirty; P.owner = T.owner;
	loose = 1;
#endif
	T.base = lwt[a].base; T.head = lwt[a].head; T.dirty = lwt[a].dirty; T.owner = lwt[a].owner;
	if
	:: T.owner == NONE && T.head < REFS && T.head > x -> seen1[T.head] = T.base; soiled1[T.head] = T.dirty
	:: T.owner == NONE && T.head < REFS && T.head == x -> seen2[T.head] = T.base; soiled2[T.head] = T.dirty
	:: else
	fi;
	x = 0;
	do
	:: k < USERS -> if :: !ten[k].open && wroteTo[k] < T.base -> wrote[k] = 0; wroteTo[k] = 0 :: else fi; k++
	:: else -> k = 0; break
	od
}

/* firm: the newest T stands on a quorum. */
inline firm() {
#ifdef LOOSE
	loose = 0; P.base = 0; P.head = 0; P.dirty = 0; P.owner = 0
#else
	skip
#endif
}

/* grantFirm: the issuer of an Enqueue hears that it was granted. */
inline grantFirm() {
#ifndef NEAR
	firm()
#else
	skip
#endif
}

/* endFirm: the issuer of another LWT hears that it was applied. */
inline endFirm() {
#ifndef NEARALL
	firm()
#else
	skip
#endif
}

/* enqueue appends references to the queue. */
inline enqueue(a) {
	x = 1;
	do
	:: x <= lwt[a].n -> assert(guard + x < REFS); sessOf[guard + x] = lwt[a].sess; x++
	:: else -> x = 0; break
	od;
	if
	:: lwt[a].n > 1 -> blockFirst = guard + 1; blockLast = guard + lwt[a].n
	:: lwt[a].kind == EXTEND -> blockLast = guard + 1
	:: else
	fi;
	guard = guard + lwt[a].n
}

#ifdef C1
#define CONDITION(a) (lwt[a].ref != 0 -> T.head <= lwt[a].ref : T.base == lwt[a].b)
#else
#ifdef C3
#define CONDITION(a) (lwt[a].ref != 0 -> T.head <= lwt[a].ref && (T.head == lwt[a].ref -> OWNER(T) == lwt[a].g : 1) : T.base == lwt[a].b)
#else
#define CONDITION(a) (T.base == lwt[a].b)
#endif
#endif
#define OWNER(r) (r.owner != NONE -> r.owner : sessOf[r.head])

/* clear empties a slot. */
inline clear(a) {
	lwt[a].kind = 0; lwt[a].g = 0; lwt[a].b = 0; lwt[a].base = 0; lwt[a].head = 0; lwt[a].dirty = 0;
	lwt[a].owner = 0; lwt[a].sess = 0; lwt[a].n = 0; lwt[a].ref = 0; lwt[a].just = 0
}

/* decide: Paxos decides the LWT in slot a. A round first puts the commit before on a quorum. */
inline decide(a) {
	firm();
	if
	:: (lwt[a].kind == TERM || lwt[a].g == guard) && (lwt[a].kind == APPEND || CONDITION(a)) ->
		if :: lwt[a].kind != TERM -> enqueue(a) :: else fi;
		if :: lwt[a].kind != APPEND -> setT(a) :: else fi;
		printf("    the LWT of %c is applied: guard %d, base %d, head %d, dirty %d\n", 'A' + a, guard, T.base, T.head, T.dirty);
		lwt[a].kind = APPLIED;
		lwt[a].b = 0; lwt[a].head = 0; lwt[a].owner = 0; lwt[a].sess = 0; lwt[a].ref = 0; lwt[a].just = 0
	:: else ->
		printf("    the LWT of %c is refused\n", 'A' + a);
		clear(a); lwt[a].kind = REFUSED
	fi
}

/* enter: a term's first user, or the next one in a block, may act from here on. */
inline enter(a, s, newbase, r) {
	do
	:: k < USERS ->
#ifndef STRICT
		INNER(two_holders, k == a || inside[k] == 0 || inside[k] == r || lapsed[s] || lapsed[sessOfUser[k]]);
#endif
		k++
	:: else -> k = 0; break
	od;
	inside[a] = r;
	if
	:: newbase > topBase -> topBase = newbase; topRef = r
	:: newbase == topBase && r > topRef -> topRef = r
	:: else
	fi
}

/* report: a client of reference r, term b, is told of success. */
inline report(atbase, r) {
	HOLDS(exclusivity, topBase < atbase || (topBase == atbase && topRef <= r));
	HOLDS(order, r >= told);
	if :: atbase > topBase -> topBase = atbase; topRef = r :: else fi;
	told = r
}

/* stamped: tenure u writes with a stamp. All stamps of one window are one tenure's, and above all lower windows'. */
inline stamped(u, ofbase, mark) {
	INNER(windows, mark < ofbase + W - 2 && !(wrote[u] == ofbase && mark <= wroteTo[u]));
	do
	:: k < USERS ->
		INNER(windows, k == u || wrote[k] == 0 || (wrote[k] <= ofbase && wroteTo[k] < ofbase) || mark < wrote[k]);
		k++
	:: else -> k = 0; break
	od;
	wrote[u] = ofbase; wroteTo[u] = mark
}
