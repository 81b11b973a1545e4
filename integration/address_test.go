package integration

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	gocqlv1 "github.com/gocql/gocql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// recorder is the Dialer of both Go drivers. It records every dialled address, and every host that
// a driver has learned of.
type recorder struct {
	mu     sync.Mutex
	dialed map[string]int
	hosts  map[string]bool
}

// newRecorder returns an empty recorder.
func newRecorder() *recorder { return &recorder{dialed: map[string]int{}, hosts: map[string]bool{}} }

// DialContext implements the Dialer of both drivers.
func (r *recorder) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialed[address]++
	r.mu.Unlock()
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
}

// hear records a host that a driver might use.
func (r *recorder) hear(address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts[address] = true
	return true
}

// addresses returns the dialled addresses.
func (r *recorder) addresses() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for a := range r.dialed {
		all = append(all, a)
	}
	return all
}

// count returns how often an address was dialled.
func (r *recorder) count(address string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialed[address]
}

// known returns the hosts that the driver has learned of.
func (r *recorder) known() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for a := range r.hosts {
		all = append(all, a)
	}
	return all
}

// restartable is a proxy that can be restarted at the same address, upon which drivers read the
// ring again.
type restartable struct {
	t      testing.TB
	config config.Config
	now    *instance
}

// newRestartable starts one; it ends with the test.
func newRestartable(t testing.TB) *restartable {
	t.Helper()
	r := &restartable{t: t, config: needEnvironment(t).config()}
	r.start()
	t.Cleanup(func() { assert.NoError(t, r.now.stop()) })
	return r
}

func (r *restartable) start() {
	r.t.Helper()
	var err error
	r.now, err = launch(r.config)
	require.NoError(r.t, err)
}

func (r *restartable) restart() {
	r.t.Helper()
	require.NoError(r.t, r.now.stop())
	r.start()
}

// keepsAsking runs a query until it succeeds.
func keepsAsking(t testing.TB, c client) {
	t.Helper()
	eventually(t, time.Minute, "a query through the proxy", func() error {
		return c.run(statement{cql: "SELECT host_id FROM system.local"}).err()
	})
}

// gocql 2 dials no address but the proxy's, and learns of no other host, also after a restart of
// the proxy.
func TestGocql2DialsTheProxyAlone(t *testing.T) {
	for _, version := range []int{3, 4, 5} {
		proxy, r := newRestartable(t), newRecorder()
		c := cluster2(proxy.config.Listen.Address, "")
		c.ProtoVersion = version
		c.Dialer = r
		c.ReconnectInterval = 100 * time.Millisecond
		c.HostFilter = gocql.HostFilterFunc(func(h *gocql.HostInfo) bool { return r.hear(h.ConnectAddress().String()) })
		c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
		g := openGocql2(t, c)
		keepsAsking(t, g)
		before := r.count(proxy.config.Listen.Address)
		proxy.restart()
		keepsAsking(t, g)
		assert.Len(t, g.session.GetHosts(), 1)
		checkDialed(t, r, proxy.config.Listen.Address, before)
		g.close()
	}
}

// The same of gocql 1.
func TestGocql1DialsTheProxyAlone(t *testing.T) {
	proxy, r := newRestartable(t), newRecorder()
	c := cluster1(proxy.config.Listen.Address, "")
	c.Dialer = r
	c.ReconnectInterval = 100 * time.Millisecond
	c.HostFilter = gocqlv1.HostFilterFunc(func(h *gocqlv1.HostInfo) bool { return r.hear(h.ConnectAddress().String()) })
	c.PoolConfig.HostSelectionPolicy = gocqlv1.TokenAwareHostPolicy(gocqlv1.RoundRobinHostPolicy())
	g := openGocql1(t, c)
	keepsAsking(t, g)
	before := r.count(proxy.config.Listen.Address)
	proxy.restart()
	keepsAsking(t, g)
	checkDialed(t, r, proxy.config.Listen.Address, before)
}

// checkDialed checks that a driver has dialled the proxy alone, and more often than `before` times.
func checkDialed(t *testing.T, r *recorder, proxy string, before int) {
	t.Helper()
	assert.Equal(t, []string{proxy}, r.addresses(), "dialled")
	assert.Equal(t, []string{hostOf(t, proxy)}, r.known(), "hosts known to the driver")
	assert.Greater(t, r.count(proxy), before, "the driver has connected again")
}

// The same of the Python driver.
func TestPythonDialsTheProxyAlone(t *testing.T) {
	proxy := newRestartable(t)
	p := openPython(t, proxy.config.Listen.Address, "")
	keepsAsking(t, p)
	proxy.restart()
	keepsAsking(t, p)
	assert.Equal(t, []string{hostOf(t, proxy.config.Listen.Address)}, p.hosts, "hosts known to the driver")
	assert.Equal(t, []string{proxy.config.Listen.Address}, connected(t, p.connects), "dialled")
}

// The same of cqlsh.
func TestCqlshDialsTheProxyAlone(t *testing.T) {
	proxy := newRestartable(t)
	s := openShell(t, proxy.config.Listen.Address, "")
	keepsAsking(t, s)
	proxy.restart()
	keepsAsking(t, s)
	assert.Equal(t, []string{proxy.config.Listen.Address}, connected(t, s.connects), "dialled")
}
