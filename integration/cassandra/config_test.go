package cassandra

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// nodeOf completes o and returns the layout of its node k.
func nodeOf(t *testing.T, o Options, k int) layout {
	t.Helper()
	o, err := o.complete()
	must(t, err)
	return layoutOf(o, k)
}

// parsed returns the node's cassandra.yaml as Cassandra would read it.
func parsed(t *testing.T, l layout) map[string]any {
	t.Helper()
	var m map[string]any
	must(t, yaml.Unmarshal([]byte(l.yaml()), &m))
	return m
}

// Addresses, ports, token and what our tests rely on stand in a node's cassandra.yaml.
func TestYamlOfANode(t *testing.T) {
	m := parsed(t, nodeOf(t, Options{Dir: "d", Nodes: 3, Network: Network{Port: 9142}}, 2))
	for key, want := range map[string]any{
		"listen_address": "127.0.1.2", "rpc_address": "127.0.1.2", "native_transport_port": 9142, "storage_port": 7000,
		"initial_token": "-3074457345618258603", // a string: Cassandra refuses the number
		"num_tokens":    1, "auto_bootstrap": false, "paxos_variant": "v2", "commitlog_sync_period": "10s",
	} {
		assert.Equal(t, want, m[key], key)
	}
	assert.Contains(t, nodeOf(t, Options{Dir: "d", Nodes: 3}, 2).yaml(), `seeds: "127.0.1.1:7000,127.0.1.2:7000,127.0.1.3:7000"`)
}

// Each node of a cluster has a token of its own.
func TestTokensDiffer(t *testing.T) {
	seen := map[any]bool{}
	for k := 1; k <= maxNodes; k++ {
		seen[parsed(t, nodeOf(t, Options{Dir: "d", Nodes: maxNodes}, k))["initial_token"]] = true
	}
	assert.Len(t, seen, maxNodes)
	for k, want := range []string{"-9223372036854775808", "-3074457345618258603", "3074457345618258602"} {
		assert.Equal(t, want, parsed(t, nodeOf(t, Options{Dir: "d", Nodes: 3}, k+1))["initial_token"])
	}
}

// Options.Yaml changes a key, adds one, and takes one out.
func TestYamlIsOverridden(t *testing.T) {
	m := parsed(t, nodeOf(t, Options{Dir: "d", Yaml: map[string]string{
		"commitlog_sync": "batch", "commitlog_sync_period": "", "write_request_timeout": "1500ms", "not_there": "",
	}}, 1))
	assert.Equal(t, "batch", m["commitlog_sync"])
	assert.Equal(t, "1500ms", m["write_request_timeout"])
	for _, key := range []string{"commitlog_sync_period", "not_there"} {
		v, ok := m[key]
		assert.False(t, ok, "%s is %v", key, v)
	}
}

// With MultiDC each node is in a data centre of its own, and of nine nodes three are in each.
func TestRackdc(t *testing.T) {
	assert.Equal(t, "dc=dc2\nrack=r1\n", nodeOf(t, Options{Dir: "d", Nodes: 9, MultiDC: true}, 8).rackdc())
	for multi, want := range map[bool]string{false: "dc=dc1\nrack=r1\n", true: "dc=dc3\nrack=r1\n"} {
		assert.Equal(t, want, nodeOf(t, Options{Dir: "d", Nodes: 3, MultiDC: multi}, 3).rackdc(), "MultiDC %v", multi)
	}
}

// A node that joins has a token of Cassandra's choice, its own data centre, and the seeds of those that were there.
func TestJoiningNode(t *testing.T) {
	l := nodeOf(t, Options{Dir: "d", Nodes: 2, Access: Access{JMX: 7200}}, 4)
	l.joining = &Joining{DC: 2, Bootstrap: true, Replaces: &Node{layout: nodeOf(t, Options{Dir: "d", Nodes: 2}, 1)}}
	m := parsed(t, l)
	if m["auto_bootstrap"] != true || m["initial_token"] != nil || !strings.Contains(l.yaml(), `seeds: "127.0.1.1:7000,127.0.1.2:7000"`) {
		t.Errorf("yaml: %v", m)
	}
	if got := l.rackdc(); got != "dc=dc2\nrack=r1\n" {
		t.Errorf("rackdc: %q", got)
	}
	for _, want := range []string{"-Dcassandra.replace_address_first_boot=127.0.1.1", "-Dcassandra.jmx.local.port=7204", "-Dcassandra.ring_delay_ms=5000"} {
		if args := l.args("/jars"); !strings.Contains(args, want) {
			t.Errorf("no %s in %s", want, args)
		}
	}
}

// argsOf returns the argument file's lines without their quotes.
func argsOf(t *testing.T, o Options) []string {
	t.Helper()
	var args []string
	for line := range strings.Lines(nodeOf(t, o, 1).args("/jars")) {
		args = append(args, strings.Trim(line, "\"\n"))
	}
	return args
}

// The arguments of the JVM name the jars, the heap, the node's directory and what Java must open.
func TestArgs(t *testing.T) {
	args := argsOf(t, Options{Dir: "/run", Heap: "192m"})
	for _, want := range []string{
		"-javaagent:/jars/jamm-0.4.0.jar", "-Xms192m", "-Xmx192m", "-Dcassandra.config=file:///run/n1/cassandra.yaml",
		"-Dcassandra.storagedir=/run/n1", "-Dcassandra.ring_delay_ms=0", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
		"--add-exports=java.base/java.lang.ref=ALL-UNNAMED",
	} {
		assert.Contains(t, args, want)
	}
	assert.Equal(t, []string{"-cp", "/jars/*", "org.apache.cassandra.service.CassandraDaemon"}, args[len(args)-3:])
}

// Only with FastJIT the JVM leaves out its second compiler.
func TestFastJIT(t *testing.T) {
	for _, fast := range []bool{false, true} {
		assert.Equal(t, fast, slices.Contains(argsOf(t, Options{Dir: "d", FastJIT: fast}), "-XX:TieredStopAtLevel=1"))
	}
}

// Options.Properties changes a system property, adds one, and takes one out.
func TestPropertiesAreOverridden(t *testing.T) {
	args := argsOf(t, Options{Dir: "d", Properties: map[string]string{"cassandra.ring_delay_ms": "5", "a": "b", "cassandra-foreground": ""}})
	assert.Contains(t, args, "-Dcassandra.ring_delay_ms=5")
	assert.Contains(t, args, "-Da=b")
	assert.False(t, slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "foreground") }), "args: %q", args)
}

// A directory of any name works: the files that hold it have three syntaxes.
func TestAwkwardDirectory(t *testing.T) {
	l := nodeOf(t, Options{Dir: `/a b"c\d&<#`}, 1)
	assert.Contains(t, l.args("/jars"), `"-Djava.io.tmpdir=/a b\"c\\d&<#/n1"`+"\n")
	got, want := l.url("rackdc"), "file:///a%20b%22c%5Cd&%3C%23/n1/rackdc"
	assert.Equal(t, want, got)
	var conf struct {
		File string `xml:"appender>file"`
	}
	must(t, xml.Unmarshal([]byte(l.logback()), &conf))
	assert.Equal(t, `/a b"c\d&<#/n1/system.log`, conf.File, "log file")
}

// All files that a node needs are written.
func TestWrite(t *testing.T) {
	l := nodeOf(t, Options{Dir: t.TempDir()}, 1)
	must(t, l.write("/jars"))
	for _, name := range []string{"cassandra.yaml", "rackdc", "logback.xml", "args"} {
		info, err := os.Stat(l.path(name))
		require.NoError(t, err, name)
		assert.NotZero(t, info.Size(), name)
	}
}

// A node whose files cannot be written is named in the error.
func TestWriteTellsWhichNode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	err := nodeOf(t, Options{Dir: file}, 1).write("/jars")
	require.Error(t, err)
	assert.True(t, strings.HasPrefix(err.Error(), "make node 1: "), "%v", err)
}

// What Options leaves out has its default, and directories are absolute.
func TestDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	o, err := Options{Dir: "d"}.complete()
	must(t, err)
	assert.Equal(t, 1, o.Nodes)
	assert.Equal(t, 9042, o.Port)
	assert.Equal(t, "256m", o.Heap)
	assert.False(t, o.FastJIT, "%+v", o)
	assert.Equal(t, "127.0.1.3", o.Address(3))
	assert.Equal(t, "cassandra", o.Access.Username)
	assert.Equal(t, "cassandra", o.Access.Password)
	assert.True(t, filepath.IsAbs(o.Dir), "relative: %s, %s", o.Dir, o.RunDir)
	assert.True(t, filepath.IsAbs(o.RunDir), "relative: %s, %s", o.Dir, o.RunDir)
}

// The error of bad Options names every fault.
func TestEveryFaultAtOnce(t *testing.T) {
	_, err := Options{Nodes: maxNodes + 1, Yaml: map[string]string{"storage_port": "1", "native_transport_port": "2"}}.complete()
	for _, want := range []string{"no Dir", "10 nodes, not 1 to 9", "storage_port in Yaml", "native_transport_port in Yaml: use Port"} {
		assert.ErrorContains(t, err, want, "no %q", want)
	}
}

// The run directory is that of the checkout, also below a module of its own; without a checkout it is here.
func TestDefaultRunDir(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	deep := filepath.Join(root, "a", "b")
	must(t, os.MkdirAll(deep, 0o755))
	t.Chdir(deep)
	for _, want := range []string{deep, root} {
		got, err := DefaultRunDir()
		must(t, err)
		assert.Equal(t, filepath.Join(want, ".run"), got, "%s, not below %s", got, want)
		must(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module music\n"), 0o644))
		must(t, os.WriteFile(filepath.Join(root, "a", "go.mod"), []byte("module music/a\n"), 0o644))
	}
}
