package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
)

// relay copies bytes between clients and a server without reading them: the least that anything in
// between can cost.
type relay struct {
	to      string
	running sync.WaitGroup
}

// serve relays each connection, until the listener is closed.
func (r *relay) serve(l net.Listener) error {
	for {
		client, err := l.Accept()
		if err != nil {
			r.running.Wait()
			return err
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", r.to)
		if err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
			_ = client.Close()
			continue
		}
		r.running.Go(func() { copyBytes(server, client) })
		r.running.Go(func() { copyBytes(client, server) })
	}
}

// copyBytes is io.Copy without the kernel's splice, which a proxy that reads the bytes cannot use.
func copyBytes(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
