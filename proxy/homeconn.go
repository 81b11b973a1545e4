package proxy

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/google/uuid"

	"music/config"
)

// homeConn is a connection to the home node, for one request at a time. It is for questions that
// this node must answer: a driver's session chooses the node itself.
type homeConn struct {
	net   net.Conn
	read  *bufio.Reader
	codec frame.Codec
	at    int64  // home.current when the connection was opened
	name  string // the driver name that it sends, which no other connection has
}

// dialHome opens a connection and logs in as the proxy's own role.
func dialHome(ctx context.Context, h *home, c config.Cassandra) (*homeConn, error) {
	return dialHomeAs(ctx, h, h.nodes, c.Username, string(c.Password))
}

// dialHomeAs opens a connection and logs in as any role. If the node asks for no login, role and
// password are not sent.
func dialHomeAs(ctx context.Context, h *home, by *nodeDialer, role, password string) (*homeConn, error) {
	conn, err := h.reach(ctx, by)
	if err != nil {
		return nil, err
	}
	c := &homeConn{net: conn, read: bufio.NewReader(conn), codec: frame.NewCodec(), at: h.current.Load(), name: "MUSIC proxy " + rand.Text()}
	startup := message.NewStartup()
	startup.Options[message.StartupOptionDriverName] = c.name
	reply, err := c.call(ctx, startup)
	if _, asked := reply.(*message.Authenticate); asked {
		reply, err = c.call(ctx, &message.AuthResponse{Token: []byte("\x00" + role + "\x00" + password)})
		if _, more := reply.(*message.AuthChallenge); more {
			err = errChallenged
		}
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("log in to the home node: %w", err)
	}
	return c, nil
}

// errChallenged means that the node's login needs more than a role and its password.
var errChallenged = errors.New("the node asks for more than a role and its password")

// refusal is an ERROR of the home node.
type refusal struct {
	code primitive.ErrorCode
	text string
}

// Error returns the error with the node's text.
func (r *refusal) Error() string { return fmt.Sprintf("%v: %s", r.code, r.text) }

// refused reports whether err is an ERROR of the home node with a code.
func refused(err error, code primitive.ErrorCode) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == code
}

// call sends one request and blocks until its answer, or until ctx ends. An ERROR is returned as a
// refusal.
func (c *homeConn) call(ctx context.Context, request message.Message) (message.Message, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) }) // in the past: unblocks
	defer stop()
	if err := c.codec.EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, 1, request), c.net); err != nil {
		return nil, fmt.Errorf("ask the home node: %w", err)
	}
	reply, err := c.codec.DecodeFrame(c.read)
	if err != nil {
		return nil, fmt.Errorf("ask the home node: %w", err)
	}
	if failure, ok := reply.Body.Message.(message.Error); ok {
		return nil, fmt.Errorf("ask the home node: %w", &refusal{failure.GetErrorCode(), failure.GetErrorMessage()})
	}
	return reply.Body.Message, nil
}

// rows returns the rows of a SELECT, with cells in wire form.
func (c *homeConn) rows(ctx context.Context, cql string) (message.RowSet, error) {
	reply, err := c.call(ctx, &message.Query{Query: cql, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}})
	if err != nil {
		return nil, err
	}
	rows, ok := reply.(*message.RowsResult)
	if !ok {
		return nil, fmt.Errorf("ask the home node: %v is not an answer to a SELECT", reply)
	}
	return rows.Data, nil
}

// centre returns the data centre of the home node.
func (c *homeConn) centre(ctx context.Context) (string, error) {
	own, err := c.rows(ctx, "SELECT data_center FROM system.local")
	if err == nil && (len(own) != 1 || len(own[0][0]) == 0) {
		err = errNoHome
	}
	if err != nil {
		return "", err
	}
	return string(own[0][0]), nil
}

// close closes the connection.
func (c *homeConn) close() { _ = c.net.Close() }

// location holds a node's addresses: other nodes reach it at internal, drivers at native.
type location struct {
	host             uuid.UUID
	internal, native netip.AddrPort
}

// ring is the cluster as the home node sees it.
type ring struct {
	home   location
	others map[uuid.UUID]location
}

// has reports whether a node is part of the ring.
func (r *ring) has(host uuid.UUID) bool {
	_, other := r.others[host]
	return other || host == r.home.host
}

// hosts returns the host ids of all nodes of the ring.
func (r *ring) hosts() []gocql.UUID {
	all := []gocql.UUID{gocql.UUID(r.home.host)}
	for host := range r.others {
		all = append(all, gocql.UUID(host))
	}
	return all
}

// errNoHome means that the home node does not know its own id and addresses yet.
var errNoHome = errors.New("the home node does not know its own id and addresses yet")

// ring returns the cluster as the home node sees it.
func (c *homeConn) ring(ctx context.Context) (ring, error) {
	own, err := c.rows(ctx, "SELECT host_id, broadcast_address, broadcast_port, rpc_address, rpc_port FROM system.local")
	if err != nil {
		return ring{}, err
	}
	peers, err := c.rows(ctx, "SELECT host_id, peer, peer_port, native_address, native_port FROM system.peers_v2")
	if err != nil {
		return ring{}, err
	}
	if len(own) != 1 || len(own[0][0]) != len(uuid.UUID{}) {
		return ring{}, errNoHome
	}
	r := ring{home: readLocation(own[0]), others: map[uuid.UUID]location{}}
	for _, row := range peers {
		if len(row[0]) == len(uuid.UUID{}) {
			p := readLocation(row)
			r.others[p.host] = p
		}
	}
	return r, nil
}

// readLocation decodes a row of host id, and twice address and port.
func readLocation(row message.Row) location {
	return location{host: uuid.UUID(row[0]), internal: readAddress(row[1], row[2]), native: readAddress(row[3], row[4])}
}

// readAddress decodes an inet and an int; null gives the zero address.
func readAddress(inet, port []byte) netip.AddrPort {
	address, ok := netip.AddrFromSlice(inet)
	if !ok || len(port) != 4 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(binary.BigEndian.Uint32(port)))
}
