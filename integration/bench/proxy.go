package main

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/rs/zerolog"

	"music/config"
	"music/frontend"
	"music/frontend/catalog"
	"music/frontend/traffic"
	"music/proxy"
)

// serveProxy serves as the product's frontend in front of a server that is not Cassandra. It knows
// a critical table, so each statement is checked against it. It returns when ctx ends.
func serveProxy(ctx context.Context, l net.Listener, to string) error {
	advertise, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	tables := catalog.NewTables()
	tables.Set("bank", "accounts", &catalog.Critical{ID: [16]byte{1}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	limits := frontend.DefaultLimits()
	limits.Connections = 1 << 20
	return frontend.NewServer(frontend.Options{
		Cluster: frontend.Cluster{
			Dial:      func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to) },
			Advertise: advertise,
		},
		Schema:   frontend.Schema{Tables: tables},
		Timeouts: frontend.Timeouts{HandshakeTimeout: time.Minute, BackendTimeout: time.Minute, DrainTimeout: time.Second, MaxWait: time.Second},
		Locks:    nobody{}, References: frontend.NewReferences(nil),
		Limits: func() *frontend.Limits { return &limits },
		Log:    zerolog.Nop(), Stats: new(traffic.Stats),
	}).Serve(ctx, l)
}

// serveMusic serves as the whole product in front of a real node, at the address of the listener,
// which it opens itself when it is ready. It returns when ctx ends.
func serveMusic(ctx context.Context, l net.Listener, to string) error {
	if err := l.Close(); err != nil {
		return err
	}
	c := config.Default()
	c.Cassandra.ContactPoints = []string{to}
	c.Listen.Address, c.Listen.Metrics = l.Addr().String(), ""
	log := zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)
	return proxy.Run(ctx, c, proxy.Logs{Log: log, Audit: zerolog.New(io.Discard)}, nil)
}

// nobody is Locks that are never called: the statements of this benchmark need none.
type nobody struct{ frontend.Locks }
