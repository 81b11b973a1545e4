package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is the built program.
type process struct {
	cmd     *exec.Cmd
	program string // that is started; empty = what is built of this tree
	args    []string
	address string
	metrics string
	log     *logBuffer
	limit   time.Duration // after which it ends; 0 = programTimeout
}

// startProcess starts `music proxy` in front of a node and returns once it listens.
func startProcess(t *testing.T, node string, args ...string) *process {
	t.Helper()
	p := newProcess(t, node, needEnvironment(t).address(), args...)
	p.begin(t)
	p.listens(t)
	return p
}

// newProcess returns a process that is not started yet.
func newProcess(t *testing.T, node, address string, args ...string) *process {
	t.Helper()
	p := &process{address: address, metrics: ownAddress(t), log: new(logBuffer)}
	p.args = append([]string{"proxy", "--contact-points", node, "--listen", p.address, "--metrics-listen", p.metrics}, args...)
	return p
}

// begin starts the program, for the first time or again, without waiting for it. It is killed at
// the end of the test at the latest.
func (p *process) begin(t *testing.T) {
	t.Helper()
	built, err := needEnvironment(t).binary()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(p.limit, programTimeout))
	cmd := exec.CommandContext(ctx, cmp.Or(p.program, built), p.args...)
	cmd.Stderr = p.log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // again where the test has waited
	})
	p.cmd = cmd
}

// listens waits until the program serves drivers.
func (p *process) listens(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "the program listens", func() error {
		conn, err := net.DialTimeout("tcp", p.address, time.Second)
		if err != nil {
			return errorf("%w\n%s", err, p.log)
		}
		return conn.Close()
	})
}

// status waits for the end of the program.
func (p *process) status(t *testing.T) int {
	t.Helper()
	err := p.cmd.Wait()
	var ended *exec.ExitError
	require.True(t, err == nil || errors.As(err, &ended), "%v", err)
	return p.cmd.ProcessState.ExitCode()
}

// refusesClients returns nil if nothing listens any more.
func (p *process) refusesClients() error {
	conn, err := net.DialTimeout("tcp", p.address, time.Second)
	if err != nil {
		return nil
	}
	_ = conn.Close()
	return errorf("still listening")
}

// After SIGTERM, requests in flight are answered, idle connections are closed, and the process ends with
// status 0.
func TestSIGTERMDrains(t *testing.T) {
	node := needDisposableNode(t)
	for _, locks := range []string{"on", "off"} {
		t.Run("locks "+locks, func(t *testing.T) {
			p := startProcess(t, node.Addr(), "--locks", locks)
			slow := openWire(t, p.address, primitive.ProtocolVersion5, primitive.CompressionLz4)
			idle := openWire(t, p.address, primitive.ProtocolVersion4, primitive.CompressionNone)
			pause(t, node)
			require.NoError(t, slow.send(plainQuery("SELECT cluster_name FROM system.local"), nil))
			seen := &instance{metrics: p.metrics}
			eventually(t, wireTimeout, "the request is on its way", func() error {
				if n, err := seen.requests("QUERY", "forwarded"); n != 1 {
					return errorf("%d forwarded, %w", n, err)
				}
				return nil
			})
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			eventually(t, time.Minute, "no new clients", p.refusesClients)
			_, err := idle.receive()
			assert.Error(t, err, "a client that is owed nothing is let go at once")

			require.NoError(t, node.Resume())
			e, err := slow.receive()
			require.NoError(t, err, "the request in flight is answered\n%s", p.log)
			assert.Equal(t, primitive.OpCodeResult, e.opcode())
			assert.True(t, bytes.Contains(e.body, []byte("cluster_name")))
			assert.Equal(t, 0, p.status(t), "%s", p.log)
		})
	}
}

// A request in flight for longer than shutdown-timeout gets an error, and the process ends.
func TestSIGTERMEndsInTimeWhateverIsInFlight(t *testing.T) {
	node := needDisposableNode(t)
	p := startProcess(t, node.Addr(), "--locks", "off", "--shutdown-timeout", "1s")
	slow := openWire(t, p.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	pause(t, node)
	require.NoError(t, slow.send(plainQuery("SELECT cluster_name FROM system.local"), nil))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	opcodes, _, _ := answersUntilEnd(slow)
	assert.Equal(t, map[int16]primitive.OpCode{slow.stream: primitive.OpCodeError}, opcodes, "told that nobody knows")
	assert.Equal(t, 0, p.status(t), "%s", p.log)
}

// A proxy that still waits for Cassandra ends at once.
func TestSIGTERMBeforeCassandraIsThere(t *testing.T) {
	path, err := needEnvironment(t).binary()
	require.NoError(t, err)
	p := &process{address: needEnvironment(t).address(), log: new(logBuffer)}
	p.cmd = exec.Command(path, "proxy", "--contact-points", "127.0.5.1", "--listen", p.address, "--metrics-listen", "")
	p.cmd.Stderr = p.log
	require.NoError(t, p.cmd.Start())
	eventually(t, time.Minute, "the program waits for Cassandra", func() error {
		if !bytes.Contains([]byte(p.log.String()), []byte("cannot be reached yet")) {
			return errorf("log: %s", p.log)
		}
		return nil
	})
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 0, p.status(t), "%s", p.log)
}

// A lock that is held when its proxy ends can be used at the next one.
func TestHeldLockOutlivesItsProxy(t *testing.T) {
	shared := needEnvironment(t)
	p := startProcess(t, shared.direct())
	c := withGocql2(4, "").open(t, p.address, "")
	o := c.run(statement{cql: "LOCK music.named WHERE name = 'outlives' LEASE 60s"})
	require.NoError(t, o.err())
	require.Equal(t, "held", told(o, "state"))
	ref := told(o, "lock_ref")
	write := "UPDATE music.named USING LOCK " + ref + " SET value = 'v' WHERE name = 'outlives'"
	require.NoError(t, c.run(statement{cql: write}).err())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 0, p.status(t), "%s", p.log)

	other := withGocql2(5, "").open(t, needProxy(t), "")
	require.NoError(t, other.run(statement{cql: write}).err(), "the reference goes on through another proxy, at once")
	o = other.run(statement{cql: "UNLOCK music.named WHERE name = 'outlives' USING LOCK " + ref})
	assert.Equal(t, "released", told(o, "state"), "%v", o)
}
