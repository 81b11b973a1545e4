package main

import (
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parsed returns the options of a command line in an environment where NODES has a value.
func parsed(t *testing.T, nodes string, args ...string) (options, error) {
	t.Helper()
	o := options{nodes: nodes}
	f := pflag.NewFlagSet("music-demo", pflag.ContinueOnError)
	o.addFlags(f)
	require.NoError(t, f.Parse(args))
	return o, o.complete()
}

func TestOptions(t *testing.T) {
	o, err := parsed(t, "")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:9042", o.listen)
	assert.Equal(t, "127.0.1.1", o.node)
	assert.Equal(t, filepath.Join(o.runDir, "demo"), o.dir)
	assert.False(t, o.keeps(), "the output of a test is no terminal")

	o, err = parsed(t, "", "--keep=yes", "--dir=d")
	require.NoError(t, err)
	assert.True(t, o.keeps())
	assert.Equal(t, "d", o.dir)
}

func TestThreeOfEach(t *testing.T) {
	o, err := parsed(t, "3", "--listen=127.0.0.9:9142")
	require.NoError(t, err)
	assert.Equal(t, 3, o.count())
	assert.Equal(t, "127.0.0.11:9142", o.listenAt(3))
	assert.Equal(t, "127.0.1.2", o.nodeAt(2))
}

func TestFaultsAreToldAtOnce(t *testing.T) {
	_, err := parsed(t, "2", "--keep=maybe", "--listen=localhost", "--node=x")
	assert.EqualError(t, err, `nodes "2": 1 or 3
keep "maybe": auto, yes or no
listen "localhost": an address and a port, like 127.0.0.1:9042
node "x": an address of this machine, like 127.0.1.1`)
}

func TestATakenPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.3.253:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Close()) }()
	addr := l.Addr().String()
	_, err = raise(t.Context(), options{listen: addr, nodes: "1", dir: t.TempDir()}, &screen{out: io.Discard})
	assert.EqualError(t, err, "port "+addr+" is in use: end the program that listens there, or choose another with --listen")
}
