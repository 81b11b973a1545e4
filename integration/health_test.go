package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// get requests a page of a proxy's metrics and health endpoint.
func (p *instance) get(path string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+path, nil)
	if err != nil {
		return 0, "", err
	}
	// A transport of its own leaves no idle connection, and no goroutine, behind.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(raw), err
}

// metric returns the value of a metric without labels, or with the labels as Prometheus prints
// them.
func (p *instance) metric(name string) (int, error) {
	status, body, err := p.get("/metrics")
	if err != nil || status != http.StatusOK {
		return 0, fmt.Errorf("metrics: status %d: %w", status, err)
	}
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, nil
}

// requests returns how many requests of an opcode had a result.
func (p *instance) requests(opcode, fate string) (int, error) {
	for op := primitive.OpCode(0); op < 0x20; op++ {
		if strings.Contains(op.String(), " "+opcode+" ") {
			n, err := p.metric(fmt.Sprintf("music_requests_total{fate=%q,opcode=%q}", fate, op.String()))
			if n > 0 || err != nil {
				return n, err
			}
		}
	}
	return p.metric(fmt.Sprintf("music_requests_total{fate=%q,opcode=%q}", fate, opcode))
}

// A proxy that serves is alive and ready, and its metrics count the requests.
func TestMetricsAndHealth(t *testing.T) {
	p := startProxy(t, func(c *config.Config) { c.Listen.Metrics = ownAddress(t) })
	for _, path := range []string{"/live", "/ready"} {
		status, _, err := p.get(path)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status, path)
	}
	w := openWire(t, p.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	const queries = 7
	for range queries {
		_, err := w.ask(plainQuery("SELECT key FROM system.local"))
		require.NoError(t, err)
	}
	_, err := w.ask(plainQuery("LOCK music.named WHERE name = 'health' NOWAIT"))
	require.NoError(t, err)
	_, err = w.ask(plainQuery("INSERT INTO music.named (name, value) VALUES ('health', 'x')"))
	require.NoError(t, err)
	for _, c := range []struct {
		opcode, fate string
		want         int
	}{
		{"STARTUP", "forwarded", 1}, {"QUERY", "forwarded", queries}, {"QUERY", "answered", 1}, {"QUERY", "refused", 1}, {"BATCH", "forwarded", 0},
	} {
		got, err := p.requests(c.opcode, c.fate)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s %s", c.opcode, c.fate)
	}
	for name, want := range map[string]int{"music_connections_open": 1, "music_connections_backend_lost_total": 0} {
		got, err := p.metric(name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
	require.NoError(t, w.net.Close())
	eventually(t, time.Minute, "the connection is gone", func() error {
		if n, err := p.metric("music_connections_open"); n != 0 || err != nil {
			return errorf("%d open, %w", n, err)
		}
		return nil
	})
}

// A proxy that does not reach Cassandra is alive and not ready.
func TestNotReadyWithoutCassandra(t *testing.T) {
	c := needEnvironment(t).config()
	c.Cassandra.ContactPoints = []string{"127.0.5.1"}
	c.Listen.Metrics = ownAddress(t)
	p := begin(c)
	t.Cleanup(func() { assert.NoError(t, p.stop()) })
	eventually(t, time.Minute, "the process is alive", func() error {
		status, _, err := p.get("/live")
		if err != nil || status != http.StatusOK {
			return errorf("status %d, %w", status, err)
		}
		return nil
	})
	status, _, err := p.get("/ready")
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Error(t, p.answers(), "no listening without Cassandra")
}
