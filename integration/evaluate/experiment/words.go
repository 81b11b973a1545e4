package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// word is a name of the page, with what it stands for.
type word struct{ name, means string }

// rows are the names of rows: systems, and the ways in which they are used.
func rows() []word {
	return []word{
		{CassaEV, "the paper's: writes at ONE, and no lock (VIII-b)"},
		{QuorumWrite, "a write at QUORUM, and no lock"},
		{LWT, "one lightweight transaction (LWT), Cassandra's conditional write, and no lock"},
		{MUSIC, "the paper's algorithms, as a library over Cassandra"},
		{MSCP, "the paper's: MUSIC with puts by LWTs (VIII-b)"},
		{ZooKeeper, "the lock of Curator (the paper does not say by what its clients lock, or whether), and the values in ZooKeeper; the first put of a key is two writes, one that finds no node and one that makes it"},
		{MUSICOnZK, "MUSIC before its lock table: locks in ZooKeeper, values in Cassandra"},
		{Etcd, "the lock of etcd's own library, and the values in etcd"},
		{EtcdData, "the same lock, and the values in Cassandra"},
		{EachUpdate, "two LWTs for each update, instead of a section around all"},
		{Transaction, "the same by one transaction of Cassandra 6 (\"Accord\") for each update"},
		{Racing, "no lock: read, write by an LWT if nobody else has, or begin again"},
		{LockTable, "the lock table of the slides on MUSIC's locking service: a row a waiter, sorted by time"},
		{Bakery, "by reads and writes at QUORUM, after a blog post"},
		{Lease, "a row with a TTL, inserted and renewed by LWTs, after the blog post \"Consensus on Cassandra\" (the lease post)"},
		{Optimistic, "the first lock of a ScyllaDB blog post: everybody writes that he wants it, and who reads only himself has it"},
		{Heartbeat, "the second lock of that post: a row by an LWT, a heartbeat for each client, and a housekeeper that deletes rows without one"},
		{ShedLock, "the lock of the library ShedLock over Cassandra"},
		{Ours, "this product: `LOCK`, writes and reads `USING LOCK`, `UNLOCK`"},
		{newKey, "ours, where each section has a key that nobody has had before"},
		{knownKey, "ours, where each section has a key that its client has had a while before, and its proxy has given back"},
		{ourStays, "ours, where a client enters the same key again at once, while its proxy still keeps it: mostly without an LWT"},
		{ForUpdate, "ours, entered by `SELECT … FOR UPDATE`"},
		{Auto, "ours, by writes without `LOCK`, each of which is a section by itself"},
		{Strict, "ours on a table with `strict=true`: an operation is acknowledged by a read of the lock row, and no clock"},
		{queued, "ours, where a worker waits in the queue of a key instead of sleeping"},
		{pipelined, "ours, where a client sends puts without waiting for the answer to each"},
	}
}

// columns are words of other places.
func columns() []word {
	all := []word{{"a section", "enter, a put (unless it says what else), and leave"}}
	for _, p := range Profiles() {
		all = append(all, word{"profile " + p.Name, fmt.Sprintf("round trips of %g, %g and %g ms between sites 1 and 2, 1 and 3, 2 and 3 (paper, Table II)", inMS(p.RTT[0]), inMS(p.RTT[1]), inMS(p.RTT[2]))})
	}
	return append(all,
		word{"Paxos v1, v2", "Cassandra's `paxos_variant`: v1 is what the paper had"},
		word{"commit log periodic, batch", "whether a node acknowledges before it has written to its disk, or after it. It is batch where ZooKeeper or etcd are on the same machine, which write first, too"},
		word{"lost", "sections that the system itself ended or refused"},
		word{"unknown", "sections, or tries, that were not answered in time or ended by another error"},
		word{"alone", "what an LWT or a write at QUORUM takes that does only that, without a lock, in the ratio to the same system and in the same rounds"},
		word{"left out", "a row that fails in two rounds has no further ones and no ratios: the last column says why. What stands in it is of the rounds before"},
	)
}

// markdownWords is what the names of some figures stand for.
func (r *Report) markdownWords(b *strings.Builder) {
	b.WriteString("\n## Words\n\n\"The paper\" is Balasubramanian et al., \"MUSIC: Multi-Site Critical Sections over Geo-Distributed State\"; posts and slides are named where they are meant.\n\n| | |\n|---|---|\n")
	for _, w := range rows() {
		if slices.ContainsFunc(r.Figures, func(f *Figure) bool {
			return slices.ContainsFunc(f.Rows, func(row Row) bool { return row.System == w.name })
		}) {
			fmt.Fprintf(b, "| %s | %s |\n", w.name, w.means)
		}
	}
	for _, w := range columns() {
		fmt.Fprintf(b, "| *%s* | %s |\n", w.name, w.means)
	}
}
