package main

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// How much the log keeps while its reader is slow.
const (
	maxLogLines = 4096
	maxLogBytes = 4 << 20
)

// logWriter passes lines on without ever waiting for their reader. Lines for which there is no room
// are dropped and counted, and the log says how many as soon as a line can be written. It is safe
// for concurrent use.
type logWriter struct {
	out     io.Writer
	lines   chan []byte
	held    atomic.Int64 // bytes of lines
	dropped atomic.Uint64
	told    uint64 // of dropped; run's own
	ending  chan struct{}
	done    chan struct{}
}

// newLogWriter writes to out until it is closed.
func newLogWriter(out io.Writer) *logWriter {
	w := &logWriter{out: &wholeLines{out: out}, lines: make(chan []byte, maxLogLines), ending: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// Write takes a line. It neither blocks nor fails, and keeps no part of line.
func (w *logWriter) Write(line []byte) (int, error) {
	n := int64(len(line))
	if w.held.Add(n) <= maxLogBytes {
		select {
		case w.lines <- bytes.Clone(line):
			return len(line), nil
		default:
		}
	}
	w.held.Add(-n)
	w.dropped.Add(1)
	return len(line), nil
}

// wholeLines ends a line of which only a part was written, as by a full disk, before the next one.
type wholeLines struct {
	out  io.Writer
	torn bool
}

// Write writes one line.
func (w *wholeLines) Write(line []byte) (int, error) {
	if w.torn {
		if _, err := w.out.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	n, err := w.out.Write(line)
	w.torn = err != nil && n > 0
	return n, err
}

// run writes lines until ending, and then those that are left.
func (w *logWriter) run() {
	defer close(w.done)
	for {
		select {
		case line := <-w.lines:
			w.put(line)
		case <-w.ending:
			for len(w.lines) > 0 {
				w.put(<-w.lines)
			}
			return
		}
	}
}

// put writes one line, and before it how many have been dropped since that was last written.
func (w *logWriter) put(line []byte) {
	w.held.Add(-int64(len(line)))
	if _, err := w.out.Write(line); err != nil {
		w.dropped.Add(1)
		return
	}
	if dropped := w.dropped.Load(); dropped > w.told {
		log := zerolog.New(w.out).With().Timestamp().Logger()
		log.Warn().Uint64("dropped", dropped-w.told).Msg("lines were dropped: they were not read in time, or could not be written")
		w.told = dropped
	}
}

// close writes the remaining lines. It blocks for at most limit. Nothing may be written after it.
func (w *logWriter) close(limit time.Duration) {
	close(w.ending)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	}
}

// dropped counts what the writers of the log and of the audit have dropped.
type dropped struct {
	lines      *prometheus.Desc
	log, audit *logWriter
}

// newDropped returns the metric; audit is nil if the audit is written to the log.
func newDropped(log, audit *logWriter) *dropped {
	const help = "Lines of the log, or of the audit where it has a file of its own, that were dropped, since nobody read them or they could not be written."
	return &dropped{prometheus.NewDesc("music_log_lines_dropped_total", help, []string{"of"}, nil), log, audit}
}

// Describe implements prometheus.Collector.
func (d *dropped) Describe(out chan<- *prometheus.Desc) { out <- d.lines }

// Collect implements prometheus.Collector.
func (d *dropped) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(d.lines, prometheus.CounterValue, float64(d.log.dropped.Load()), "log")
	if d.audit != nil {
		out <- prometheus.MustNewConstMetric(d.lines, prometheus.CounterValue, float64(d.audit.dropped.Load()), "audit")
	}
}
