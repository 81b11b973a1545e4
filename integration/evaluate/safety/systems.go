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
	Name string
	open func(Place) (section.Client, error)
	ours bool   // must not be violated in any trial
	need string // servers beside Cassandra, or a program, by name
}

// Lease is how long a system whose holder is silent waits for it.
const Lease = 5 * time.Second

// storeTimeout is how long a client waits for an answer of the store.
const storeTimeout = 4 * time.Second

// Systems returns those of the table.
func Systems() []System {
	return []System{
		product("ours", ours.Lock),
		product("ours, strict", ours.Strict),
		product("ours, FOR UPDATE", ours.ForUpdate),
		printed("MUSIC", paper.Options{}),
		printed("MUSIC, any node", paper.Options{Anywhere: true}),
		printed("MUSIC, flag as printed", paper.Options{FlagAsPrinted: true}),
		printed("MUSIC, repaired", paper.Options{Repaired: true}),
		printed("MSCP", paper.Options{Variant: paper.MSCP}),
		printed("CassaEV", paper.Options{Variant: paper.CassaEV}),
		other("LWT lock table, timeuuid", func(o store.Options) (*timeuuid.Client, error) {
			return timeuuid.New(timeuuid.Options{Options: o})
		}),
		other("bakery", func(o store.Options) (*bakery.Client, error) {
			return bakery.New(bakery.Options{Options: o})
		}),
		other("lease, election", func(o store.Options) (*election.Client, error) {
			return election.New(election.Options{Options: o, TTL: Lease})
		}),
		other("lease, election, fenced", func(o store.Options) (*election.Client, error) {
			return election.New(election.Options{Options: o, TTL: Lease, Fenced: true})
		}),
		other("optimistic lock", func(o store.Options) (*optimistic.Client, error) {
			return optimistic.New(optimistic.Options{Options: o})
		}),
		other("LWT and heartbeat", func(o store.Options) (*heartbeat.Client, error) {
			return heartbeat.New(heartbeat.Options{Options: o})
		}),
		beyond("ShedLock", shedLock, func(at Place, b beside) (*shedlock.Client, error) {
			o := store.Options{Hosts: at.Nodes[:1], Keyspace: at.Keyspace, Clock: at.Now, Timeout: storeTimeout}
			return shedlock.New(shedlock.Options{Options: o, Program: b.Program, Lease: Lease, Ahead: at.ahead()})
		}),
		beyond("ZooKeeper, Curator", zooKeeper, func(_ Place, b beside) (*remote.Client, error) {
			return curator.New(curator.Options{Program: b.Program, Server: b.Endpoint, Session: Lease})
		}),
		beyond("ZooKeeper, Curator heeding", zooKeeper, func(_ Place, b beside) (*remote.Client, error) {
			return curator.New(curator.Options{Program: b.Program, Server: b.Endpoint, Session: Lease, Heed: true})
		}),
		beyond("MUSIC on ZooKeeper", zooKeeper, func(at Place, b beside) (*zookeeper.Client, error) {
			o := store.Options{Hosts: at.Nodes[:1], Keyspace: at.Keyspace, Clock: at.Now, Timeout: storeTimeout}
			return zookeeper.New(zookeeper.Options{Options: o, Servers: []string{b.Endpoint}, Patience: Lease})
		}),
		beyond("etcd", etcd, func(_ Place, b beside) (*remote.Client, error) {
			return remote.Start(b.Program, b.Endpoint, Lease.String())
		}),
		beyond("etcd, values in Cassandra", etcd, func(at Place, b beside) (*remote.Client, error) {
			return remote.Start(b.Program, b.Endpoint, Lease.String(), at.Nodes[0], at.Keyspace)
		}),
		other("racing LWTs", func(o store.Options) (*racing.Client, error) { return racing.New(racing.Options{Options: o}) }),
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
func other[C section.Client](name string, open func(store.Options) (C, error)) System {
	return System{name, func(at Place) (section.Client, error) {
		return open(store.Options{Hosts: at.Nodes[:1], Keyspace: at.Keyspace, Clock: at.Now, Timeout: storeTimeout})
	}, false, ""}
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
func beyond[C section.Client](name, need string, open func(Place, beside) (C, error)) System {
	return System{name, func(at Place) (section.Client, error) {
		b, has := at.Servers[need]
		if !has {
			return nil, errNoServer
		}
		return open(at, b)
	}, false, need}
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
func product(name string, m ours.Mode) System {
	return System{name, func(at Place) (section.Client, error) {
		return ours.New(ours.Options{Hosts: []string{at.Proxy}, Keyspace: at.Keyspace, Mode: m, Lease: Lease, Timeout: 2 * storeTimeout})
	}, true, ""}
}

// printed is a variant of the paper's system.
func printed(name string, o paper.Options) System {
	return System{name, func(at Place) (section.Client, error) {
		o.Hosts, o.Keyspace, o.Now = at.Nodes[:1], at.Keyspace, at.Now
		if o.Anywhere {
			o.Hosts = at.Nodes
		}
		o.Patience, o.Timeout = Lease, storeTimeout
		return paper.New(o)
	}, false, ""}
}
