package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/proxy/peer"
)

// eventListener is a connection that receives events of proxies.
type eventListener struct {
	*wire
	t testing.TB
}

// listenTo registers for all events.
func listenTo(t testing.TB, address string) eventListener {
	t.Helper()
	w := openWire(t, address, primitive.ProtocolVersion4, primitive.CompressionNone)
	e, err := w.ask(&message.Register{EventTypes: []primitive.EventType{
		primitive.EventTypeSchemaChange, primitive.EventTypeStatusChange, primitive.EventTypeTopologyChange,
	}})
	require.NoError(t, err)
	require.Equal(t, primitive.OpCodeReady, e.opcode())
	return eventListener{w, t}
}

// until returns the events of one proxy, up to the last one wanted. There may be others of other
// proxies, since all serve now.
func (e eventListener) until(last string) []string {
	e.t.Helper()
	var all []string
	for patience := 3; ; {
		next, err := e.receive()
		if errors.Is(err, os.ErrDeadlineExceeded) && patience > 0 {
			patience-- // nothing was read of the next one
			continue
		}
		require.NoError(e.t, err, "after %q, waiting for %s", all, last)
		f, err := e.decode(next)
		require.NoError(e.t, err)
		change, of := heardOf(f.Body.Message)
		if !strings.HasSuffix(last, " "+of) {
			continue
		}
		all = append(all, change+" "+of)
		if all[len(all)-1] == last {
			return all
		}
	}
}

// heardOf returns the change that an event reports and the address of its proxy; nothing for an
// event of the schema.
func heardOf(m message.Message) (change, of string) {
	switch m := m.(type) {
	case *message.StatusChangeEvent:
		return string(m.ChangeType), inetOf(m.Address)
	case *message.TopologyChangeEvent:
		return string(m.ChangeType), inetOf(m.Address)
	}
	return "", "nobody"
}

func inetOf(i *primitive.Inet) string { return net.JoinHostPort(i.Addr.String(), fmt.Sprint(i.Port)) }

// execOnNodes runs a statement on the nodes themselves.
func execOnNodes(t testing.TB, cql string) outcome {
	t.Helper()
	var points []string
	for _, n := range threeNodes(t).Nodes() {
		if n.PID() != 0 {
			points = append(points, n.Addr())
		}
	}
	c := cluster2(points[0], "")
	c.Hosts = points
	g := openGocql2(t, c)
	defer g.close()
	var o outcome
	eventually(t, startLimit, cql, func() error { // where a node has just died, Cassandra asks it all the same for a while
		o = g.run(statement{cql: cql, level: "QUORUM"})
		return o.err()
	})
	return o
}

// hostID returns the host id of a node, as the node itself reports it.
func hostID(t testing.TB, address string) string {
	t.Helper()
	w := openWire(t, address, primitive.ProtocolVersion4, primitive.CompressionNone)
	defer func() { _ = w.net.Close() }()
	e, err := w.ask(plainQuery("SELECT host_id FROM system.local"))
	require.NoError(t, err)
	f, err := w.decode(e)
	require.NoError(t, err)
	id, err := gocql.UUIDFromBytes(f.Body.Message.(*message.RowsResult).Data[0][0])
	require.NoError(t, err)
	return id.String()
}

// A driver gets DOWN for a proxy that has stopped, and UP when it serves again.
func TestEventsOfProxiesThatComeAndGo(t *testing.T) {
	all := threeProxies(t)
	third := all[2]
	host := hostID(t, third.address)
	heard := listenTo(t, all[0].address)

	require.NoError(t, third.stop())
	heard.until("DOWN " + third.address)
	third.start()
	assert.Equal(t, []string{"UP " + third.address}, heard.until("UP "+third.address))
	require.NoError(t, third.stop())
	execOnNodes(t, "DELETE FROM music.proxies WHERE host_id = "+host)
	heard.until("REMOVED_NODE " + third.address)
	third.start()
	assert.Equal(t, []string{"NEW_NODE " + third.address, "UP " + third.address}, heard.until("UP "+third.address))
}

// kill kills a node, which is started again at the end of the test at the latest.
func kill(t *testing.T, k int) {
	t.Helper()
	n := threeNodes(t).Nodes()[k-1]
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		assert.NoError(t, threeNodes(t).Wait(ctx))
	})
	restartAfterTest(t, n)
	require.NoError(t, n.Kill())
}

// refuses returns nil if nothing listens at the proxy's address any more.
func (m *clusterProxy) refuses() error {
	conn, err := net.DialTimeout("tcp", m.address, time.Second)
	if err != nil {
		return nil
	}
	_ = conn.Close()
	return errorf("still listening")
}

// A proxy whose node is down stops listening, and drivers use the others; it listens again when the
// node is back.
func TestNodeKilledBehindOneOfThreeProxies(t *testing.T) {
	all := threeProxies(t)
	const left = "00000000-0000-0000-0000-000000000007"
	execOnNodes(t, "INSERT INTO music.proxies (host_id, address, port, version, serving) VALUES ("+left+", '127.0.6.7', 9042, '1', true)")
	execOnNodes(t, "CREATE KEYSPACE IF NOT EXISTS everywhere WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}")
	execOnNodes(t, "CREATE TABLE IF NOT EXISTS everywhere.t (k int PRIMARY KEY, v int)")
	r := newRecorder()
	c := cluster2(all[2].address, "")
	c.Dialer = r
	c.ReconnectInterval = time.Second
	c.HostFilter = gocql.HostFilterFunc(func(h *gocql.HostInfo) bool { return r.hear(h.ConnectAddress().String()) })
	g := openGocql2(t, c)
	write := func() error { return g.session.Query("INSERT INTO everywhere.t (k, v) VALUES (1, 2)").Exec() }
	require.NoError(t, write())
	heard, there := listenTo(t, all[0].address), openWire(t, all[2].address, primitive.ProtocolVersion4, primitive.CompressionNone)

	killed := time.Now()
	kill(t, 3)
	eventually(t, time.Minute, "nobody listens before the node that is down", all[2].refuses)
	t.Logf("nobody listens after %v", time.Since(killed))
	_, err := there.receive()
	assert.Error(t, err, "connections that there were have ended")
	eventually(t, time.Minute, "the driver goes on", func() error {
		for range 50 {
			if err := write(); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("the driver goes on after %v", time.Since(killed))
	heard.until("DOWN " + all[2].address)
	t.Logf("drivers are told after %v", time.Since(killed))
	o := execOnNodes(t, "SELECT serving FROM music.proxies WHERE host_id = "+hostOfProxy(t, all[2].address))
	assert.Equal(t, "false", o.cell("serving"))

	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	require.NoError(t, threeNodes(t).Nodes()[2].Start(ctx))
	t.Logf("the node is back after %v", time.Since(killed))
	eventually(t, 60*time.Second, "the proxy listens again", all[2].answers)
	assert.Equal(t, []string{"UP " + all[2].address}, heard.until("UP "+all[2].address))
	t.Logf("drivers are told that it is back after %v", time.Since(killed))
	dialsProxiesAlone(t, r)
	eventually(t, 90*time.Second, "the proxy of a node that is not in the ring is forgotten", func() error {
		if rows := execOnNodes(t, "SELECT host_id FROM music.proxies WHERE host_id = "+left).rows; len(rows) > 0 {
			return errorf("%v", rows)
		}
		return nil
	})
}

// hostOfProxy returns the host id of the node that a proxy stands for.
func hostOfProxy(t testing.TB, address string) string {
	t.Helper()
	return execOnNodes(t, "SELECT host_id FROM music.proxies WHERE address = '"+hostOf(t, address)+"' ALLOW FILTERING").cell("host_id")
}

// A single proxy connects to another node when its own is down, and then stands for that one.
func TestLoneProxyMoves(t *testing.T) {
	forgetProxies(t)
	c := proxyOfNode(t, 1)
	c.Music.ExpectProxies = 1
	var hosts []string
	for _, n := range threeNodes(t).Nodes() {
		hosts = append(hosts, hostID(t, n.Addr()))
	}
	c.Cassandra.ContactPoints = threeNodes(t).ContactPoints()
	p := startWithoutWaiting(t, c)
	p.listens()
	assert.Equal(t, hosts[0], hostOfProxy(t, p.address))
	assert.Equal(t, hosts[0], hostID(t, p.address))

	kill(t, 1)
	eventually(t, time.Minute, "the proxy stands for the next node", func() error {
		if now := hostOfProxy(t, p.address); now != hosts[1] {
			return errorf("for %s", now)
		}
		return nil
	})
	assert.Equal(t, hosts[1], hostID(t, p.address))
	assert.Len(t, execOnNodes(t, "SELECT host_id FROM music.proxies").rows, 1, "its old row is gone")
	require.NoError(t, p.answers())
}

// refusedAtStart starts a proxy that must not start, and returns why.
func refusedAtStart(t *testing.T, m *instance) string {
	t.Helper()
	defer m.cancel()
	select {
	case <-m.done:
		require.Error(t, m.err)
		return m.err.Error()
	case <-time.After(60 * time.Second):
		require.FailNow(t, "the proxy starts", "%s", m.log)
		return ""
	}
}

// A proxy whose port, address or release does not fit the others' refuses to start, and says why.
func TestProxiesThatDoNotFitTogether(t *testing.T) {
	forgetProxies(t)
	first := proxyOfNode(t, 1)
	first.Music.ExpectProxies = 1
	p := startWithoutWaiting(t, first)
	p.listens()
	second := proxyOfNode(t, 2)
	second.Music.ExpectProxies = 1

	other := second
	other.Listen.Address = "127.0.6.2:9043"
	why := refusedAtStart(t, begin(other))
	assert.Contains(t, why, "the one at 127.0.6.1:9042 is on port 9042, this one on 9043")

	same := second
	same.Listen.Address = first.Listen.Address
	assert.Contains(t, refusedAtStart(t, begin(same)), "another one says that it is at 127.0.6.1:9042")

	session := execOnNodes(t, "SELECT session FROM music.proxies").cell("session")
	execOnNodes(t, "UPDATE music.sessions SET version = 9 WHERE session = "+session) // above its beats, which go on
	sessions := len(execOnNodes(t, "SELECT session FROM music.sessions").rows)
	why = refusedAtStart(t, begin(second))
	assert.Contains(t, why, fmt.Sprintf("speaks version 9 of what proxies say to each other, this one %d", peer.Version))
	assert.Contains(t, why, session)
	assert.Len(t, execOnNodes(t, "SELECT session FROM music.sessions").rows, sessions, "it has done nothing")
	execOnNodes(t, fmt.Sprintf("UPDATE music.sessions SET version = %d WHERE session = %s", peer.Version+1, session))

	third := hostID(t, threeNodes(t).Nodes()[2].Addr())
	execOnNodes(t, "INSERT INTO music.proxies (host_id, address, port, version, serving, session) VALUES ("+third+", '127.0.6.2', 9042, '1', true, 00000000-0000-0000-0000-000000000001)")
	startWithoutWaiting(t, second).listens() // what is dead is no hindrance
}

// A proxy that expects others listens when they serve, so that the first driver sees all of them.
func TestExpectedProxies(t *testing.T) {
	forgetProxies(t)
	c := proxyOfNode(t, 1)
	c.Music.ExpectProxies = 2
	first := startWithoutWaiting(t, c)
	first.log.tells(t, "waits for the others")
	require.Error(t, first.answers())
	second := proxyOfNode(t, 2)
	second.Music.ExpectProxies = 2
	other := startWithoutWaiting(t, second)
	first.listens()
	other.listens()
	for _, m := range []*clusterProxy{first, other} {
		g := openGocql2(t, cluster2(m.address, ""))
		assert.Len(t, g.session.GetHosts(), 2)
		g.close()
	}
}
