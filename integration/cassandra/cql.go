package cassandra

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// cqlConn is a connection of the native protocol v4, for one request at a time: all that a wait needs, and unlike a
// driver it never talks to another node than the one asked.
type cqlConn struct {
	net   net.Conn
	read  *bufio.Reader
	codec frame.Codec
}

// dialer opens sockets: that of package net, or that of TLS.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// dialCQL connects to addr, and logs in if asked to. The connection ends with ctx, or with close.
func dialCQL(ctx context.Context, by dialer, addr, username, password string) (*cqlConn, error) {
	conn, err := by.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &cqlConn{net: conn, read: bufio.NewReader(conn), codec: frame.NewCodec()}
	if err := c.handshake(ctx, username, password); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// handshake makes the connection ready for queries.
func (c *cqlConn) handshake(ctx context.Context, username, password string) error {
	reply, err := c.call(ctx, message.NewStartup())
	if err != nil {
		return fmt.Errorf("start up: %w", err)
	}
	if _, ok := reply.(*message.Authenticate); !ok {
		return nil
	}
	token := "\x00" + username + "\x00" + password
	if _, err := c.call(ctx, &message.AuthResponse{Token: []byte(token)}); err != nil {
		return fmt.Errorf("log in as %s: %w", username, err)
	}
	return nil
}

// query returns the rows of a statement, as raw cells.
func (c *cqlConn) query(ctx context.Context, cql string, level primitive.ConsistencyLevel) (message.RowSet, error) {
	reply, err := c.call(ctx, &message.Query{Query: cql, Options: &message.QueryOptions{Consistency: level}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cql, err)
	}
	rows, ok := reply.(*message.RowsResult)
	if !ok {
		return nil, nil
	}
	return rows.Data, nil
}

// call sends one request and returns its answer; an ERROR is an error.
func (c *cqlConn) call(ctx context.Context, request message.Message) (message.Message, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) }) // in the past: unblocks
	defer stop()
	var out bytes.Buffer
	if err := c.codec.EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, 1, request), &out); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if _, err := c.net.Write(out.Bytes()); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	reply, err := c.codec.DecodeFrame(c.read)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	if refused, ok := reply.Body.Message.(message.Error); ok {
		return nil, fmt.Errorf("%v: %s", refused.GetErrorCode(), refused.GetErrorMessage())
	}
	return reply.Body.Message, nil
}

// close ends the connection.
func (c *cqlConn) close() error { return c.net.Close() }
