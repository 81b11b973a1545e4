package integration

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// breakingRelay is a relay between a proxy and its node. Until mend is called, it breaks every
// connection in one way.
type breakingRelay struct {
	address string
	breaks  func(from, to net.Conn) // nil = nobody listens

	mu       sync.Mutex
	broken   bool
	versions []byte // of the first request of each connection of a driver
	ln       net.Listener
	passing  sync.WaitGroup
}

// openBreakingRelay starts a broken relay, which is closed at the end of the test.
func openBreakingRelay(t *testing.T, breaks func(from, to net.Conn)) *breakingRelay {
	t.Helper()
	b := &breakingRelay{address: needEnvironment(t).address(), breaks: breaks, broken: true}
	if breaks != nil {
		b.listen(t)
	}
	t.Cleanup(func() {
		if b.ln != nil {
			_ = b.ln.Close()
		}
		b.passing.Wait()
	})
	return b
}

func (b *breakingRelay) listen(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", b.address)
	require.NoError(t, err)
	b.ln = ln
	b.passing.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			b.passing.Go(func() { b.pass(t, from) })
		}
	})
}

// pass relays one connection, or breaks it.
func (b *breakingRelay) pass(t *testing.T, from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", needEnvironment(t).direct())
	if !assert.NoError(t, err) {
		return
	}
	first := make([]byte, 9)
	if _, err = io.ReadFull(from, first); err == nil {
		body := make([]byte, binary.BigEndian.Uint32(first[5:]))
		_, err = io.ReadFull(from, body)
		first = append(first, body...)
	}
	b.mu.Lock()
	broken := b.broken
	if err == nil && primitive.OpCode(first[4]) == primitive.OpCodeOptions { // the first request of a driver; the proxy's own is STARTUP
		b.versions = append(b.versions, first[0])
	}
	b.mu.Unlock()
	_, _ = to.Write(first)
	if broken {
		b.breaks(from, to)
		_ = to.Close()
		return
	}
	b.passing.Go(func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	})
	_, _ = io.Copy(from, to)
}

// mend has the relay work from now on.
func (b *breakingRelay) mend(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	b.broken = false
	b.mu.Unlock()
	if b.ln == nil {
		b.listen(t)
	}
}

// connector tries to connect to an address and to send a request, in whatever protocol version it
// negotiates.
type connector struct {
	name    string
	version byte // of each connection's first request; 0: that is not OPTIONS, and no connection may be made in a lower version
	slow    bool // if a connection just ends, it waits for its time-out
	connect func(t *testing.T, address string) func() error
}

// connectors returns the drivers that negotiate the protocol version.
func connectors() []connector {
	return []connector{
		{"gocql v1", 4, false, func(_ *testing.T, address string) func() error {
			return func() error {
				s, err := cluster1(address, "").CreateSession()
				if err != nil {
					return err
				}
				defer closeWithin(s.Close)
				return s.Query("SELECT key FROM system.local").Exec()
			}
		}},
		{"gocql v2", 5, false, func(_ *testing.T, address string) func() error {
			return func() error {
				s, err := cluster2(address, "").CreateSession()
				if err != nil {
					return err
				}
				defer closeWithin(s.Close)
				return s.Query("SELECT key FROM system.local").Exec()
			}
		}},
		{"python", 5, true, func(t *testing.T, address string) func() error {
			cmd, _ := program(t, needPython(t).Python, filepath.Join("testdata", "connect.py"), hostOf(t, address))
			return programConnects(t, cmd)
		}},
	}
}

// programConnects connects with a program that tries once for each line of input, and prints the
// result.
func programConnects(t *testing.T, cmd *exec.Cmd) func() error {
	t.Helper()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		assert.NoError(t, cmd.Wait())
	})
	lines := bufio.NewScanner(out)
	return func() error {
		if _, err := io.WriteString(in, "again\n"); err != nil {
			return err
		}
		switch {
		case !lines.Scan():
			return fatal{errorf("the program has ended: %w", lines.Err())}
		case lines.Text() == "connected":
			return nil
		}
		return errors.New(lines.Text())
	}
}

// waysToBreak returns the ways in which a node can fail during the handshake.
func waysToBreak() map[string]func(from, to net.Conn) {
	return map[string]func(from, to net.Conn){
		"refuses": nil,
		"resets":  func(from, _ net.Conn) { _ = from.(*net.TCPConn).SetLinger(0) },
		"ends":    func(net.Conn, net.Conn) {},
		"ends after the first answer": func(from, to net.Conn) {
			answer := make([]byte, 64<<10)
			n, _ := to.Read(answer)
			_, _ = from.Write(answer[:n])
		},
		"stalls": func(from, _ net.Conn) { _, _ = io.Copy(io.Discard, from) },
	}
}

// A driver whose node fails during the handshake returns an error, and does not try a lower
// protocol version.
func TestNoDriverDowngrades(t *testing.T) {
	needPython(t)
	noDowngrade(t, connectors())
}

// noDowngrade has each driver connect through a proxy whose node fails in each way, and again when
// the node is back.
func noDowngrade(t *testing.T, all []connector) {
	t.Helper()
	blamed := regexp.MustCompile(`unsupported protocol|tried versions|ProtocolVersion`)
	for _, c := range all {
		for way, breaks := range waysToBreak() {
			if c.slow && strings.HasPrefix(way, "ends") {
				continue
			}
			t.Run(c.name+", a node that "+way, func(t *testing.T) {
				b := openBreakingRelay(t, breaks)
				p := startProxy(t, func(c *config.Config) {
					c.Cassandra.ContactPoints, c.Music.Locks, c.Limits.HandshakeTimeout = []string{b.address}, false, time.Second
				})
				connect := c.connect(t, p.address)
				err := connect()
				require.Error(t, err)
				assert.NotRegexp(t, blamed, err.Error())
				b.mend(t)
				eventually(t, time.Minute, "connected", connect)
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, version := range b.versions {
					assert.Equal(t, c.version, version, "of all connections")
				}
				assert.Equal(t, c.version > 0, len(b.versions) > 0)
				assert.Regexp(t, `"level":"(info|warn)".*Cassandra`, p.log.String())
			})
		}
	}
}
