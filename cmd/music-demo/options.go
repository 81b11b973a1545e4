package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/mattn/go-isatty"
	"github.com/spf13/pflag"

	"music/integration/cassandra"
)

// options are the options of the demo.
type options struct {
	listen string // host:port of the proxy; of several the first, the others stand on the addresses behind it
	node   string // address of the Cassandra node, likewise
	nodes  string // how many, each with a proxy; text, because it may come from the environment
	keep   string // auto, yes or no
	runDir string // what all clusters of the checkout share
	dir    string // of this cluster, and of the proxy's log
}

// addFlags lets a command line set the options.
func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.listen, "listen", "127.0.0.1:9042", "address of the first proxy, for drivers")
	f.StringVar(&o.node, "node", "127.0.1.1", "address of the first Cassandra node")
	f.StringVar(&o.nodes, "nodes", cmp.Or(o.nodes, "1"), "nodes of the cluster, or the variable NODES: 1, or 3 with a proxy each")
	f.StringVar(&o.keep, "keep", "auto", "leave Cassandra and the proxy running after the story: yes, no, or auto (at a terminal)")
	f.StringVar(&o.dir, "dir", "", "directory of the cluster and the proxy's log (default .run/demo)")
}

// complete sets defaults and returns all faults of the options.
func (o *options) complete() error {
	var faults []error
	if o.nodes != "1" && o.nodes != "3" {
		faults = append(faults, fmt.Errorf("nodes %q: 1 or 3", o.nodes))
	}
	if !slices.Contains([]string{"auto", "yes", "no"}, o.keep) {
		faults = append(faults, fmt.Errorf("keep %q: auto, yes or no", o.keep))
	}
	if at, err := netip.ParseAddrPort(o.listen); err != nil || at.Port() == 0 {
		faults = append(faults, fmt.Errorf("listen %q: an address and a port, like 127.0.0.1:9042", o.listen))
	}
	if _, err := netip.ParseAddr(o.node); err != nil {
		faults = append(faults, fmt.Errorf("node %q: an address of this machine, like 127.0.1.1", o.node))
	}
	var err error
	if o.runDir, err = cassandra.DefaultRunDir(); err != nil {
		faults = append(faults, err)
	}
	o.dir = cmp.Or(o.dir, filepath.Join(o.runDir, "demo"))
	return errors.Join(faults...)
}

// count returns the number of nodes, which is also that of proxies.
func (o *options) count() int {
	if o.nodes == "3" {
		return 3
	}
	return 1
}

// nodeAt returns the address of node k, from 1.
func (o *options) nodeAt(k int) string { return behind(netip.MustParseAddr(o.node), k-1).String() }

// listenAt returns the address of proxy k, from 1.
func (o *options) listenAt(k int) string {
	first := netip.MustParseAddrPort(o.listen)
	return netip.AddrPortFrom(behind(first.Addr(), k-1), first.Port()).String()
}

// behind returns the n-th address after another.
func behind(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

// keeps reports whether everything stays running after the story.
func (o *options) keeps() bool {
	return o.keep == "yes" || o.keep == "auto" && isatty.IsTerminal(os.Stdout.Fd())
}
