/* The casts: which slots play what, in which session, with how many puts. Gets are never limited. */

#define CAST(slot, session, tenure) sessOfUser[slot] = session; tenOf[slot] = tenure
#define HELPER(slot, session, tenure) CAST(slot, session, tenure); left[slot] = 1
#ifndef PA
#define PA 1
#endif
#ifndef PB
#define PB 0
#endif
#ifndef PC
#define PC 0
#endif

init {
	atomic {
		T.base = 1; T.head = 1;
#ifdef INITIAL                  /* the cell exists */
		truth = 15; val[0] = 15; val[1] = 15; val[2] = 15; id[0] = 1; id[1] = 1; id[2] = 1;
#endif
		run world();
#ifdef TWO                      /* two users; the session of the first may end */
		CAST(0, 1, 0); CAST(1, 2, 1); HELPER(3, 4, 3); maylapse[1] = 1;
		run user(0, FULL, PA, 1); run user(1, FULL, PB, 1); run preemptor(3);
#endif
#ifdef THREE                    /* three users; the session LAPSES may end */
		CAST(0, 1, 0); CAST(1, 2, 1); CAST(2, 3, 2); HELPER(3, 4, 3); maylapse[LAPSES] = 1;
#ifdef ALSO
		maylapse[ALSO] = 1;
#endif
		run user(0, FULL, PA, 1); run user(1, FULL, PB, 1); run user(2, FULL, PC, 1); run preemptor(3);
#endif
#ifdef TAKEN                    /* the first user's client goes to another proxy, and from there to a third */
		CAST(0, 1, 0); CAST(1, 2, 1); CAST(2, 3, 2); maylapse[1] = 1; maylapse[2] = 1;
		run user(0, FULL, PA, 1); run user(1, OVER, PB, 0); run user(2, OVER, PC, 0);
#endif
#ifdef TAKENOVER                /* the first user's client goes to another proxy, others wait, and may preempt */
		CAST(0, 1, 0); CAST(1, 2, 1); CAST(2, 3, 2); HELPER(3, 4, 3); maylapse[1] = 1;
		run user(0, FULL, PA, 1); run user(1, OVER, PB, 0); run user(2, FULL, PC, 1); run preemptor(3);
#endif
#ifdef RENEWED                  /* two users; the first one's term is renewed */
		CAST(0, 1, 0); CAST(1, 2, 1); HELPER(3, 4, 3); HELPER(4, 1, 0); maylapse[1] = 1;
		run user(0, FULL, PA, 1); run user(1, FULL, PB, 1); run preemptor(3); run extender(4, 0);
#endif
#ifdef SWEPT                    /* two users; the proxy of the second sweeps up after itself. Perhaps a third user */
		CAST(0, 1, 0); CAST(1, 2, 1); CAST(2, 3, 2); HELPER(3, 4, 3); HELPER(4, 2, 4); maylapse[1] = 1;
		run user(0, FULL, PA, 1); run user(1, FULL, PB, 1); run preemptor(3); run sweeper(4);
#ifdef THIRD
		run user(2, FULL, PC, 1);
#endif
#endif
#ifdef BLOCK                    /* a block of two references, a user of another session, a preemptor */
		CAST(0, 1, 0); CAST(1, 1, 0); CAST(2, 2, 2); HELPER(3, 4, 3); maylapse[1] = 1;
		run user(0, FULL, PA, 2); run user(1, LOCAL, PB, 1); run user(2, FULL, PC, 1); run preemptor(3);
#endif
#ifdef BLOCKTAKEN               /* a block of two; the client of the first reference goes to another proxy */
		CAST(0, 1, 0); CAST(1, 1, 0); CAST(2, 2, 2); maylapse[1] = 1;
		run user(0, FULL, PA, 2); run user(1, LOCAL, PB, 1); run user(2, OVER, PC, 0);
#endif
#ifdef BLOCKDIRTY               /* a block after a user whose session ends, so that it begins dirty */
		CAST(0, 2, 0); CAST(1, 1, 1); CAST(2, 1, 1); HELPER(3, 4, 3); maylapse[2] = 1;
		run user(0, FULL, PA, 1); run user(1, FULL, PB, 2); run user(2, LOCAL, PC, 1); run preemptor(3);
#endif
#ifdef EXTENDED                 /* a block of two that is extended by a third, and a user of another session */
		CAST(0, 1, 0); CAST(1, 1, 0); CAST(2, 1, 0); CAST(3, 2, 3); HELPER(4, 1, 0); maylapse[1] = 1;
		run user(0, FULL, PA, 2); run user(1, LOCAL, PB, 1); run user(2, LOCAL, PC, 1); run user(3, FULL, 0, 1);
		run extender(4, 2);
#if USERS > 5
		HELPER(5, 1, 5);
		run sweeper(5);
#endif
#endif
#ifdef TAKENWAITER              /* a holder, and a waiter whose client goes to another proxy */
		CAST(0, 1, 0); CAST(1, 2, 1); CAST(2, 3, 2); HELPER(3, 4, 3); maylapse[2] = 1;
		run user(0, FULL, PA, 1); run user(1, FULL, PB, 1); run user(2, OVER, PC, 1); run preemptor(3);
#endif
	}
}
