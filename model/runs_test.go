package model

// run is one search: a model, a cast and perhaps a fault.
type run struct {
	name   string // and of its counter-example in testdata
	what   string // what is different from the protocol, or what the scope is
	file   string
	flags  string // for Spin: the cast and the fault
	breaks string // the property that must break, "" for none
	scope  scope  // how much there is to search
}

// scope is how much a search has before it.
type scope uint8

// The scopes. All but the small ones are searched with -large only.
const (
	smallScope scope = iota // seconds
	largeScope              // minutes
	vastScope               // more than 4 GB hold: marked in a table of bits, until the time is over
)

// runs lists all searches.
func runs() []run {
	var list []run
	list = append(list, goodRuns()...)
	list = append(list, largeRuns()...)
	list = append(list, vastRuns()...)
	list = append(list, faults()...)
	list = append(list, blockFaults()...)
	list = append(list, loanFaults()...)
	list = append(list, toldFaults()...)
	return append(list, paperRuns()...)
}

// goodRuns are the protocol as it is.
func goodRuns() []run {
	const music = "music.pml"
	return []run{
		{"lease", "the session lease, 14 ticks", "lease.pml", "", "", smallScope},
		{"two", "two users with a put each, the first one's session may end", music, "-DTWO -DPB=1", "", smallScope},
		{"renewed", "the same, the first one's term is renewed", music, "-DRENEWED", "", smallScope},
		{"swept", "the same, the second may give its reference up, its proxy sweeps", music, "-DSWEPT -DABANDON", "", smallScope},
		{"strict", "two users, no leases, QUORUM check after each operation", music, "-DTWO -DSTRICT -DPA=1", "", smallScope},
		{"block", "a block of two, another user, a preemptor", music, "-DBLOCK", "", smallScope},
		{"block-taken", "a block of two whose client goes elsewhere", music, "-DBLOCKTAKEN -DPB=1", "", smallScope},
		{"loan", "a loan with a run of two, a waiter at the lender, another session", "loan.pml", "-DEND=6 -DLAPSE=5", "", smallScope},
	}
}

// largeRuns are the protocol as it is, at scopes that take minutes; and two faults that the other rules make up for.
func largeRuns() []run {
	const music = "music.pml"
	return []run{
		{"lease-long", "the session lease, 40 ticks", "lease.pml", "-DEND=40", "", largeScope},
		{"three", "three users, the first one's session may end", music, "-DTHREE -DLAPSES=1", "", largeScope},
		{"three-waiter", "three users, the second one's session may end", music, "-DTHREE -DLAPSES=2", "", largeScope},
		{"taken", "the client goes to a second proxy and to a third, two sessions may end", music, "-DTAKEN -DPB=1", "", largeScope},
		{"taken-apart", "the same, less a put, the replicas of a read one after the other", music, "-DTAKEN -DAPART", "", largeScope},
		{"taken-over", "the client goes to a second proxy, another waits, a preemptor", music, "-DTAKENOVER", "", largeScope},
		{"two-apart", "two users, the replicas of a read one after the other", music, "-DTWO -DPB=1 -DAPART", "", largeScope},
		{"two-jump", "two users, clocks that jump ahead", music, "-DTWO -DPB=1 -DJUMP", "", largeScope},
		{"two-no-repair", "two users, no read repair", music, "-DTWO -DPB=1 -DNOREPAIR", "", largeScope},
		{"two-loose", "two users, the newest T perhaps on a minority", music, "-DTWO -DPB=1 -DLOOSE", "", largeScope},
		{"two-near", "two users, an Enqueue that grants is committed in one data centre", music, "-DTWO -DPB=1 -DNEAR", "", largeScope},
		{"two-near-all", "two users, every LWT is committed in one data centre", music, "-DTWO -DPB=1 -DNEARALL", "", largeScope},
		{"strict-near", "no leases, an Enqueue that grants is committed in one data centre", music, "-DTWO -DSTRICT -DNEAR -DPA=1", "", largeScope},
		{"two-fails", "two users, a synchronise may fail and is done again", music, "-DTWO -DPB=1 -DFAILS=1", "", largeScope},
		{"two-deletes", "two users, the first one deletes what there is", music, "-DTWO -DPB=1 -DDELETES -DINITIAL", "", largeScope},
		{"two-puts", "two users, the first with two puts", music, "-DTWO -DPA=2 -DPB=1", "", largeScope},
		{"renewed-puts", "the first one's term is renewed, both put", music, "-DRENEWED -DPB=1", "", largeScope},
		{"swept-puts", "the second one's proxy sweeps, both put", music, "-DSWEPT -DABANDON -DPB=1", "", largeScope},
		{"strict-puts", "no leases, both put", music, "-DTWO -DSTRICT -DPB=1", "", largeScope},
		{"strict-taken", "no leases, the client goes to a second proxy and to a third", music, "-DTAKEN -DSTRICT", "", largeScope},
		{"block-puts", "a block of two with a put each, another user, a preemptor", music, "-DBLOCK -DPB=1", "", largeScope},
		{"block-begins-dirty", "a block of two after a user whose session ends", music, "-DBLOCKDIRTY", "", largeScope},
		{"block-strict", "a block of two without leases", music, "-DBLOCK -DSTRICT", "", largeScope},
		{"block-extended", "a block of two that is extended by a third, another user", music, "-DEXTENDED -DPA=1", "", largeScope},
		{"block-forgets", "harmless: an extension of unknown fate is forgotten, but the sweep is dirty", music, "-DEXTFORGET -DEXTENDED -DUSERS=6", "", largeScope},
		{"release-forgets", "harmless: an own release of unknown fate is forgotten, but the sweep is dirty", music, "-DRELFORGET -DSWEPT -DPB=1", "", largeScope},
		{"loan-two", "two loans with a run of two; the borrower may end", "loan.pml", "-DLOANS=2 -DDIES", "", largeScope},
		{"loan-alone", "two loans without a run; the borrower may end", "loan.pml", "-DLOANS=2 -DALONE -DDIES", "", largeScope},
		{"c3-base", "not found: takeover of the head without IF base = b", music, "-DC3 -DTAKEN -DPB=1", "", largeScope},
	}
}

// vastRuns are the protocol as it is, at scopes that no search in 4 GB ends which remembers each state.
func vastRuns() []run {
	const music = "music.pml"
	return []run{
		{"three-dead", "three users, the first two sessions may end", music, "-DTHREE -DLAPSES=1 -DALSO=2", "", vastScope},
		{"three-puts", "three users with a put each, the first one's session may end", music, "-DTHREE -DLAPSES=1 -DPB=1 -DPC=1", "", vastScope},
		{"taken-puts", "the client goes to a second proxy and to a third, and puts at each, two sessions may end", music, "-DTAKEN -DPB=1 -DPC=1", "", vastScope},
		{"taken-over-puts", "the client goes to a second proxy, another waits, all put, a preemptor", music, "-DTAKENOVER -DPB=1 -DPC=1", "", vastScope},
		{"two-rough", "two users with a put each; clocks jump, replicas of a read one after the other, T on a minority, a synchronise fails", music, "-DTWO -DPB=1 -DJUMP -DAPART -DLOOSE -DFAILS=1", "", vastScope},
		{"strict-taken-puts", "no leases, the client goes to a second proxy and to a third, and puts at each", music, "-DTAKEN -DSTRICT -DPB=1 -DPC=1", "", vastScope},
		{"strict-three", "three users without leases", music, "-DTHREE -DLAPSES=1 -DSTRICT", "", vastScope},
		{"block-all-puts", "a block of two and another user with a put each, a preemptor", music, "-DBLOCK -DPB=1 -DPC=1", "", vastScope},
		{"extended-puts", "a block of two that is extended by a third, all put, another user", music, "-DEXTENDED -DPA=1 -DPB=1 -DPC=1", "", vastScope},
	}
}

// faults are the known-bad variants of docs/protocol.md 6.
func faults() []run {
	const music = "music.pml"
	return []run{
		{"c1", "release and preempt IF head <= r", music, "-DC1 -DTAKENOVER -DPB=1", "registers", smallScope},
		{"c2", "a preemptor that trusts a stale view of who is head", music, "-DC2 -DTHREE -DLAPSES=2", "two_holders", smallScope},
		{"c3", "takeover without IF base = b, of a reference that waits", music, "-DC3 -DWAITING -DTAKENWAITER", "two_holders", smallScope},
		{"c5", "a late beat revives a session", music, "-DC5 -DTWO", "exclusivity", smallScope},
		{"c5-resume", "the acknowledgement of a late beat prolongs a lease that is over", "lease.pml", "-DRESUME", "alive", smallScope},
		{"c5-from-ack", "the lease counted from the acknowledgement", "lease.pml", "-DFROMACK", "alive", smallScope},
		{"c5-from-start", "the observer counts from the start of its first read", "lease.pml", "-DFROMSTART", "alive", smallScope},
		{"c5-wall", "beats stamped by a clock that stepped back", "lease.pml", "-DWALL", "alive", smallScope},
		{"c6", "release clean before the synchronise", music, "-DC6 -DTHREE -DLAPSES=1", "dirty_rule", smallScope},
		{"c6-abandon", "a reference given up at a dirty head is released clean", music, "-DABANDONCLEAN -DABANDON -DSWEPT", "dirty_rule", smallScope},
		{"c7", "release clean with a put of unknown outcome", music, "-DC7 -DTWO", "clean_below", smallScope},
		{"c9", "get with an unsettled put of the same term", music, "-DC9 -DTWO", "latest_state", smallScope},
		{"c9-no-repair", "the same without read repair", music, "-DC9 -DNOREPAIR -DTWO", "latest_state", smallScope},
		{"c13-fence-first", "synchronise: the fence is acknowledged before the cells are sent", music, "-DFENCEFIRST -DTAKEN -DINITIAL -DPA=0", "latest_state", smallScope},
		{"c13-no-fence", "synchronise writes only what it read", music, "-DNOFENCE -DTWO", "clean_below", smallScope},
		{"c14-no-dirty", "preempt leaves dirty as it is", music, "-DNODIRTY -DTWO", "clean_below", smallScope},
		{"c14-no-check", "a client is told without a look at the lease", music, "-DNOCHECK -DTWO", "exclusivity", smallScope},
		{"c14-rows", "a row per reference, read at one replica", music, "-DROWS -DTWO", "two_holders", smallScope},
		{"c15", "a reference polled again after its term", music, "-DC15 -DTWO", "two_holders", smallScope},
		{"c16", "an acknowledgement after its time is told", music, "-DC16 -DTWO", "latest_state", smallScope},
		{"m6-no-repair", "strict mode without read repair on the lock row", music, "-DSTRICT -DNOREPAIR -DTWO", "exclusivity", smallScope},
		{"m6-local-dirty", "strict mode, a dirty term trusts one replica", music, "-DSTRICT -DLOCALDIRTY -DTWO", "exclusivity", smallScope},
		{"m6-near", "strict mode, every LWT is committed in one data centre", music, "-DSTRICT -DNEARALL -DTAKEN", "exclusivity", smallScope},
		{"sweep-clean", "a proxy's sweep of its own forgotten head is as clean as T", music, "-DSWEEPCLEAN -DSWEPT -DPB=1", "clean_below", smallScope},
		{"sweep-forgets", "the same, and an own release of unknown fate is forgotten", music, "-DRELFORGET -DSWEEPCLEAN -DSWEPT -DPB=1", "clean_below", smallScope},
	}
}

// blockFaults are the known-bad variants of docs/protocol.md 3.17.
func blockFaults() []run {
	const music = "music.pml"
	return []run{
		{"block-take", "a reference inside a dead owner's block is taken over", music, "-DBLKTAKE -DBLOCKTAKEN -DPB=1", "order", smallScope},
		{"block-earlier", "a reference below the current one is still served", music, "-DEARLIER -DBLOCK", "two_holders", smallScope},
		{"block-no-drain", "hand-over with a put in flight", music, "-DNODRAIN -DBLOCK", "exclusivity", smallScope},
		{"block-settle", "unsettled is not inherited", music, "-DBLKSETTLE -DBLOCK", "clean_below", smallScope},
		{"block-dirty", "dirty is not inherited", music, "-DBLKDIRTY -DBLOCKDIRTY", "clean_below", smallScope},
		{"block-seq", "the count of stamps starts anew at the hand-over", music, "-DBLKSEQ -DBLOCK -DPB=1", "windows", smallScope},
		{"block-fence", "synchronise in the block fences at base", music, "-DBLKFENCE -DBLOCK", "clean_below", smallScope},
		{"block-presume", "an extension of unknown fate is counted at the release", music, "-DEXTPRESUME -DEXTENDED", "registers", smallScope},
	}
}

// loanFaults are the known-bad variants of docs/protocol.md 3.21.
func loanFaults() []run {
	const loan = "loan.pml"
	return []run{
		{"loan-not-in-flight", "what follows does not wait for a loan", loan, "-DNOTINFLIGHT", "order", smallScope},
		{"loan-untimed", "success is told however much time has passed", loan, "-DUNTIMED", "exclusivity", smallScope},
		{"loan-from-arrival", "the lent time counts from the arrival of the loan", loan, "-DFROMARRIVAL", "order", smallScope},
		{"loan-beyond-timeout", "the lent time is longer than the lender waits", loan, "-DLENT=T+3", "order", smallScope},
		{"loan-beyond-session", "the lent time is longer than what is left of the lender's lease", loan, "-DSESSIONFORGOTTEN", "order", smallScope},
		{"loan-unknown-told", "a put of unknown outcome under a loan is given back as known", loan, "-DUNKNOWNTOLD", "latest_state", smallScope},
		{"loan-stamps-kept", "the lender uses stamps that it has lent", loan, "-DSTAMPSKEPT", "latest_state", smallScope},
		{"loan-beside-put", "a loan is lent while a put is in flight at the lender", loan, "-DBESIDEPUT", "exclusivity", smallScope},
		{"loan-late", "the return of a loan is taken for that of the next one", loan, "-DLATE -DLOANS=2 -DALONE", "latest_state", smallScope},
		{"run-in-flight", "the lock is passed on with a put in flight", loan, "-DINFLIGHT", "exclusivity", smallScope},
		{"run-kept", "the references of a run outlive a loan that did not come back", loan, "-DRUNKEPT", "order", smallScope},
	}
}

// toldFaults are those of the faults again that break an inner property first, with only the properties of what clients are told.
func toldFaults() []run {
	const music = "music.pml"
	return []run{
		{"c1-told", "c1, of what clients are told", music, "-DC1 -DTAKENOVER -DPB=1 -DTOLD", "exclusivity", largeScope},
		{"c2-told", "c2, of what clients are told", music, "-DC2 -DTHREE -DLAPSES=2 -DTOLD", "exclusivity", largeScope},
		{"c3-told", "c3, of what clients are told", music, "-DC3 -DWAITING -DTAKENWAITER -DTOLD", "exclusivity", largeScope},
		{"c6-told", "c6, of what clients are told", music, "-DC6 -DTHREE -DLAPSES=1 -DTOLD", "latest_state", largeScope},
		{"c6-abandon-told", "c6-abandon with a third user, of what clients are told", music, "-DABANDONCLEAN -DABANDON -DSWEPT -DTHIRD -DTOLD", "latest_state", largeScope},
		{"c7-told", "c7, of what clients are told", music, "-DC7 -DTWO -DTOLD", "latest_state", largeScope},
		{"c13-no-fence-told", "c13-no-fence, of what clients are told", music, "-DNOFENCE -DTWO -DTOLD", "latest_state", largeScope},
		{"c14-no-dirty-told", "c14-no-dirty, of what clients are told", music, "-DNODIRTY -DTWO -DTOLD", "latest_state", largeScope},
		{"c14-rows-told", "c14-rows, of what clients are told", music, "-DROWS -DTWO -DTOLD", "exclusivity", largeScope},
		{"c15-told", "c15, of what clients are told", music, "-DC15 -DTWO -DTOLD", "exclusivity", largeScope},
		{"sweep-clean-told", "sweep-clean with a third user, of what clients are told", music, "-DSWEEPCLEAN -DSWEPT -DTHIRD -DPA=0 -DPB=1 -DTOLD", "latest_state", largeScope},
		{"block-earlier-told", "block-earlier, of what clients are told", music, "-DEARLIER -DBLOCK -DTOLD", "exclusivity", largeScope},
		{"block-settle-told", "block-settle, of what clients are told", music, "-DBLKSETTLE -DBLOCK -DTOLD", "latest_state", largeScope},
		{"block-dirty-told", "block-dirty, of what clients are told", music, "-DBLKDIRTY -DBLOCKDIRTY -DTOLD", "latest_state", largeScope},
		{"block-seq-told", "block-seq, of what clients are told", music, "-DBLKSEQ -DBLOCK -DPB=1 -DTOLD", "latest_state", largeScope},
		{"block-fence-told", "block-fence, of what clients are told", music, "-DBLKFENCE -DBLOCK -DTOLD", "latest_state", largeScope},
	}
}

// paperRuns are the protocol of the paper.
func paperRuns() []run {
	const paper = "paper.pml"
	return []run{
		{"paper-prefix", "as the paper assumes it: replicas of the lock store hold a prefix", paper, "-DPREFIX", "", smallScope},
		{"paper-quorum-peek", "on Cassandra, but the lock is granted by a QUORUM read", paper, "-DQUORUMPEEK", "", smallScope},
		{"paper-two-holders", "on Cassandra: a replica may lack an earlier enqueue", paper, "-DLATEST", "two_holders", smallScope},
		{"paper-lost-put", "the same, asked for the data", paper, "-DLATEST -DTOLD", "latest_state", smallScope},
		{"paper-false-ack", "the paper's assumption, a forced release of a living client", paper, "-DPREFIX -DFORCE", "exclusivity", smallScope},
		{"paper-absent", "the same, asked for the data of a key without a value", paper, "-DPREFIX -DFORCE -DLATEST", "latest_state", smallScope},
		{"paper-forced", "the same, asked for the data of a key that has a value", paper, "-DPREFIX -DFORCE -DLATEST -DINITIAL", "", largeScope},
		{"paper-gave-up", "a client releases after a put without an answer, against the paper's rule", paper, "-DPREFIX -DGIVEUP", "latest_state", smallScope},
	}
}
