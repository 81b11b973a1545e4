//go:build compat

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
)

// operatorPatience is how long one line may take, and how long it may take until a line prints what
// the page says.
const operatorPatience = 5 * time.Minute

// operator types the commands of docs/operations.md, at machines that are addresses of this one:
// the node 10.0.0.k, and the proxy 10.0.1.k.
type operator struct {
	t       *testing.T
	number  int // of its cluster: 127.0.4(number).k is a node, 127.0.5(number).k a proxy
	cluster *cassandra.Cluster
	joining cassandra.Joining // how a new node joins
	proxies map[string]*process
	here    *strings.Replacer
	dir     string // etc/HOST and bin/HOST of each machine
	path    string // of programs that are the same on all
}

// newOperator starts a number of nodes, all in dc1.
func newOperator(t *testing.T, number, nodes int, yaml map[string]string) *operator {
	t.Helper()
	w := needEnvironment(t)
	binary, err := w.binary()
	require.NoError(t, err)
	o := &operator{t: t, number: number, proxies: map[string]*process{}, dir: t.TempDir()}
	o.path = filepath.Dir(binary) + ":" + os.Getenv("PATH")
	secret := peerSecret(t)
	o.here = strings.NewReplacer("10.0.0.", fmt.Sprintf("127.0.4%d.", number), "10.0.1.", fmt.Sprintf("127.0.5%d.", number), "/etc/music/peer-secret", secret, "/tmp/", o.dir+"/")
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	o.cluster, err = cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(w.runDir, fmt.Sprint("integration-operations", number)), RunDir: w.runDir, Nodes: nodes, Heap: "192m", FastJIT: true, Access: cassandra.Access{JMX: 7300 + 10*number},
		Address: o.nodeAt, Yaml: yaml, Log: os.Stderr,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.cluster.Wipe() })
	return o
}

// nodeAt returns the address of the k-th node.
func (o *operator) nodeAt(k int) string { return fmt.Sprintf("127.0.4%d.%d", o.number, k) }

// proxyAt returns the address of the k-th proxy, without a port.
func (o *operator) proxyAt(k int) string { return fmt.Sprintf("127.0.5%d.%d", o.number, k) }

// startProxies starts a proxy in front of each node, as docs/several-proxies.md says.
func (o *operator) startProxies() {
	n := len(o.cluster.Nodes())
	for k := 1; k <= n; k++ {
		line := "music proxy --contact-points 10.0.0.%[1]d --listen 10.0.1.%[1]d:9042 --peer-listen 10.0.1.%[1]d:9043 --metrics-listen 10.0.1.%[1]d:9044" +
			" --peer-secret-file /etc/music/peer-secret --expect-proxies %[2]d"
		o.begin(o.proxyAt(k), strings.Fields(o.here.Replace(fmt.Sprintf(line, k, n))))
	}
	for _, p := range o.proxies {
		p.listens(o.t)
	}
}

// follow types the parts first to end-1 of the page below a heading.
func (o *operator) follow(heading string, first, end int) {
	o.t.Helper()
	parts := onPage(o.t, "docs/operations.md").under(heading, kindConsole)
	require.GreaterOrEqual(o.t, len(parts), end, heading)
	begun := time.Now()
	for _, part := range parts[first:end] {
		for i := 0; i < len(part.lines); {
			host, line, is := strings.Cut(part.lines[i], "$ ")
			require.True(o.t, is, "docs/operations.md:%d is no line that is typed", part.first+i+1)
			var shows []string
			for i++; i < len(part.lines) && !strings.HasPrefix(part.lines[i], "10.0."); i++ {
				shows = append(shows, o.here.Replace(part.lines[i]))
			}
			o.typed(o.here.Replace(host), o.here.Replace(line), shows)
		}
	}
	o.t.Logf("%s, parts %d to %d: %v", heading, first+1, end, time.Since(begun).Round(time.Second))
}

// under returns the parts of a kind below a heading, up to the next one.
func (p *docPage) under(heading, kind string) []docPart {
	from := slices.Index(p.lines, "## "+heading)
	if from < 0 {
		return nil
	}
	end := slices.IndexFunc(p.lines[from+1:], func(line string) bool { return strings.HasPrefix(line, "## ") })
	if end < 0 {
		end = len(p.lines)
	}
	var found []docPart
	for _, part := range p.of(kind) {
		if from < part.first && part.first <= from+1+end {
			found = append(found, part)
		}
	}
	return found
}

// typed types one line, repeatedly until it prints what it is to show.
func (o *operator) typed(host, line string, shows []string) {
	o.t.Helper()
	begun := time.Now()
	switch words := strings.Fields(line); {
	case words[0] == "systemctl" && words[2] == "cassandra":
		o.service(host, words[1])
	case line == "systemctl stop music":
		o.end(host)
	case line == "systemctl start music":
		o.proxies[host].begin(o.t)
		o.proxies[host].listens(o.t)
	case words[0] == "music" && words[1] == "proxy":
		o.begin(host, words)
		o.proxies[host].listens(o.t)
	default:
		eventually(o.t, operatorPatience, host+"$ "+line, func() error { return o.shell(host, line, shows) })
	}
	o.t.Logf("%s$ %s (%v)", host, line, time.Since(begun).Round(100*time.Millisecond))
}

// shell runs a line as the shell of a machine does.
func (o *operator) shell(host, line string, shows []string) error {
	ctx, cancel := context.WithTimeout(o.t.Context(), operatorPatience)
	defer cancel()
	files := strings.NewReplacer("/etc/cassandra/cassandra.yaml", o.file(host, "cassandra.yaml"), "/etc/cassandra/", o.folder(host)+"/")
	cmd := exec.CommandContext(ctx, "sh", "-c", files.Replace(line))
	cmd.Env = append(os.Environ(), "PATH="+o.bin(host)+":"+o.path)
	out, err := cmd.CombinedOutput()
	said := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range shows {
		if !strings.Contains(said, want) {
			return errorf("%q is not in:\n%s", want, out)
		}
	}
	if err != nil && len(shows) == 0 && !strings.Contains(said, "schema version mismatch") { // music check and cqlsh have a status for warnings
		return fatal{errorf("%w\n%s", err, out)}
	}
	return nil
}

// node returns the node of a machine, nil if there is none yet.
func (o *operator) node(host string) *cassandra.Node {
	for _, n := range o.cluster.Nodes() {
		if n.Host() == host {
			return n
		}
	}
	return nil
}

// file returns the path of a file of a machine's Cassandra.
func (o *operator) file(host, name string) string {
	if n := o.node(host); n != nil {
		return n.File(name)
	}
	return filepath.Join(o.folder(host), name)
}

// folder returns the folder of a machine's other files.
func (o *operator) folder(host string) string {
	dir := filepath.Join(o.dir, host)
	require.NoError(o.t, os.MkdirAll(dir, 0o700))
	return dir
}

// bin returns a folder with the nodetool of a machine, and a cqlsh with a long time-out.
func (o *operator) bin(host string) string {
	dir := o.folder(host)
	o.script(dir, "cqlsh", needPython(o.t).Cqlsh, "--connect-timeout=120", "--request-timeout=120")
	n := o.node(host)
	if n == nil {
		return dir
	}
	line, err := n.Tool()
	require.NoError(o.t, err)
	o.script(dir, "nodetool", line...)
	return dir
}

// script writes a program that runs a command line with the program's own arguments appended.
func (o *operator) script(dir, name string, line ...string) {
	text := "#!/bin/sh\nexec '" + strings.Join(line, "' '") + "' \"$@\"\n"
	require.NoError(o.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700)) //nolint:gosec // it is to be executed
}

// service starts or restarts a node. A new node joins, in place of the node that its properties
// name, if they do.
func (o *operator) service(host, do string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), startLimit)
	defer cancel()
	n := o.node(host)
	if n != nil {
		if do == "restart" {
			require.NoError(o.t, n.Stop(ctx))
		}
		require.NoError(o.t, n.Start(ctx))
		return
	}
	j := o.joining
	properties, _ := os.ReadFile(o.file(host, "jvm-server.options")) // none: it replaces nobody
	if _, dead, is := strings.Cut(strings.TrimSpace(string(properties)), "replace_address_first_boot="); is {
		j.Replaces = o.node(dead)
		require.NotNil(o.t, j.Replaces, dead)
	}
	joined, err := o.cluster.Join(ctx, j)
	require.NoError(o.t, err)
	require.Equal(o.t, host, joined.Host())
}

// begin starts the proxy of a machine without waiting for it.
func (o *operator) begin(host string, words []string) {
	o.t.Helper()
	p := &process{args: words[1:], address: host + ":9042", metrics: host + ":9044", log: new(logBuffer), limit: time.Hour}
	o.proxies[host] = p
	p.begin(o.t)
	o.t.Cleanup(func() {
		if o.t.Failed() {
			o.t.Logf("log of the proxy at %s:\n%s", host, p.log)
		}
	})
}

// end ends the proxy of a machine.
func (o *operator) end(host string) {
	o.t.Helper()
	require.NoError(o.t, o.proxies[host].cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(o.t, 0, o.proxies[host].status(o.t), "%s", o.proxies[host].log)
}

// operated is a table of which a client holds one lock all the time.
type operated struct {
	*operator
	table string
	ref   int64
	acked int  // the last write that was acknowledged
	doubt bool // whether the outcome of the next one is unknown
}

// newTable makes a table through the k-th proxy, and takes the lock.
func (o *operator) newTable(table, comment string, k int) *operated {
	o.t.Helper()
	s := &operated{operator: o, table: table}
	o.proxies[o.proxyAt(k)].listens(o.t) // it may just have come back with its node
	c := pinned(o.t, o.proxyAt(k)+":9042")
	defer c.close()
	require.NoError(o.t, c.run(statement{cql: "CREATE TABLE " + table + " (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '" + comment + "'"}).err())
	s.lock(c)
	s.goesOnAt(k)
	return s
}

// lock takes the lock, and checks the value.
func (s *operated) lock(c client) {
	s.t.Helper()
	eventually(s.t, operatorPatience, "a lock of "+s.table, func() error {
		o := c.run(statement{cql: "LOCK " + s.table + " WHERE branch = 'held'"})
		if told(o, "state") != "held" {
			return errorf("%v", o)
		}
		ref, err := strconv.ParseInt(told(o, "lock_ref"), 10, 64)
		s.ref, s.acked, s.doubt = ref, 0, false
		return err
	})
}

// goesOnAt has the holder read what it has written last, and write again, at the k-th proxy, as
// soon as that serves it.
func (s *operated) goesOnAt(k int) {
	s.t.Helper()
	c := pinned(s.t, s.proxyAt(k)+":9042")
	defer c.close()
	eventually(s.t, operatorPatience, fmt.Sprintf("the holder of %s goes on at proxy %d", s.table, k), func() error {
		err := s.writes(c)
		if err != nil && regexp.MustCompile("MUSIC_(LOST|NOT_HELD|REFUSED)").MatchString(err.Error()) {
			return fatal{err}
		}
		return err
	})
}

// writes does one read and one write of the holder, and renews its lease: if its proxy has died,
// only a LOCK tells another proxy the lease.
func (s *operated) writes(c client) error {
	if o := c.run(statement{cql: fmt.Sprintf("LOCK %s WHERE branch = 'held' USING LOCK %d WAIT 1s LEASE 1h", s.table, s.ref)}); o.failure != nil {
		return o.err()
	}
	if s.acked > 0 {
		o := c.run(statement{cql: fmt.Sprintf("SELECT balance FROM %s WHERE branch = 'held' AND id = 'x' USING LOCK %d", s.table, s.ref)})
		if o.failure != nil {
			return o.err()
		}
		balance := told(o, "balance")
		if balance != strconv.Itoa(s.acked) && (!s.doubt || balance != strconv.Itoa(s.acked+1)) {
			return fatal{errorf("%s is read in %s, and %d was acknowledged", balance, s.table, s.acked)}
		}
	}
	s.doubt = true
	o := c.run(statement{cql: fmt.Sprintf("UPDATE %s USING LOCK %d SET balance = %d WHERE branch = 'held' AND id = 'x'", s.table, s.ref, s.acked+1)})
	if o.failure != nil {
		return o.err()
	}
	s.acked, s.doubt = s.acked+1, false
	return nil
}

// refusedAt waits until the holder gets an error of one of these words at the k-th proxy.
func (s *operated) refusedAt(k int, words string) {
	s.t.Helper()
	c := pinned(s.t, s.proxyAt(k)+":9042")
	defer c.close()
	eventually(s.t, operatorPatience, fmt.Sprintf("the holder of %s is refused at proxy %d", s.table, k), func() error {
		if err := s.writes(c); err == nil || !regexp.MustCompile(words).MatchString(err.Error()) {
			return errorf("not %s: %w", words, err)
		}
		return nil
	})
}
