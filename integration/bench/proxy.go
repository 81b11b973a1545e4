package main

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/rs/zerolog"

	"music/frontend"
)

// serveProxy is the frontend of the product in front of a server that is no Cassandra: all that a request meets that is not ours. It
// knows a critical table, so that every statement is asked whether it is about it. It serves until the listener is closed.
func serveProxy(l net.Listener, to string) error {
	advertise, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	tables := frontend.NewTables()
	tables.Set("bank", "accounts", &frontend.Critical{ID: [16]byte{1}, Key: []frontend.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	return frontend.NewServer(frontend.Options{
		Dial:   func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to) },
		Tables: tables, Locks: nobody{}, Advertise: advertise,
		MaxConnections: 1 << 20, MaxFrame: 16 << 20,
		HandshakeTimeout: time.Minute, BackendTimeout: time.Minute, DrainTimeout: time.Second, MaxWait: time.Second,
		Log: zerolog.Nop(), Stats: new(frontend.Stats),
	}).Serve(context.Background(), l)
}

// nobody gives no locks: the statements of this benchmark ask for none.
type nobody struct{ frontend.Locks }
