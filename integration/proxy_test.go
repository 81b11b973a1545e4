package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/proxy"
)

// instance is a proxy that runs in this process.
type instance struct {
	address string
	metrics string
	log     *logBuffer
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // of Run; to be read after done is closed
}

// errEnded says that a proxy has ended that should run.
var errEnded = errors.New("the proxy has ended")

// config is the configuration of a proxy in front of the shared node, at an address of its own.
func (w *environment) config() config.Config {
	c := config.Default()
	c.Cassandra.ContactPoints = []string{w.direct()}
	c.Listen.Address = w.address()
	c.Listen.Metrics = ""
	c.Log.Level = "debug"
	c.Music.Critical = []string{patternKeyspace + ".*"} // all living proxies must have the same patterns
	return c
}

// launch starts a proxy and returns once it listens.
func launch(c config.Config) (*instance, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := begin(c)
	err := poll(time.Minute, p.answers)
	if err != nil {
		p.cancel()
		<-p.done
		return nil, fmt.Errorf("start proxy: %w\n%s", errors.Join(err, p.err), p.log)
	}
	return p, nil
}

// begin starts a proxy without waiting for it.
func begin(c config.Config) *instance {
	ctx, cancel := context.WithCancel(context.Background())
	p := &instance{address: c.Listen.Address, metrics: c.Listen.Metrics, log: new(logBuffer), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		log := zerolog.New(p.log).Level(zerolog.DebugLevel)
		p.err = proxy.Run(ctx, c, proxy.Logs{Log: log, Audit: log}, nil)
	}()
	return p
}

// answers reports whether the proxy listens.
func (p *instance) answers() error {
	select {
	case <-p.done:
		return fatal{errEnded}
	default:
	}
	conn, err := net.DialTimeout("tcp", p.address, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// stop ends the proxy and returns what Run did.
func (p *instance) stop() error {
	p.cancel()
	<-p.done
	if p.err != nil {
		return fmt.Errorf("proxy: %w\n%s", p.err, p.log)
	}
	return nil
}

// startProxy starts a proxy of the test's own in front of the shared node; it ends with the test.
func startProxy(t testing.TB, change func(*config.Config)) *instance {
	t.Helper()
	c := needEnvironment(t).config()
	if change != nil {
		change(&c)
	}
	p, err := launch(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, p.stop())
		if t.Failed() {
			t.Logf("log of the proxy at %s:\n%s", p.address, p.log)
		}
	})
	return p
}

// logBuffer collects a log of several goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything that was logged.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// tells waits until a text was logged, which may be after the answer that the line is about.
func (l *logBuffer) tells(t testing.TB, text string) {
	t.Helper()
	eventually(t, answerLimit, "the log tells", func() error {
		if log := l.String(); !strings.Contains(log, text) {
			return errorf("no %q in %s", text, log)
		}
		return nil
	})
}

// errorf returns an error for poll.
func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// fatal is an error upon which poll stops.
type fatal struct{ error }

// poll calls f until it returns nil, at most for limit; then it returns f's last error.
func poll(limit time.Duration, f func() error) error {
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		var last fatal
		if err == nil || errors.As(err, &last) {
			return err
		}
		select {
		case <-tick.C:
		case <-end.C:
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

// eventually fails the test unless f returns nil within limit.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	require.NoError(t, poll(limit, f), what)
}

// ownAddress returns an address that nothing else in these tests listens on.
func ownAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.14.%d:9044", needEnvironment(t).lastOwn.Add(1))
}
