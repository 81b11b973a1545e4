package proxy

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// fakeNode answers each request with what answer says, until the test ends. nil is no answer.
func fakeNode(t *testing.T, answer func(message.Message) message.Message) *home {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go serveFake(conn, answer)
		}
	}()
	return homeAt(200*time.Millisecond, []string{ln.Addr().String()})
}

// homeAt dials addresses in plain text.
func homeAt(timeout time.Duration, addresses []string) *home {
	dialer := &nodeDialer{timeout: timeout}
	return &home{addresses: addresses, nodes: dialer, clients: dialer, timeout: timeout}
}

// serveFake answers one connection.
func serveFake(conn net.Conn, answer func(message.Message) message.Message) {
	codec := frame.NewCodec()
	for {
		f, err := codec.DecodeFrame(conn)
		if err != nil {
			return
		}
		reply := answer(f.Body.Message)
		if reply == nil {
			continue
		}
		if codec.EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, f.Header.StreamId, reply), conn) != nil {
			return
		}
	}
}

// placeRows is what a node answers of places.
func placeRows(rows ...message.Row) *message.RowsResult {
	columns := []*message.ColumnMetadata{
		{Name: "host_id", Type: datatype.Uuid},
		{Name: "a", Type: datatype.Inet},
		{Name: "p", Type: datatype.Int},
		{Name: "b", Type: datatype.Inet},
		{Name: "q", Type: datatype.Int},
	}
	return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 5, Columns: columns}, Data: rows}
}

// aRing answers as a node that asks for a login, and has a peer that is known in full and one that
// is not.
func aRing(m message.Message) message.Message {
	one, two, three := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}
	cql, ninety := []byte{0, 0, 0x23, 0x52}, []byte{0, 0, 0x1b, 0x58}
	switch m := m.(type) {
	case *message.Startup:
		return &message.Authenticate{Authenticator: "PasswordAuthenticator"}
	case *message.AuthResponse:
		if string(m.Token) != "\x00music\x00secret" {
			return &message.AuthenticationError{ErrorMessage: "wrong"}
		}
		return &message.AuthSuccess{}
	case *message.Query:
		if m.Query == "SELECT host_id, broadcast_address, broadcast_port, rpc_address, rpc_port FROM system.local" {
			return placeRows(message.Row{one[:], {10, 0, 0, 1}, ninety, {10, 1, 0, 1}, cql})
		}
		return placeRows(
			message.Row{two[:], {10, 0, 0, 2}, ninety, netip.MustParseAddr("fd00::2").AsSlice(), cql},
			message.Row{three[:], {10, 0, 0, 3}, ninety, nil, nil},
			message.Row{nil, {10, 0, 0, 4}, nil, nil, nil},
		)
	}
	return nil
}

// The ring is what the home node has in system.local and system.peers_v2.
func TestHomeConnReadsTheRing(t *testing.T) {
	h := fakeNode(t, aRing)
	h.timeout = 10 * time.Second
	m := &members{home: h, cassandra: config.Cassandra{Username: "music", Password: "secret"}}
	defer m.leaveHome()
	for range 2 {
		require.NoError(t, m.lookHome(context.Background()))
		at := netip.MustParseAddrPort
		assert.Equal(t, ring{
			home: location{uuid.UUID{1}, at("10.0.0.1:7000"), at("10.1.0.1:9042")},
			others: map[uuid.UUID]location{
				{2}: {uuid.UUID{2}, at("10.0.0.2:7000"), at("[fd00::2]:9042")},
				{3}: {uuid.UUID{3}, at("10.0.0.3:7000"), netip.AddrPort{}},
			},
		}, m.ring)
		assert.Len(t, m.ring.hosts(), 3)
	}
	wrong := &members{home: h, cassandra: config.Cassandra{Username: "music", Password: "other"}}
	assert.ErrorContains(t, wrong.lookHome(context.Background()), "wrong")
}

// A connection that has broken says nothing about the node: another one is tried before the node
// counts as down.
func TestLinkIsMadeAnew(t *testing.T) {
	h := fakeNode(t, aRing)
	h.timeout = 10 * time.Second
	m := &members{home: h, cassandra: config.Cassandra{Username: "music", Password: "secret"}}
	defer m.leaveHome()
	require.NoError(t, m.lookHome(context.Background()))
	m.conn.close()
	require.NoError(t, m.lookHome(context.Background()))
}

// A node that is stopped answers nothing, not even that it is gone.
func TestLinkToASilentNode(t *testing.T) {
	m := &members{home: fakeNode(t, func(message.Message) message.Message { return nil })}
	require.Error(t, m.lookHome(context.Background()))
	assert.Nil(t, m.conn)
}

// A node that takes connections and says nothing does not keep the proxy from trying again.
func TestASilentNodeDoesNotHoldUpTheStart(t *testing.T) {
	h := fakeNode(t, func(message.Message) message.Message { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := connectService(ctx, config.Cassandra{ContactPoints: h.addresses, ConnectTimeout: h.timeout}, h)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "it has waited for an answer as long as it could")
}
