package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"music/integration/evaluate/bakery"
	"music/integration/evaluate/eachupdate"
	"music/integration/evaluate/election"
	"music/integration/evaluate/experiment"
	"music/integration/evaluate/heartbeat"
	"music/integration/evaluate/optimistic"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/paper"
	"music/integration/evaluate/plain"
	"music/integration/evaluate/racing"
	"music/integration/evaluate/safety"
	"music/integration/evaluate/section"
	"music/integration/evaluate/service/struck"
	"music/integration/evaluate/shedlock"
	"music/integration/evaluate/store"
	"music/integration/evaluate/timeuuid"
	"music/integration/evaluate/transaction"
)

// systems are those that the experiments know by name. One that cannot be had on this machine stays in: its rows say so.
func systems() []experiment.System {
	all := []experiment.System{
		published(experiment.MUSIC, paper.MUSIC),
		published(experiment.MSCP, paper.MSCP),
		published(experiment.CassaEV, paper.CassaEV),
		write(experiment.QuorumWrite, false),
		write(experiment.LWT, true),
		lax(onCassandra(experiment.EachUpdate, func(o store.Options) (section.Client, error) {
			return client(eachupdate.New(eachupdate.Options{Options: o}))
		})),
		lax(onCassandra(experiment.Transaction, func(o store.Options) (section.Client, error) {
			return client(transaction.New(transaction.Options{Options: o}))
		})),
		onCassandra(experiment.Racing, func(o store.Options) (section.Client, error) {
			return client(racing.New(racing.Options{Options: o, Identify: true}))
		}),
		onCassandra(experiment.LockTable, func(o store.Options) (section.Client, error) {
			return client(timeuuid.New(timeuuid.Options{Options: o}))
		}),
		onCassandra(experiment.Bakery, func(o store.Options) (section.Client, error) { return client(bakery.New(bakery.Options{Options: o})) }),
		onCassandra(experiment.Lease, func(o store.Options) (section.Client, error) {
			return client(election.New(election.Options{Options: o}))
		}),
		onCassandra(experiment.Optimistic, func(o store.Options) (section.Client, error) {
			return client(optimistic.New(optimistic.Options{Options: o}))
		}),
		{Name: experiment.Heartbeat, Exclusive: true, Open: func(at experiment.Place) (section.Client, error) {
			o := heartbeat.Options{Options: store.Options{Hosts: []string{at.Node}, Keyspace: at.Keyspace, Timeout: patience}}
			if at.Site == 1 { // the post has one such service
				return client(heartbeat.NewKept(o))
			}
			return client(heartbeat.New(o))
		}},
		{Name: experiment.ShedLock, Exclusive: true, Open: func(at experiment.Place) (section.Client, error) {
			program, err := shedlock.Program().Build(context.Background(), io.Discard)
			if err != nil {
				return nil, err
			}
			return client(shedlock.New(shedlock.Options{
				Options: store.Options{Hosts: []string{at.Node}, Keyspace: at.Keyspace, Timeout: patience},
				Program: program, Datacenter: fmt.Sprint("dc", at.Site),
			}))
		}},
		product(experiment.Ours, ours.Options{Mode: ours.Lock}),
		product(experiment.ForUpdate, ours.Options{Mode: ours.ForUpdate}),
		product(experiment.Auto, ours.Options{Mode: ours.Auto}),
		product(experiment.Strict, ours.Options{Mode: ours.Strict}),
	}
	all = append(all, besides()...)
	for _, ttl := range experiment.TTLs() {
		all = append(all, leased(ttl)...)
	}
	return all
}

// leased are the systems whose leaders die, with leases of a length.
func leased(ttl time.Duration) []experiment.System {
	return []experiment.System{
		onCassandra(experiment.Leased(experiment.Lease, ttl), func(o store.Options) (section.Client, error) {
			return client(election.New(election.Options{Options: o, TTL: ttl}))
		}),
		product(experiment.Leased(experiment.Ours, ttl), ours.Options{Mode: ours.Long, Lease: ttl}),
	}
}

// How long a driver waits for an answer, and for a lock in one statement: longer than one round of a contended key takes.
const patience, wait = 30 * time.Second, 5 * time.Second

// published is a system of the MUSIC paper.
func published(name string, v paper.Variant) experiment.System {
	return experiment.System{Name: name, Exclusive: v != paper.CassaEV, Open: func(at experiment.Place) (section.Client, error) {
		return client(paper.New(paper.Options{Hosts: []string{at.Node}, Keyspace: at.Keyspace, Variant: v, Timeout: patience}))
	}}
}

// onCassandra is a system that is a session with the node of its site.
func onCassandra(name string, open func(store.Options) (section.Client, error)) experiment.System {
	return experiment.System{Name: name, Exclusive: true, Open: func(at experiment.Place) (section.Client, error) {
		return open(store.Options{Hosts: []string{at.Node}, Keyspace: at.Keyspace, Timeout: patience})
	}}
}

// write is a write without a section.
func write(name string, lwt bool) experiment.System {
	return lax(onCassandra(name, func(o store.Options) (section.Client, error) {
		return client(plain.New(plain.Options{Options: o, LWT: lwt}))
	}))
}

// lax is a system whose sections do not exclude each other.
func lax(s experiment.System) experiment.System {
	s.Exclusive = false
	return s
}

// client is what New of a system returns, or nothing at all.
func client[C section.Client](c C, err error) (section.Client, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// product is a way to use the product.
func product(name string, o ours.Options) experiment.System {
	return experiment.System{Name: name, Exclusive: o.Mode != ours.Auto, Open: func(at experiment.Place) (section.Client, error) {
		o := o
		o.Hosts, o.Keyspace, o.Timeout, o.Wait = []string{at.Proxy}, at.Keyspace, patience, wait
		return ours.New(o)
	}}
}

// part is something that the command runs beside the figures, with nodes of its own. It writes its pages into a directory, and
// returns the names of those that belong into the index.
type part struct {
	name string
	run  func(ctx context.Context, s *settings, log io.Writer) error
}

// parts are all of them.
func parts() []part {
	return []part{{"safety", func(ctx context.Context, s *settings, log io.Writer) error {
		return safety.Run(ctx, safety.Options{Tries: s.tries, Again: s.again, Out: s.out, Log: log})
	}}, {"services", func(ctx context.Context, s *settings, log io.Writer) error {
		u := struck.Suite{
			Settings: struck.Settings{Strikes: 6, Rounds: s.Rounds, Span: s.Span},
			Seed:     uint64(time.Now().UnixNano()), Command: s.line(), Out: s.out, Log: log, //nolint:gosec // after 1970
		}
		if s.Full {
			u.Strikes = 111 // some find nobody in a section: a hundred strike
		}
		kept, err := u.Kept()
		switch {
		case err != nil:
			return err
		case kept == "" || !s.keeps():
			return u.Run(ctx)
		}
		experiment.Say(log, "services: %s; --again measures them anew", kept)
		return nil
	}}}
}
