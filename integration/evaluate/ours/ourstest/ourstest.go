// Package ourstest gives a test a proxy of the product.
package ourstest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"music/integration/cassandra/cassandratest"
	"music/integration/evaluate/ours"
)

// startLimit is for a machine that has much else to do.
const startLimit = 5 * time.Minute

// Start starts a proxy on the node of battery.Main, and returns its address, host:port. The proxy
// ends with the test.
func Start(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	node := cassandratest.Address(t)
	program, err := ours.Build(ctx)
	require.NoError(t, err)
	host, _, err := net.SplitHostPort(node)
	require.NoError(t, err)
	ip := net.ParseIP(host).To4()
	listen := fmt.Sprintf("127.%d.%d.%d", 255-ip[1], ip[2], ip[3])
	proxy, err := ours.StartProxy(ctx, ours.ProxyOptions{Program: program, Node: node, Listen: listen, Log: t.Output()})
	require.NoError(t, err)
	t.Cleanup(proxy.Kill)
	return listen + ":9042"
}
