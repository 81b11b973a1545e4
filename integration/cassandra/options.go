package cassandra

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxNodes is how many nodes may start together: each has a fixed token, a third of the ring apart, or a ninth where there are more
// than three. More may join.
const maxNodes = 9

// maxJoined is how many there may be with those that have joined, dead ones included.
const maxJoined = 9

// Options says which cluster to start. Only Dir is required.
type Options struct {
	Dir    string // of this cluster alone: its node directories are removed by Start
	RunDir string // holds what all clusters share; default: DefaultRunDir
	Nodes  int    // 1 (default) to 9

	Address func(k int) string // of node k = 1, 2, …; default 127.0.1.k
	Network

	Release string // of Cassandra; default: that of the tests, 5.0.8
	Heap    string // of each JVM; default "256m", enough for tests
	FastJIT bool   // halves the CPU time of a start; for tests, never for benchmarks

	Yaml       map[string]string // over our cassandra.yaml, in YAML syntax; an empty value takes a key out
	Properties map[string]string // over our system properties; an empty value takes one out
	MultiDC    bool              // node k is in data centre dck, the fourth in dc1 again and so on; otherwise all are in dc1
	Keep       bool              // start with the storage that an earlier cluster left in Dir
	Faults     bool              // Node.Fault works: messages between nodes and the nodes' clocks can be tampered with

	Access Access // for the waits, and nodetool

	Log io.Writer // a line for whatever takes long; default: none
}

// Network says where the addresses are.
type Network struct {
	Port      int                // of CQL, on every address; default 9042
	Namespace func(k int) string // network namespace that node k lives in; its Address must be reachable from here. Default: none
}

// Durable adds to a yaml, and returns it, what makes a node that is killed forget nothing: each write is synced.
func Durable(yaml map[string]string) map[string]string {
	yaml["commitlog_sync"], yaml["commitlog_sync_period"] = "batch", ""
	return yaml
}

// flushSchema is the system property by which Cassandra flushes each schema change. A node that starts again knows only what was
// flushed.
const flushSchema = "cassandra.test.flush_local_schema_changes"

// Once returns Options.Properties of nodes that are started only once: their schema changes are not flushed, which is most of what
// these take. others are further properties, in pairs of a name and a value.
func Once(others ...string) map[string]string {
	all := map[string]string{flushSchema: "false"}
	for pair := range slices.Chunk(others, 2) {
		all[pair[0]] = pair[1]
	}
	return all
}

// Access says how a client logs in, if Yaml requires it.
type Access struct {
	Username, Password string      // default cassandra, cassandra
	TLS                *tls.Config // default: plain text
	JMX                int         // node k answers Node.Tool at port JMX+k of 127.0.0.1; default: it does not
}

// DefaultRunDir returns the directory .run of the checkout that the working directory lies in, so that the tests of all
// packages share one; or .run in the working directory. The module of the benchmarks has a go.mod of its own.
func DefaultRunDir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the run directory: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(mod), "module music\n") {
			return filepath.Join(dir, ".run"), nil
		}
		if dir == filepath.Dir(dir) {
			return filepath.Join(wd, ".run"), nil
		}
	}
}

// complete returns o with its defaults and absolute directories.
func (o Options) complete() (Options, error) {
	o.Nodes = cmp.Or(o.Nodes, 1)
	o.Port = cmp.Or(o.Port, 9042)
	o.Release = cmp.Or(o.Release, version)
	o.Heap = cmp.Or(o.Heap, "256m")
	o.Access.Username, o.Access.Password = cmp.Or(o.Access.Username, "cassandra"), cmp.Or(o.Access.Password, "cassandra")
	if o.Address == nil {
		o.Address = func(k int) string { return fmt.Sprintf("127.0.1.%d", k) }
	}
	if err := o.check(); err != nil {
		return o, err
	}
	return o.absolute()
}

// check returns an error that names every invalid option.
func (o Options) check() error {
	var faults []error
	if o.Dir == "" {
		faults = append(faults, errors.New("no Dir"))
	}
	if o.Nodes < 1 || o.Nodes > maxNodes {
		faults = append(faults, fmt.Errorf("%d nodes, not 1 to %d", o.Nodes, maxNodes))
	}
	for key := range o.Yaml {
		// Its value is in the nodes' seed lists too, and the port check relies on it.
		if key == "native_transport_port" || strings.HasSuffix(key, "storage_port") {
			faults = append(faults, fmt.Errorf("%s in Yaml: use Port", key))
		}
	}
	return errors.Join(faults...)
}

// absolute makes the directories independent of the working directory, which the files of a node must be.
func (o Options) absolute() (Options, error) {
	var err error
	if o.RunDir == "" {
		if o.RunDir, err = DefaultRunDir(); err != nil {
			return o, err
		}
	}
	if o.RunDir, err = filepath.Abs(o.RunDir); err != nil {
		return o, fmt.Errorf("run directory: %w", err)
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("cluster directory: %w", err)
	}
	return o, nil
}
