// Command client carries out sections of etcd for package remote, since etcd needs more modules than all of the rest together:
// client ENDPOINT TTL, with values in etcd, or client ENDPOINT TTL NODE KEYSPACE, with values in Cassandra.
package main

import (
	"fmt"
	"os"
	"time"

	"music/integration/evaluate/etcd"
	"music/integration/evaluate/remote"
	"music/integration/evaluate/store"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// run serves until there are no more requests.
func run(words []string) error {
	if len(words) != 2 && len(words) != 4 {
		return fmt.Errorf("ENDPOINT TTL [NODE KEYSPACE], not %q", words)
	}
	ttl, err := time.ParseDuration(words[1])
	if err != nil {
		return err
	}
	o := etcd.Options{Endpoints: words[:1], TTL: ttl}
	if len(words) == 4 {
		o.Cassandra = &store.Options{Hosts: words[2:3], Keyspace: words[3]}
	}
	c, err := etcd.New(o)
	if err != nil {
		return err
	}
	defer c.Close()
	return remote.Serve(c, os.Stdin, os.Stdout)
}
