package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gated is a reader of the log that reads nothing until it is opened.
type gated struct {
	open chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
}

// Write waits for open.
func (g *gated) Write(b []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got.Write(b)
}

// Whoever writes to a log that nobody reads goes on at once, and what is kept of it is bounded in lines and in bytes. Every line is
// either written or counted, and what was dropped is told.
func TestLogThatNobodyReads(t *testing.T) {
	for name, size := range map[string]int{"small lines": 20, "large lines": 10_000} {
		t.Run(name, func(t *testing.T) {
			reader := &gated{open: make(chan struct{})}
			w := newLogWriter(reader)
			log := zerolog.New(w)
			const writers, each = 8, 2000
			var writing sync.WaitGroup
			for range writers {
				writing.Go(func() {
					for range each {
						log.Info().Msg(strings.Repeat("x", size))
					}
				})
			}
			writing.Wait()
			assert.LessOrEqual(t, w.held.Load(), int64(maxLogBytes))
			assert.LessOrEqual(t, len(w.lines), maxLogLines)
			dropped := w.dropped.Load()
			assert.Positive(t, dropped)
			registry := prometheus.NewRegistry()
			registry.MustRegister(newDropped(w, w))
			families, err := registry.Gather()
			require.NoError(t, err)
			require.Len(t, families, 1)
			assert.Equal(t, "music_log_lines_dropped_total", families[0].GetName())
			for _, m := range families[0].GetMetric() {
				assert.InDelta(t, dropped, m.GetCounter().GetValue(), 0)
			}

			close(reader.open)
			w.close(time.Minute)
			written, told := 0, uint64(0)
			for _, line := range strings.Split(strings.TrimSpace(reader.got.String()), "\n") {
				var l struct{ Dropped uint64 }
				require.NoError(t, json.Unmarshal([]byte(line), &l))
				if told += l.Dropped; l.Dropped == 0 {
					written++
				}
			}
			assert.Equal(t, uint64(writers*each), uint64(written)+dropped)
			assert.Equal(t, dropped, told)
			assert.Zero(t, w.held.Load())
		})
	}
}

// A log whose reader has gone is one that drops.
func TestLogWhoseReaderHasGone(t *testing.T) {
	r, out := io.Pipe()
	_ = r.Close()
	w := newLogWriter(out)
	_, err := fmt.Fprintln(w, "{}")
	require.NoError(t, err)
	w.close(time.Minute)
	assert.Equal(t, uint64(1), w.dropped.Load())
}

// fullDisk takes half a line, and then nothing, until there is room.
type fullDisk struct {
	full bool
	left int
	got  bytes.Buffer
}

// Write implements io.Writer.
func (d *fullDisk) Write(b []byte) (int, error) {
	if !d.full {
		return d.got.Write(b)
	}
	n, _ := d.got.Write(b[:min(len(b), d.left)])
	d.left -= n
	return n, syscall.ENOSPC
}

// A line of which a full disk took only a part spoils no other: the next one begins behind it.
func TestAFullDiskSpoilsOneLine(t *testing.T) {
	d := &fullDisk{full: true, left: 3}
	w := &logWriter{out: &wholeLines{out: d}}
	w.dropped.Store(1)
	w.put([]byte(`{"n":1}` + "\n")) // torn
	w.put([]byte(`{"n":2}` + "\n"))
	d.full = false
	w.put([]byte(`{"n":3}` + "\n"))
	lines := strings.Split(d.got.String(), "\n")
	require.Len(t, lines, 4, d.got.String())
	assert.Equal(t, []string{`{"n`, `{"n":3}`}, lines[:2])
	assert.Contains(t, lines[2], `"dropped":3`, "the two, and one before")
}

// SIGTERM ends the program whatever hangs: the proxy itself, its log, or both. SIGHUP never does.
func TestSignalEndsWhateverHangs(t *testing.T) {
	for _, proxyHangs := range []bool{false, true} {
		for _, logHangs := range []bool{false, true} {
			never := make(chan struct{})
			t.Cleanup(func() { close(never) })
			p := program{stdout: io.Discard, stderr: io.Discard}
			if logHangs {
				p.stderr = &gated{open: never}
			}
			o := runProgram(p, func(ctx context.Context) error {
				for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
					require.NoError(t, ctx.Err())
					require.NoError(t, syscall.Kill(syscall.Getpid(), sig))
				}
				<-ctx.Done()
				if proxyHangs {
					<-never
				}
				return nil
			}, "proxy", "--contact-points=a", "--shutdown-timeout=0s")
			assert.Equal(t, map[bool]int{false: statusDone, true: statusFailed}[proxyHangs], o.status)
		}
	}
}
