/* Loans and runs (docs/protocol.md 3.21), beside music.pml, in which a user's proxy is always its session's.
 *
 * References 1, 2 and 3 are of a block of session y, 4 of session z. The clients of 1 and 2 are at the borrower p, that of 3
 * at y's own proxy. y lends p the right to put and get under 1, with the run 1, 2; it may lend a second time. Messages
 * are late or lost. All count on ONE clock, as in lease.pml. p may end at any time, and y is found dead when its lease is over.
 *
 * One cell: a put may reach its quorum at any time after it was sent, a get and a Synch are atomic there. A user puts once.
 * Left out: changes of the table, leases of clients, the second that a loan is used for at most, more than one block.
 */
#define T 3                     /* the operation timeout of y, in ticks */
#ifndef LENT
#define LENT (T - 1)            /* the lent time */
#endif
#ifndef LAPSE
#define LAPSE 6                 /* the session of y is valid before that, and found dead from then on */
#endif
#ifndef END
#define END 9
#endif
#ifndef LOANS
#define LOANS 1                 /* that p asks for */
#endif
#ifdef ALONE                    /* nobody waits at p */
#define RUN 0
#else
#define RUN 1
#endif
#define NOBODY 255
#define USERS 5

byte now;

/* The cell, and the puts by reference. */
byte value, stamp;              /* the one with the highest stamp that is on a quorum: whose it is, 0 is what was there before */
byte stampOf[USERS];
bit sent[USERS], landed[USERS];

/* What clients were told, or know. */
byte entered = 1;               /* the highest reference that was granted */
byte told;                      /* the highest one whose put was acknowledged */
bit excluded[USERS];            /* puts that a later user did not see */

/* The session y. */
byte holder = 1;                /* 0: none at present */
byte last = 1;                  /* the highest reference that was handed out */
bit out, hasRun;                /* a loan is out, with the run */
byte number, lentAt;
bit unsettled, left;            /* a put may still surface; the block was released or preempted */
byte seq, own;                  /* stamps used; the user whose put is in flight here */

/* The session z. */
bit clean, in;

/* Messages: the loan, its return. */
byte loan, loanRef, loanStamp, loanFor;
bit loanRun;
byte back, backRef, backWaits;
bit backUnknown;

/* The proxy p. */
byte asked = NOBODY, asks;      /* the time at which the question was sent */
byte has, cur, next, until;     /* the number of its loan */
bit mayPass, unknown;
byte flight, waits;             /* users: whose put is in flight, whose put y has to judge */

byte exclusivity = 1, order = 1, latest_state = 1;
#define HOLDS(property, condition) property = (condition); assert(property)
#define ALIVE (now < LAPSE)

mtype = { y, p, z };

/* A client is told that its put is done, or is granted the lock. */
inline tell(r, who) {
	printf("t=%d: %e tells user %d that its put is done\n", now, who, r);
	HOLDS(exclusivity, entered <= r && !excluded[r]);
	told = (r > told -> r : told)
}
inline grant(r, who) {
	printf("t=%d: %e grants reference %d\n", now, who, r);
	HOLDS(order, r > entered);
	entered = r
}

/* A get shows nothing older than what was acknowledged, and nothing that was excluded: what it does not show of earlier users. */
inline get(r, who) {
	printf("t=%d: user %d reads at %e what user %d put\n", now, r, who, value);
	HOLDS(latest_state, value >= told && !excluded[value]);
	for (i : 1 .. USERS - 1) {
		if :: sent[i] && i < r && i != value -> excluded[i] = 1 :: else fi
	}
	i = 0
}

active proctype clock() {
	do
	:: d_step { now < END -> now++ }
	od
}

inline land(r) {
	landed[r] = 1;
	printf("t=%d: the put of user %d reaches a quorum\n", now, r);
	if :: stampOf[r] > stamp -> stamp = stampOf[r]; value = r :: else fi
}

active proctype store() {
	do
	:: d_step { sent[1] && !landed[1] -> land(1) }
	:: d_step { sent[2] && !landed[2] -> land(2) }
	:: d_step { sent[3] && !landed[3] -> land(3) }
	:: d_step { sent[4] && !landed[4] -> land(4) }
	od
}

inline put(r, s) { sent[r] = 1; stampOf[r] = s }

#ifdef UNTIMED                  /* success is told however much time has passed */
#define INTIME 1
#else
#define INTIME (now < until)
#endif
#define USABLE (has && now < until && !unknown && !waits)

active proctype borrower() {
	byte i;
	do
	:: d_step { !has && asked == NOBODY && !loan && asks < LOANS -> asked = now; asks++; printf("t=%d: p asks for a loan\n", now) }
	:: d_step {
		loan ->
		has = loan; cur = loanRef; next = loanStamp; mayPass = loanRun;
#ifdef FROMARRIVAL
		until = now + loanFor;
#else
		until = asked + loanFor;
#endif
		printf("t=%d: p has loan %d, until %d\n", now, loan, until);
		loan = 0; loanRef = 0; loanStamp = 0; loanFor = 0; loanRun = 0; asked = NOBODY
	   }
	:: d_step { USABLE && !flight && !sent[cur] -> put(cur, next); flight = cur; next++; printf("t=%d: p puts for user %d\n", now, cur) }
	:: d_step {
		flight && landed[flight] ->
		if
		:: INTIME -> tell(flight, p)
		:: else -> waits = flight
		fi;
		flight = 0
	   }
	:: d_step { flight -> unknown = 1; flight = 0; printf("t=%d: p does not know what became of the put\n", now) }
	:: d_step { USABLE && !flight -> get(cur, p) }
#ifdef INFLIGHT                 /* the lock is passed on while a put is in flight */
	:: d_step { USABLE && mayPass && cur == 1 -> grant(2, p); cur = 2 }
#else
	:: d_step { USABLE && mayPass && cur == 1 && !flight -> grant(2, p); cur = 2 }
#endif
	:: d_step {
		has && !flight && !back ->
		printf("t=%d: p gives loan %d back, the lock is of user %d\n", now, has, cur);
		back = has; backRef = cur; backWaits = waits; backUnknown = unknown;
#ifdef UNKNOWNTOLD
		backUnknown = 0;
#endif
		has = 0; unknown = 0; waits = 0; cur = 0; next = 0; until = 0; mayPass = 0
	   }
#ifdef DIES
	:: d_step {
		has || asked != NOBODY ->
		printf("t=%d: p ends\n", now);
		has = 0; unknown = 0; waits = 0; cur = 0; next = 0; until = 0; mayPass = 0; flight = 0; asked = NOBODY; asks = LOANS;
		loan = 0; loanRef = 0; loanStamp = 0; loanFor = 0; loanRun = 0
	   }
#endif
	od
}

#ifdef NOTINFLIGHT              /* what follows does not wait for a loan */
#define IDLE (!own)
#else
#define IDLE (!out && !own)
#endif
#ifdef BESIDEPUT                /* it lends while a put is in flight there */
#define MAYLEND (!out)
#else
#define MAYLEND IDLE
#endif
#ifdef LATE                     /* a return of an earlier loan is taken for that of a later one */
#define OF(n) 1
#else
#define OF(n) (n == number)
#endif

/* The run is over: the borrower has told which of its references has the lock, or nobody knows. */
inline known() {
	if
	:: hasRun && backRef == 2 -> holder = 2; last = 2
	:: else
	fi;
	hasRun = 0
}

active proctype lender() {
	byte i;
	do
	:: d_step {
		asked != NOBODY && !loan && MAYLEND && !unsettled && ALIVE && !left && holder == 1 ->
		out = 1; number++; lentAt = now;
		loan = number; loanRef = holder; loanStamp = seq + 1; loanRun = RUN; hasRun = RUN;
#ifdef SESSIONFORGOTTEN
		loanFor = LENT;
#else
		loanFor = (LAPSE - now < LENT -> LAPSE - now : LENT);
#endif
#ifndef STAMPSKEPT
		seq = seq + 2;
#endif
		printf("t=%d: y lends for %d\n", now, loanFor)
	   }
	:: d_step { loan -> loan = 0; loanRef = 0; loanStamp = 0; loanFor = 0; loanRun = 0; asked = NOBODY; printf("the loan is lost\n") }
	:: d_step {
		back ->
		if
		:: out && OF(back) ->
			out = 0;
			unsettled = unsettled || backUnknown;
			if
			:: backWaits && ALIVE && !left -> tell(backWaits, y)
			:: else
			fi;
			known();
			printf("t=%d: y has the loan back\n", now)
		:: else -> printf("t=%d: y drops a return\n", now)
		fi;
		back = 0; backRef = 0; backWaits = 0; backUnknown = 0
	   }
	:: d_step { back -> back = 0; backRef = 0; backWaits = 0; backUnknown = 0; printf("the return is lost\n") }
	:: d_step {
		out && now >= lentAt + T ->
		out = 0; unsettled = 1;
		printf("t=%d: y waits for the loan no longer\n", now);
#ifndef RUNKEPT
		if :: hasRun -> holder = 0; last = 2 :: else fi;
#endif
		hasRun = 0
	   }
	:: d_step { unsettled && IDLE && ALIVE && !left && holder -> seq++; stamp = seq; unsettled = 0; printf("t=%d: y synchronises\n", now) }
	:: d_step { IDLE && ALIVE && !left && last < 3 -> last++; grant(last, y); holder = last }
	:: d_step { IDLE && ALIVE && !left && holder && !sent[holder] -> seq++; put(holder, seq); own = holder; printf("t=%d: y puts for user %d\n", now, holder) }
	:: d_step { own && landed[own] -> if :: ALIVE && !left -> tell(own, y) :: else fi; own = 0 }
	:: d_step { own -> own = 0; unsettled = 1; printf("t=%d: y does not know what became of the put\n", now) }
	:: d_step { IDLE && !unsettled && ALIVE && !left && holder -> get(holder, y) }
	:: d_step { IDLE && ALIVE && !left -> left = 1; clean = !unsettled; printf("t=%d: y releases the block, clean=%d\n", now, clean) }
	od
}

active proctype successor() {
	byte i;
	do
	:: d_step { now >= LAPSE && !left -> left = 1; clean = 0; printf("t=%d: z preempts the block\n", now) }
	:: d_step {
		left && !in ->
		in = 1; grant(4, z);
		if :: !clean -> stamp = 100; printf("t=%d: z synchronises\n", now) :: else fi
	   }
	:: d_step { in && !sent[4] -> put(4, 101) }
	:: d_step { in && landed[4] && told < 4 -> tell(4, z) }
	:: d_step { in -> get(4, z) }
	od
}
