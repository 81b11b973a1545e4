package cassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// javaOf returns a fetcher of a "java" that is a shell script.
func javaOf(t *testing.T, text string) fetcher {
	t.Helper()
	d := Distribution{Java: script(t, text), Lib: "/jars"}
	return func(context.Context, string, string, io.Writer) (Distribution, error) { return d, nil }
}

// pretend returns the options of a cluster that is none, on addresses that no real one of this package has.
func pretend(t *testing.T, nodes int) Options {
	t.Helper()
	return Options{Dir: filepath.Join(t.TempDir(), "c"), Nodes: nodes, Address: func(k int) string { return address9(100 + k) }}
}

// fake answers as a node does that says what its fields say.
type fake struct {
	peers   int
	schema  string
	auth    bool
	refused atomic.Int32          // so many logins are refused first
	level   atomic.Uint32         // of the latest read of a distributed table
	unready func(cql string) bool // statements answered with an error
}

// answer is the reply to a request.
func (f *fake) answer(request message.Message) message.Message {
	switch m := request.(type) {
	case *message.Startup:
		if f.auth {
			return &message.Authenticate{Authenticator: "PasswordAuthenticator"}
		}
		return &message.Ready{}
	case *message.AuthResponse:
		if string(m.Token) != "\x00ann\x00secret" || f.refused.Add(-1) >= 0 {
			return &message.AuthenticationError{ErrorMessage: "Provided username ann and/or password are incorrect"}
		}
		return &message.AuthSuccess{}
	case *message.Query:
		return f.rows(m)
	}
	return &message.ProtocolError{ErrorMessage: "what?"}
}

// rows is the reply to a query.
func (f *fake) rows(m *message.Query) message.Message {
	if f.unready != nil && f.unready(m.Query) {
		return &message.Unavailable{ErrorMessage: "Cannot achieve consistency level", Consistency: m.Options.Consistency}
	}
	var data message.RowSet
	switch {
	case strings.Contains(m.Query, "peers_v2"):
		for range f.peers {
			data = append(data, message.Row{[]byte{127, 0, 0, 1}})
		}
	case strings.Contains(m.Query, "schema_version"):
		data = message.RowSet{{[]byte(f.schema)}}
	default:
		f.level.Store(uint32(m.Options.Consistency))
	}
	return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 1}, Data: data}
}

// serve answers on addr until the test ends.
func (f *fake) serve(t *testing.T, addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	must(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.talk(conn) })
		}
	})
	t.Cleanup(func() { must(t, l.Close()); all.Wait() })
}

// talk serves one connection.
func (f *fake) talk(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	codec := frame.NewCodec()
	for {
		request, err := codec.DecodeFrame(conn)
		if err != nil {
			return
		}
		reply := frame.NewFrame(primitive.ProtocolVersion4, request.Header.StreamId, f.answer(request.Body.Message))
		if err := codec.EncodeFrame(reply, conn); err != nil {
			return
		}
	}
}

// startFakes starts a cluster of which the processes sleep and the fakes answer.
func startFakes(ctx context.Context, t *testing.T, o Options, fakes ...*fake) (*Cluster, error) {
	t.Helper()
	sleep := javaOf(t, "exec sleep 1000")
	c, err := start(ctx, o, func(ctx context.Context, runDir, release string, log io.Writer) (Distribution, error) {
		for i, f := range fakes { // only now: the ports have to be free at first
			f.serve(t, net.JoinHostPort(o.Address(i+1), "9042"))
		}
		return sleep(ctx, runDir, release, log)
	})
	if err == nil {
		t.Cleanup(func() { must(t, c.Close()) })
	}
	return c, err
}

// Start returns when all nodes see each other and a read at every one of them succeeds.
func TestStartThree(t *testing.T) {
	o := pretend(t, 3)
	fakes := []*fake{{peers: 2, schema: "s"}, {peers: 2, schema: "s"}, {peers: 2, schema: "s"}}
	c, err := startFakes(t.Context(), t, o, fakes...)
	must(t, err)
	assert.Equal(t, "127.0.9.101:9042 127.0.9.102:9042 127.0.9.103:9042", strings.Join(c.ContactPoints(), " "), "contact points")
	for k, n := range c.Nodes() {
		assert.Equal(t, primitive.ConsistencyLevelAll, primitive.ConsistencyLevel(fakes[k].level.Load()), "node %d was read", k+1)
		assert.NotEmpty(t, stateOf(n.PID()), "node %d: pid %d, %s, %s", k+1, n.PID(), n.Host(), n.LogFile())
		assert.Equal(t, address9(101+k), n.Host(), "node %d: pid %d, %s, %s", k+1, n.PID(), n.Host(), n.LogFile())
		assert.Equal(t, filepath.Join(o.Dir, fmt.Sprintf("n%d", k+1)), filepath.Dir(n.LogFile()), "node %d: pid %d, %s, %s", k+1, n.PID(), n.Host(), n.LogFile())
	}
	assert.Len(t, processesOf(t, o.Dir), 3)
	must(t, c.Close())
	assert.Empty(t, processesOf(t, o.Dir), "still there")
}

// The wait ends in vain, with the reason, while any node is not as it must be.
func TestWaitTellsWhyNot(t *testing.T) {
	for want, fakes := range map[string][]*fake{
		"node 1: connect:":                  {},
		"node 2: connect:":                  {{peers: 1, schema: "s"}},
		"node 2 knows 0 of 1 peers":         {{peers: 1, schema: "s"}, {schema: "s"}},
		"the nodes' schema versions differ": {{peers: 1, schema: "s"}, {peers: 1, schema: "t"}},
		"node 1: log in as cassandra:":      {{peers: 1, schema: "s", auth: true}, {peers: 1, schema: "s"}},
		"view_name='': ErrorCode Unavailable": {
			{peers: 1, schema: "s", unready: func(cql string) bool { return strings.Contains(cql, "view_build_status") }},
		},
	} {
		t.Run(want, func(t *testing.T) {
			const most = 10 * time.Second // a busy machine needs more time until it knows
			for limit := 150 * time.Millisecond; ; limit *= 4 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				o := pretend(t, 2)
				_, err := startFakes(ctx, t, o, fakes...)
				assert.Empty(t, processesOf(t, o.Dir), "still there")
				if limit < most && !strings.Contains(fmt.Sprint(err), want) {
					continue
				}
				assert.ErrorIs(t, err, context.DeadlineExceeded, "no %q", want)
				assert.ErrorContains(t, err, want)
				return
			}
		})
	}
}

// The default role is made some time after a node answers: refused logins are tried again.
func TestWaitsForTheRole(t *testing.T) {
	f := &fake{schema: "s", auth: true}
	f.refused.Store(2)
	o := pretend(t, 1)
	o.Access.Username, o.Access.Password = "ann", "secret"
	_, err := startFakes(t.Context(), t, o, f)
	must(t, err)
	level := primitive.ConsistencyLevel(f.level.Load())
	assert.Equal(t, primitive.ConsistencyLevelOne, level, "read at %v, %d refusals left", level, f.refused.Load())
	assert.Less(t, f.refused.Load(), int32(0), "read at %v, %d refusals left", level, f.refused.Load())
}

// everyOf is the consistency level that every node of a cluster must answer at.
func TestEveryOf(t *testing.T) {
	for n, want := range map[int]primitive.ConsistencyLevel{
		1: primitive.ConsistencyLevelOne, 2: primitive.ConsistencyLevelTwo, 3: primitive.ConsistencyLevelAll, 9: primitive.ConsistencyLevelAll,
	} {
		assert.Equal(t, want, everyOf(n), "%d", n)
	}
}

// A node that dies while it starts is reported at once, with the end of its log, and the others are ended too.
func TestDeathWhileStarting(t *testing.T) {
	o := pretend(t, 2)
	_, err := start(t.Context(), o, javaOf(t, `
case $1 in */n2/args) echo "out of everything" >&2; echo "last log line" > system.log; exit 3;; esac
exec sleep 1000`))
	require.ErrorIs(t, err, ErrNotRunning)
	for _, want := range []string{"start cassandra: ", "node 2: ", "exit status 3", "out of everything", "last log line"} {
		assert.ErrorContains(t, err, want)
	}
	assert.Empty(t, processesOf(t, o.Dir), "still there")
	l, err := tryLock(filepath.Join(o.Dir, "lock"))
	must(t, err) // given back
	l.release()
}

// Start returns which node could not be started, and why.
func TestNodeThatCannotStart(t *testing.T) {
	_, err := start(t.Context(), pretend(t, 1), func(context.Context, string, string, io.Writer) (Distribution, error) {
		return Distribution{Java: "/nowhere/java", Lib: "/jars"}, nil
	})
	assert.ErrorContains(t, err, "start node 1: start /nowhere/java: ")
}

// Start fails with the error of the fetch, and leaves nothing but the lock.
func TestFetchFailsTheStart(t *testing.T) {
	boom := errors.New("boom")
	o := pretend(t, 1)
	_, err := start(t.Context(), o, func(context.Context, string, string, io.Writer) (Distribution, error) { return Distribution{}, boom })
	assert.ErrorIs(t, err, boom)
	assert.Equal(t, "lock", entries(t, o.Dir), "%v", err)
}

// Ports that are in use are named, before the node of another cluster is touched.
func TestPortInUse(t *testing.T) {
	for _, addr := range []string{"127.0.9.102:9042", "127.0.9.101:7000"} {
		(&fake{}).serve(t, addr)
	}
	o := pretend(t, 2)
	node := filepath.Join(o.Dir, "n1")
	must(t, os.MkdirAll(node, 0o755))
	_, err := start(t.Context(), o, javaOf(t, "exit 9"))
	assert.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "port 127.0.9.102:9042: in use")
	assert.ErrorContains(t, err, "port 127.0.9.101:7000: in use")
	assert.True(t, isDir(node), "the other's node is removed")
}

// An address that this machine does not have is named, and is not taken for one in use.
func TestAddressOfOtherMachine(t *testing.T) {
	o := pretend(t, 1)
	o.Address = func(int) string { return "192.0.2.1" } // reserved for documentation
	_, err := start(t.Context(), o, javaOf(t, "exit 9"))
	assert.Error(t, err)
	assert.NotErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "192.0.2.1:9042")
}

// Two clusters cannot share a directory: the second would remove the files of the first.
func TestDirInUse(t *testing.T) {
	o := pretend(t, 1)
	_, err := startFakes(t.Context(), t, o, &fake{schema: "s"})
	must(t, err)
	o.Address = func(k int) string { return address9(110 + k) }
	_, err = start(t.Context(), o, javaOf(t, "exit 9"))
	assert.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, o.Dir)
	assert.True(t, isDir(filepath.Join(o.Dir, "n1")), "the node is removed")
}

// The storage of an earlier cluster is removed, or with Keep kept.
func TestFreshOrKept(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("Keep %v", keep), func(t *testing.T) { freshOrKept(t, keep) })
	}
}

// freshOrKept starts where an earlier cluster, of more nodes, left its storage.
func freshOrKept(t *testing.T, keep bool) {
	o := pretend(t, 1)
	o.Keep = keep
	for _, node := range []string{"n1", "n3"} {
		must(t, os.MkdirAll(filepath.Join(o.Dir, node, "data"), 0o755))
	}
	c, err := startFakes(t.Context(), t, o, &fake{schema: "s"})
	must(t, err)
	for _, node := range []string{"n1", "n3"} {
		assert.Equal(t, keep, isDir(filepath.Join(o.Dir, node, "data")), "%s has data", node)
	}
	must(t, c.Wipe())
	assert.Equal(t, "lock", entries(t, o.Dir))
}

// Start refuses invalid Options.
func TestStartRefusesBadOptions(t *testing.T) {
	_, err := Start(t.Context(), Options{Nodes: 9})
	require.Error(t, err)
	assert.True(t, strings.HasPrefix(err.Error(), "start cassandra: no Dir"), "%v", err)
}
