package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A proxy that is named without a port has the usual one, also by an IPv6 address.
func TestProxiesWithoutAPort(t *testing.T) {
	l := login{proxies: []string{"here", "10.0.1.1:9043", "::1", "[::1]", "[::1]:9043"}, timeout: time.Second}
	for range 2 {
		o, err := l.options()
		require.NoError(t, err)
		assert.Equal(t, []string{"here:9042", "10.0.1.1:9043", "[::1]:9042", "[::1]:9042", "[::1]:9043"}, o.Proxies)
	}
}
