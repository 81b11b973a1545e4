package proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/musiccore"
)

// A port that is taken ends the start only where it was asked for; either way the setting is named.
func TestHealthAtAPortThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	var log bytes.Buffer
	l := config.Listen{Metrics: taken.Addr().String()}
	ln, err := listenHealth(t.Context(), l, zerolog.New(&log))
	require.NoError(t, err)
	assert.Nil(t, ln)
	assert.Contains(t, log.String(), "metrics-listen")

	l.MetricsAsked = true
	_, err = listenHealth(t.Context(), l, zerolog.Nop())
	require.ErrorContains(t, err, "metrics-listen")
	assert.ErrorContains(t, err, l.Metrics)

	ln, err = listenHealth(t.Context(), config.Listen{}, zerolog.Nop())
	require.NoError(t, err)
	assert.Nil(t, ln, "off")
}

// Whoever opens connections to the health port and says nothing takes no more than so many: the
// oldest is closed for the next one.
func TestIdleConnectionsToTheHealthPortAreBounded(t *testing.T) {
	ln, err := listenHealth(t.Context(), config.Listen{Metrics: "127.0.0.1:0", MetricsAsked: true}, zerolog.Nop())
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	var idle []net.Conn
	for range 2 * healthConns {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		accepted, err := ln.Accept() // by a server that waits for each to ask something
		require.NoError(t, err)
		idle = append(idle, conn)
		defer func() { _, _ = conn.Close(), accepted.Close() }()
	}
	for i, conn := range idle[:healthConns] {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "connection %d", i)
	}
	newest := idle[len(idle)-1]
	require.NoError(t, newest.SetReadDeadline(time.Now()))
	_, err = newest.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is open")
}

// A proxy without a peer address says so, in the log each minute and beside /ready, as long as
// others live.
func TestProxyThatOthersCannotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &process{log: zerolog.New(&log)}
		o := musiccore.Defaults()
		l := &heartbeat{options: o}
		l.rejoin()
		l.others.dead = func(time.Duration) time.Duration { return time.Hour } // of the machine's own clock, which no test turns
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.watchUnasked(ctx, l) })

		time.Sleep(time.Minute)
		assert.Empty(t, p.remark(), "nobody else is there")
		l.others.mu.Lock()
		l.others.seen = map[gocql.UUID]seenSession{{1}: {beat: 7}}
		l.others.mu.Unlock()
		time.Sleep(10 * time.Second)
		assert.Empty(t, p.remark(), "it may have died just now")
		time.Sleep(3 * time.Minute)
		assert.Contains(t, p.remark(), "peer-listen")
		l.others.mu.Lock()
		l.others.seen = map[gocql.UUID]seenSession{{1}: {beat: musiccore.EndedBeat}}
		l.others.mu.Unlock()
		time.Sleep(2 * lookEvery)
		assert.Empty(t, p.remark())
		cancel()
		running.Wait()
		lines := bytes.Count(log.Bytes(), []byte("peer-listen is not set"))
		assert.Contains(t, []int{1, 2, 3, 4}, lines, "a line a minute, by the sampler's own clock")
	})
}

// Why drivers are not served is told.
func TestHealthTellsWhatIsMissing(t *testing.T) {
	p, stalled := new(process), new(atomic.Bool)
	work, end := context.WithCancel(t.Context())
	is := func(good bool, says string) {
		t.Helper()
		ready, remark := p.readiness(work)
		assert.Equal(t, good, ready)
		assert.Contains(t, remark, says)
	}
	is(false, "the node is not reached")
	p.ready.Store(true)
	p.stalled.Store(stalled)
	is(true, "")
	stalled.Store(true)
	is(false, "stand still")
	end()
	is(false, "shutting down")
}

// A remark is told beside the state, and changes nothing of it.
func TestHealthTellsRemarks(t *testing.T) {
	for _, c := range []struct {
		good         bool
		remark, want string
		status       int
	}{
		{true, "", "ok\n", 200}, {true, "warning: x", "ok\nwarning: x\n", 200}, {false, "warning: x", "not ready\nwarning: x\n", 503},
	} {
		w := httptest.NewRecorder()
		answerHealth(w, c.good, c.remark)
		assert.Equal(t, c.want, w.Body.String())
		assert.Equal(t, c.status, w.Code)
	}
}
