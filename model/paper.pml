/* The protocol of the MUSIC paper (sections III and IV), on stores as Cassandra has them.
 *
 * The lock store: enqueue and dequeue are LWTs in one total order, the log. lsPeek reads the replica of the
 * caller's site. The paper assumes that a replica holds a prefix of the log ("standard sequential consistency",
 * III-B): PREFIX. Cassandra's replicas apply LWT commits independently of each other: what they hold is any subset,
 * with the one promise that a commit stands on a majority before the next one is proposed. That is the default here.
 *
 * The data store: a value cell and a synchFlag cell on three replicas, last write wins by (lockRef, time), as in
 * store.pml: mutations arrive just before a replica is read, or a quorum is counted. 0 is a value that is absent.
 * The client's rule is kept: a put that is not acknowledged is its last operation. What is left out: the retries
 * (the same value at a higher stamp), startTime and T, and clocks: time is a counter of the reference.
 */
#define T 8                     /* v2s(ref, time) = ref*T + time */
#define CLIENTS 2
#define REFS 5
#define LOG 6
#define MOVING 5
#define VALUE 0                 /* cells; their replicas are 3*cell, .. */
#define FLAG 1

byte guard;                     /* references given */
byte length;                       /* the log: a reference enqueued, or 16 + a reference dequeued */
byte log[LOG];
byte got[3];                    /* by site: which entries of the log its replica holds, a bit each */
bit dequeued[REFS];
byte id[6], val[6];             /* the replicas of the cells: the highest stamp, its value */
byte mid[10], mval[10];         /* mutations on their way, MOVING for each cell */
byte want[4];                   /* LWTs under way, by client; 3 is the releaser: a log entry, 255 for an enqueue */
byte refOf[4];

byte truth, maybe;              /* the observer: the true value; unacknowledged puts, a bit each */
byte inside[CLIENTS];
bit forced[REFS];               /* released by force */
byte two_holders = 1, exclusivity = 1, latest_state = 1;
byte i, j, k, x, h, m;             /* scratch inside one step */

#define HOLDS(property, condition) property = (condition); assert(property)
#define BIT(mask, n) (((mask) >> (n)) & 1)
#define WIDE(n) (BIT(got[0], n) + BIT(got[1], n) + BIT(got[2], n) >= 2)
#define NAME 'A' + a

/* peek: the first reference of the queue that the entries in mask show, 0 if none. */
inline peek(mask) {
	h = 0; x = 0;
	do
	:: k < length ->
		if :: BIT(mask, k) && log[k] >= 16 -> x = x | (1 << (log[k] - 16)) :: else fi;
		k++
	:: else -> k = 0; break
	od;
	do
	:: k < length ->
		if
		:: BIT(mask, k) && log[k] < 16 && !BIT(x, log[k]) && (h == 0 || log[k] < h) -> h = log[k]
		:: else
		fi;
		k++
	:: else -> k = 0; break
	od;
	x = 0; m = 0
}

/* The lockholder: first in the queue as all LWTs made it. */
#define LOCKHOLDER(r) (!dequeued[r] && (r < 2 || dequeued[1]) && (r < 3 || dequeued[2]) && (r < 4 || dequeued[3]))

inline swap(p, q) {
	x = id[p]; id[p] = id[q]; id[q] = x;
	x = val[p]; val[p] = val[q]; val[q] = x;
	x = 0
}
inline tidy(cell) {
	if :: id[3*cell] < id[3*cell+1] -> swap(3*cell, 3*cell+1) :: else fi;
	if :: id[3*cell+1] < id[3*cell+2] -> swap(3*cell+1, 3*cell+2) :: else fi;
	if :: id[3*cell] < id[3*cell+1] -> swap(3*cell, 3*cell+1) :: else fi;
	do
	:: mid[MOVING*cell] != 0 && mid[MOVING*cell] <= id[3*cell+2] ->
		do
		:: k < MOVING - 1 -> mid[MOVING*cell+k] = mid[MOVING*cell+k+1]; mval[MOVING*cell+k] = mval[MOVING*cell+k+1]; k++
		:: else -> mid[MOVING*cell+k] = 0; mval[MOVING*cell+k] = 0; k = 0; break
		od
	:: else -> break
	od;
	i = 0; j = 0
}
inline send(cell, stamp, v) {
	k = MOVING - 1;
	assert(mid[MOVING*cell+k] == 0);
	do
	:: k > 0 && (mid[MOVING*cell+k-1] == 0 || mid[MOVING*cell+k-1] > stamp) ->
		mid[MOVING*cell+k] = mid[MOVING*cell+k-1]; mval[MOVING*cell+k] = mval[MOVING*cell+k-1]; k--
	:: else -> break
	od;
	mid[MOVING*cell+k] = stamp; mval[MOVING*cell+k] = v;
	k = 0
}
#define COMES(cell, r, n) mid[MOVING*cell+n] > id[3*cell+r] -> id[3*cell+r] = mid[MOVING*cell+n]; val[3*cell+r] = mval[MOVING*cell+n]
inline arrive(cell, r) {
	if
	:: skip
	:: COMES(cell, r, 0)
	:: COMES(cell, r, 1)
	:: COMES(cell, r, 2)
	:: COMES(cell, r, 3)
	:: COMES(cell, r, 4)
	fi
}
#define TAKE(n, stamp, v) if :: id[n] < stamp -> id[n] = stamp; val[n] = v :: else fi
inline spread(cell, stamp, v) {
	if
	:: id[3*cell+1] >= stamp
	:: id[3*cell+1] < stamp -> TAKE(3*cell, stamp, v); TAKE(3*cell+1, stamp, v)
	:: id[3*cell+1] < stamp -> TAKE(3*cell, stamp, v); TAKE(3*cell+2, stamp, v)
	:: id[3*cell] < stamp -> TAKE(3*cell+1, stamp, v); TAKE(3*cell+2, stamp, v)
	fi
}
/* dsGetQuorum, with read repair */
inline read(cell, v) {
	if :: i = 0; j = 1 :: i = 0; j = 2 :: i = 1; j = 2 fi;
	arrive(cell, i);
	arrive(cell, j);
	d_step {
		if :: id[3*cell+i] >= id[3*cell+j] -> k = 3*cell+i :: else -> k = 3*cell+j fi;
		v = val[k]; x = id[k]; k = 0;
		TAKE(3*cell+i, x, v);
		TAKE(3*cell+j, x, v);
		x = 0;
		tidy(cell)
	}
}

/* decide: an LWT of slot a is decided. The commit before it stands on a majority. */
inline decide(a) {
	if
	:: want[a] == 255 ->
		guard++; refOf[a] = guard; log[length] = guard; length++;
		printf("    entry %d of the log: reference %d is enqueued\n", length, guard)
	:: want[a] != 255 && !dequeued[want[a]] ->
		dequeued[want[a]] = 1; log[length] = 16 + want[a]; length++;
		printf("    entry %d of the log: reference %d is dequeued\n", length, want[a]);
		if :: a == 3 -> forced[want[a]] = 1 :: else fi
	:: else
	fi;
	want[a] = 0
}
#define HEARD (want[a] == 0 && (length == 0 || WIDE(length-1)))

/* view: what acquireLock looks at; the other operations always look at their site. */
#ifdef QUORUMPEEK               /* the cure of gap 1: a quorum's view when the lock is granted */
#define VIEW if :: m = got[0] | got[1] :: m = got[0] | got[2] :: m = got[1] | got[2] fi
#else
#define VIEW m = got[a]
#endif

proctype client(byte a; byte puts) {
	byte r, v, stamp, time, flag;

	/* createLockRef */
	want[a] = 255;
	d_step { HEARD -> r = refOf[a]; printf("%c has reference %d\n", NAME, r) }

acquire:
	atomic {
		length > 0; VIEW;
		d_step { peek(m) }
		if
		:: h == r
		:: h != r && r > h -> h = 0; goto acquire      /* not yet */
		:: h != r && r < h -> h = 0; goto done         /* youAreNoLongerLockHolder */
		fi;
		h = 0;
		printf("%c at its site sees itself first\n", NAME)
	}
	atomic { read(FLAG, flag) }
	if
	:: flag == 0
	:: flag == 1 ->
		atomic {
			read(VALUE, v);
			d_step {
				printf("%c synchronises: reads %d\n", NAME, v);
				time++; stamp = r*T + time;
				if :: v != 0 -> send(VALUE, stamp, v) :: else -> stamp = 0 fi;   /* what is absent is not written */
				tidy(VALUE)
			}
		}
		atomic { spread(VALUE, stamp, v); d_step { tidy(VALUE); v = 0; time++; stamp = r*T + time; send(FLAG, stamp, 0) } }
		atomic { spread(FLAG, stamp, 0); d_step { tidy(FLAG); stamp = 0 } }
	fi;
	d_step {
		flag = 0; inside[a] = r;
		printf("%c holds the lock with reference %d\n", NAME, r);
#ifndef TOLD
		HOLDS(two_holders, inside[1-a] == 0 || forced[inside[1-a]] || forced[r])
#endif
	}

critical:
	if
	:: puts > 0 -> goto put
	:: goto get
	:: goto release
	fi;

put:	atomic {
		m = got[a];
		d_step { peek(m) }
		if
		:: h == r
		:: h > r -> h = 0; goto done
		:: h < r -> h = 0; goto critical
		fi;
		d_step {
			h = 0; puts--; v = 2*a + puts + 1;
			time++; stamp = r*T + time;
			send(VALUE, stamp, v); tidy(VALUE);
			maybe = maybe | (1 << v);
			printf("%c puts %d at stamp %d.%d\n", NAME, v, r, time)
		}
	}
	if
	:: atomic {
		spread(VALUE, stamp, v);
		d_step {
			tidy(VALUE);
			printf("%c is told: put %d is done\n", NAME, v);
#ifndef LATEST
			HOLDS(exclusivity, LOCKHOLDER(r));
#endif
			if :: LOCKHOLDER(r) -> truth = v; maybe = 0 :: else fi;
			v = 0; stamp = 0
		}
	   } -> goto critical
#ifdef GIVEUP                   /* against the paper's rule for clients: a put without an answer, then a release */
	:: d_step { v = 0; stamp = 0 } -> goto release
#endif
	fi;

get:	atomic {
		m = got[a];
		d_step { peek(m) }
		if
		:: h == r
		:: h > r -> h = 0; goto done
		:: h < r -> h = 0; goto critical
		fi;
		h = 0;
		read(VALUE, v)
	}
	d_step {
		printf("%c is told: the value is %d\n", NAME, v);
#ifndef LATEST
		HOLDS(exclusivity, LOCKHOLDER(r));
#endif
		if
		:: LOCKHOLDER(r) -> HOLDS(latest_state, v == truth || BIT(maybe, v)); truth = v; maybe = 0
		:: else
		fi;
		v = 0
	}
	goto critical;

release:
	atomic { inside[a] = 0; want[a] = r; printf("%c releases reference %d\n", NAME, r) }
	HEARD;
done:	atomic { inside[a] = 0; v = 0; stamp = 0; time = 0; puts = 0; flag = 0 }
}

#ifdef FORCE
/* forcedRelease by a replica at the third site, of whom it sees first, alive or not */
proctype releaser(byte a) {
	byte r, stamp;
	atomic {
		m = got[2];
		d_step { peek(m) }
		if :: h != 0 -> r = h; h = 0 fi;
		d_step { stamp = r*T + T - 1; send(FLAG, stamp, 1); printf("the third site takes reference %d for dead\n", r) }
	}
	atomic { spread(FLAG, stamp, 1); d_step { tidy(FLAG); want[a] = r; stamp = 0 } }
	HEARD
}
#endif

/* world decides LWTs and brings commits to the replicas of the lock store. */
#define DECIDE(a) :: d_step { want[a] != 0 && (length == 0 || WIDE(length-1)) -> decide(a) }
#ifdef PREFIX
#define MAYCOME(s, n) (n == 0 || BIT(got[s], n-1))
#else
#define MAYCOME(s, n) true
#endif
#define BRING(s, n) :: d_step { n < length && !BIT(got[s], n) && MAYCOME(s, n) -> printf("    the replica at %c's site takes entry %d\n", 'A' + s, n + 1); got[s] = got[s] | (1 << n) }
proctype world() {
	do
	DECIDE(0) DECIDE(1) DECIDE(3)
	BRING(0, 0) BRING(0, 1) BRING(0, 2) BRING(0, 3) BRING(0, 4)
	BRING(1, 0) BRING(1, 1) BRING(1, 2) BRING(1, 3) BRING(1, 4)
	BRING(2, 0) BRING(2, 1) BRING(2, 2) BRING(2, 3) BRING(2, 4)
	od
}

init {
	atomic {
#ifdef INITIAL                  /* the key has a value */
		truth = 7; val[0] = 7; val[1] = 7; val[2] = 7; id[0] = 1; id[1] = 1; id[2] = 1;
#endif
		run world(); run client(0, 1); run client(1, 1);
#ifdef FORCE
		run releaser(3);
#endif
	}
}
