package safety

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"music/integration/evaluate/bakery"
	"music/integration/evaluate/curator"
	"music/integration/evaluate/election"
	"music/integration/evaluate/heartbeat"
	"music/integration/evaluate/optimistic"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/paper"
	"music/integration/evaluate/racing"
	"music/integration/evaluate/remote"
	"music/integration/evaluate/section"
	"music/integration/evaluate/shedlock"
	"music/integration/evaluate/store"
	"music/integration/evaluate/timeuuid"
	"music/integration/evaluate/zookeeper"
)

// Place is where a client of a trial is.
type Place struct {
	Nodes    []string          // host:port, that of its own site first
	Proxy    string            // of its own site, without port
	Servers  map[string]beside // by name
	Keyspace string            // exists
	Now      func() time.Time  `json:"-"` // the clock of its machine; none: the right one
}

// ahead returns by how much the clock is ahead.
func (p Place) ahead() time.Duration {
	if p.Now == nil {
		return 0
	}
	return time.Until(p.Now())
}

// System is a system in the table.
type System struct {
	Name     string
	How      string // what it is, for a reader of the table
	open     func(Place) (section.Client, error)
	ours     bool   // must not be violated in any trial
	need     string // servers beside Cassandra, or a program, by name
	settings string // changed whenever it is tried in another way: a cell of others begins anew
}

// with returns the system with a word for how it is tried now.
func (s System) with(settings string) System {
	s.settings = settings
	return s
}

// Lease is how long a system whose holder is silent waits for it.
const Lease = 5 * time.Second

// storeTimeout is how long a client waits for an answer of the store.
const storeTimeout = 4 * time.Second

// Systems returns those of the table.
func Systems() []System {
	return []System{
		product("ours", "this product: `LOCK`, writes and reads `USING LOCK`, `UNLOCK`", ours.Lock),
		product("ours, strict", "as ours, on a table with `strict=true`: an operation is acknowledged by a read of the lock row, and no clock", ours.Strict),
		product("ours, FOR UPDATE", "as ours, entered by `SELECT … FOR UPDATE`", ours.ForUpdate),
		printed("MUSIC", "the paper's algorithms, with a misprint mended: forcedRelease sets the synchFlag to true, as the text says. A client speaks to the node of its site only", paper.Options{}),
		printed("MUSIC, any node", "as MUSIC, with clients that send each message to the next node, whose replica a peek reads", paper.Options{Anywhere: true}),
		printed("MUSIC, flag as printed", "as MUSIC, with the line as printed: forcedRelease writes false", paper.Options{FlagAsPrinted: true}),
		printed("MUSIC, repaired", "as MUSIC, with what was found broken mended: peeks at QUORUM, also after a put, a flag above all stamps of its reference, puts ordered by more than the clock", paper.Options{Repaired: true}),
		printed("MSCP", "MUSIC with puts by lightweight transactions (LWTs), as the paper compares itself with (VIII-b)", paper.Options{Variant: paper.MSCP}),
		printed("CassaEV", "writes at ONE, and no lock (VIII-b)", paper.Options{Variant: paper.CassaEV}),
		other("LWT lock table, timeuuid", "the slides on MUSIC's locking service: a row a waiter, sorted by time; who is in the first one holds, and gets and puts look; nobody takes the row of the dead away", func(o store.Options) (*timeuuid.Client, error) {
			return timeuuid.New(timeuuid.Options{Options: o})
		}).with("puts check the top row"),
		other("bakery", "Lamport's bakery by reads and writes at QUORUM, after a blog post", func(o store.Options) (*bakery.Client, error) {
			return bakery.New(bakery.Options{Options: o})
		}).with("numbers live for an hour"),
		other("lease, election", "a row with a TTL, inserted and renewed by LWTs, after the blog post \"Consensus on Cassandra\"", func(o store.Options) (*election.Client, error) {
			return election.New(election.Options{Options: o, TTL: Lease})
		}),
		other("lease, election, fenced", "the lease repaired: a leader counts its lease, and puts are LWTs in the row of the lease", func(o store.Options) (*election.Client, error) {
			return election.New(election.Options{Options: o, TTL: Lease, Fenced: true})
		}),
		other("optimistic lock", "the first lock of the ScyllaDB post: everybody writes that he wants it, and who reads only himself has it; the row of the dead stays", func(o store.Options) (*optimistic.Client, error) {
			return optimistic.New(optimistic.Options{Options: o})
		}),
		other("LWT and heartbeat", "the second lock of that post: a row by an LWT, a heartbeat for each client, and a housekeeper that deletes rows without one", func(o store.Options) (*heartbeat.Client, error) {
			return heartbeat.New(heartbeat.Options{Options: o})
		}).with("one housekeeper"),
		beyond("ShedLock", "the library's lock over Cassandra: a row with the end of the lock, by clients' clocks", shedLock, func(at Place, b beside) (*shedlock.Client, error) {
			o := store.Options{Hosts: at.Nodes[:1], Keyspace: at.Keyspace, Clock: at.Now, Timeout: storeTimeout}
			return shedlock.New(shedlock.Options{Options: o, Program: b.Program, Lease: Lease, Ahead: at.ahead()})
		}),
		beyond("ZooKeeper, Curator", "Curator's InterProcessMutex, and the values in ZooKeeper (VIII, Fig. 6)", zooKeeper, func(_ Place, b beside) (*remote.Client, error) {
			return curator.New(curator.Options{Program: b.Program, Server: b.Endpoint, Session: Lease})
		}),
		beyond("ZooKeeper, Curator heeding", "as above, with a client that heeds the state of its connection, as Curator advises", zooKeeper, func(_ Place, b beside) (*remote.Client, error) {
			return curator.New(curator.Options{Program: b.Program, Server: b.Endpoint, Session: Lease, Heed: true})
		}),
		beyond("MUSIC on ZooKeeper", "MUSIC before its lock table: locks in ZooKeeper, values in Cassandra", zooKeeper, func(at Place, b beside) (*zookeeper.Client, error) {
			o := store.Options{Hosts: at.Nodes[:1], Keyspace: at.Keyspace, Clock: at.Now, Timeout: storeTimeout}
			return zookeeper.New(zookeeper.Options{Options: o, Servers: []string{b.Endpoint}, Patience: Lease})
		}).with("gets and puts look for their reference"),
		beyond("etcd", "a lock of etcd's own, and the values in etcd, written only while the lock is held", etcd, func(_ Place, b beside) (*remote.Client, error) {
			return remote.Start(b.Program, b.Endpoint, Lease.String())
		}),
		beyond("etcd, values in Cassandra", "as etcd, with the values in Cassandra", etcd, func(at Place, b beside) (*remote.Client, error) {
			return remote.Start(b.Program, b.Endpoint, Lease.String(), at.Nodes[0], at.Keyspace)
		}),
		other("racing LWTs", "no lock: read, and write by an LWT if nobody else has; what has lost begins again", func(o store.Options) (*racing.Client, error) { return racing.New(racing.Options{Options: o}) }),
	}
}

// keepHouse runs the housekeeping service of LWT and heartbeat, of which the post has one, and returns what ends it.
func keepHouse(o store.Options) (end func(), err error) {
	k, err := heartbeat.NewHousekeeper(heartbeat.Options{Options: o, Grace: Lease})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { k.Run(ctx) })
	return func() { stop(); ended.Wait(); k.Close() }, nil
}

// other is a system on package store.
func other[C section.Client](name, how string, open func(store.Options) (C, error)) System {
	return System{Name: name, How: how, open: func(at Place) (section.Client, error) {
		return open(store.Options{Hosts: at.Nodes[:1], Keyspace: at.Keyspace, Clock: at.Now, Timeout: storeTimeout})
	}}
}

// The names of servers beside Cassandra, and of a client that needs Cassandra only.
const zooKeeper, etcd, shedLock = "ZooKeeper", "etcd", "ShedLock"

// beside is what a client of such servers needs.
type beside struct {
	Endpoint string   // of its own site; none where there are no servers
	Program  []string // its client, if that is a program of its own
}

// errNoServer is returned by systems whose servers could not be had.
var errNoServer = errors.New("its servers cannot be had")

// beyond is a system that needs servers beside Cassandra.
func beyond[C section.Client](name, how, need string, open func(Place, beside) (C, error)) System {
	return System{Name: name, How: how, need: need, open: func(at Place) (section.Client, error) {
		b, has := at.Servers[need]
		if !has {
			return nil, errNoServer
		}
		return open(at, b)
	}}
}

// find returns the system of a name.
func find(name string) (s System, found bool) {
	all := Systems()
	i := slices.IndexFunc(all, func(s System) bool { return s.Name == name })
	if i < 0 {
		return s, false
	}
	return all[i], true
}

// product is a mode of the product.
func product(name, how string, m ours.Mode) System {
	return System{Name: name, How: how, ours: true, open: func(at Place) (section.Client, error) {
		return ours.New(ours.Options{Hosts: []string{at.Proxy}, Keyspace: at.Keyspace, Mode: m, Lease: Lease, Timeout: 2 * storeTimeout})
	}}
}

// printed is a variant of the paper's system.
func printed(name, how string, o paper.Options) System {
	return System{Name: name, How: how, open: func(at Place) (section.Client, error) {
		o.Hosts, o.Keyspace, o.Now = at.Nodes[:1], at.Keyspace, at.Now
		if o.Anywhere {
			o.Hosts = at.Nodes
		}
		o.Patience, o.Timeout = Lease, storeTimeout
		return paper.New(o)
	}}
}
