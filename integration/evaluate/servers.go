package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"music/integration/evaluate/curator"
	"music/integration/evaluate/ensemble"
	"music/integration/evaluate/experiment"
	"music/integration/evaluate/remote"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
	"music/integration/evaluate/zookeeper"
)

// The names of servers beside Cassandra.
const zooKeeper, etcd = "ZooKeeper", "etcd"

// servers fetches what some systems need, and reports whether there is something. What cannot be had is
// left out: the rows of its systems say so.
func servers(ctx context.Context, needed []experiment.System, log io.Writer) (map[string]ensemble.Kind, bool) {
	all := map[string]ensemble.Kind{}
	for _, s := range needed {
		if _, has := all[s.Needs]; has || s.Needs == "" {
			continue
		}
		fetch := ensemble.Etcd
		if s.Needs == zooKeeper {
			fetch = func(ctx context.Context) (ensemble.Kind, error) { return ensemble.ZooKeeper(ctx, log) }
		}
		kind, err := fetch(ctx)
		if err != nil {
			experiment.Say(log, "no %s: %v", s.Needs, err)
			continue
		}
		all[s.Needs] = kind
	}
	return all, len(all) > 0
}

// errNoServer is returned by Open of a system whose servers could not be had.
var errNoServer = errors.New("its servers cannot be had")

// beside is a system that needs servers beside Cassandra.
func beside(name, server string, open func(at experiment.Place, endpoint string) (section.Client, error)) experiment.System {
	return experiment.System{Name: name, Exclusive: true, Needs: server, Open: func(at experiment.Place) (section.Client, error) {
		endpoint, has := at.Servers[server]
		if !has {
			return nil, fmt.Errorf("%w: %s", errNoServer, server)
		}
		return open(at, endpoint)
	}}
}

// besides are all of them.
func besides() []experiment.System {
	return []experiment.System{
		beside(experiment.ZooKeeper, zooKeeper, func(_ experiment.Place, endpoint string) (section.Client, error) {
			program, err := curator.Program().Build(context.Background(), io.Discard)
			if err != nil {
				return nil, err
			}
			return client(curator.New(curator.Options{Program: program, Server: endpoint}))
		}),
		beside(experiment.MUSICOnZK, zooKeeper, func(at experiment.Place, endpoint string) (section.Client, error) {
			return client(zookeeper.New(zookeeper.Options{
				Options: store.Options{Hosts: []string{at.Node}, Keyspace: at.Keyspace, Timeout: patience}, Servers: []string{endpoint},
			}))
		}),
		beside(experiment.Etcd, etcd, func(_ experiment.Place, endpoint string) (section.Client, error) { return etcdClient(endpoint) }),
		beside(experiment.EtcdData, etcd, func(at experiment.Place, endpoint string) (section.Client, error) {
			return etcdClient(endpoint, at.Node, at.Keyspace)
		}),
	}
}

// etcdClient starts a client of etcd, with values in Cassandra if a node and a keyspace are given.
func etcdClient(endpoint string, values ...string) (section.Client, error) {
	program, err := ensemble.EtcdClient(context.Background())
	if err != nil {
		return nil, err
	}
	return client(remote.Start([]string{program, endpoint, "10s"}, values...))
}
