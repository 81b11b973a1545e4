// Package curator is ZooKeeper as the paper compares MUSIC with it (VIII, Fig. 6): a lock recipe, and the values in ZooKeeper too.
// The lock is that of Curator, which users of ZooKeeper are sent to, out of its own jar; Curator.java is the client, a process of
// its own.
//
//	paper                                             here
//	"the number of writes (batch size) in a critical  setData of a znode for the key; the first finds none and
//	 section"                                          is a create
//	"3-node (1 node per site), fully replicated"      Options.Server, that of the client's own site
//
// The paper says neither how its clients of ZooKeeper lock nor whether they do: "for batch size of 1" it has ~3k a second of them, and
// 885 of MUSIC. Here they lock, by InterProcessMutex: an ephemeral sequential znode, the lowest holds, each other watches the one before
// it.
//
// Nor does it say what its clients do when a connection breaks. InterProcessMutex does nothing by itself; its documentation
// "strongly" recommends a ConnectionStateListener, which is Options.Heed: a section in which the connection was suspended or lost is
// over.
//
// What breaks it. A znode is written by whoever asks, with or without the lock: Curator retries a write whose connection is gone in
// its next session, in which the lock of the old one is another client's. So a holder that stands still for longer than its session
// writes over its successor's value. With Options.Heed only that write does which has passed the check before it stood still. And
// ZooKeeper takes no value above 1 MiB (jute.maxbuffer): it ends the connection instead.
package curator

import (
	_ "embed"
	"strconv"
	"time"

	"music/integration/evaluate/remote"
)

// The program. go:embed works on package-level variables only.
var (
	//go:embed Curator.java
	source []byte
	//go:embed pom.xml
	pom []byte
)

// Program is the client. To build it fetches Curator with Maven.
func Program() remote.Java { return remote.Java{Class: "Curator", Source: source, Pom: pom} }

// Options of a client.
type Options struct {
	Program []string      // as Build of Program returns it
	Server  string        // host:port; the client speaks to this one only
	Session time.Duration // default 10 s
	Heed    bool          // repaired, as far as it can be
}

// New starts a client.
func New(o Options) (*remote.Client, error) {
	if o.Session == 0 {
		o.Session = 10 * time.Second
	}
	return remote.Start(o.Program, o.Server, strconv.FormatInt(o.Session.Milliseconds(), 10), strconv.FormatBool(o.Heed))
}
