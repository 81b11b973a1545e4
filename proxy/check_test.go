package proxy

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// faultsOf are those of Check, by what was tried.
func faultsOf(t *testing.T, cfg config.Config) map[string]string {
	t.Helper()
	faults := map[string]string{}
	for _, c := range Check(t.Context(), cfg) {
		if c.Err != nil {
			faults[c.What] = c.Err.Error()
		}
	}
	return faults
}

// Each thing that would keep a proxy from its start is found, and each by itself.
func TestCheckFindsWhatIsMissing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	good := config.Default()
	good.Cassandra.ContactPoints, good.Cassandra.ConnectTimeout = []string{"127.0.0.1:1"}, time.Second
	good.Listen.Address, good.Listen.Metrics = "127.0.0.1:0", ""
	const node = "contact point 127.0.0.1:1"
	assert.Len(t, faultsOf(t, good), 2, "the node, and that there is none")
	assert.Contains(t, faultsOf(t, good)[node], "refused")
	for what, spoil := range map[string]func(*config.Config){
		"listen " + taken.Addr().String():         func(c *config.Config) { c.Listen.Address = taken.Addr().String() },
		"listen 127.0.0.1:0":                      func(c *config.Config) { c.Listen.TLSCert, c.Listen.TLSKey = "/no/such", "/no/such" },
		"peer-listen " + taken.Addr().String():    func(c *config.Config) { c.Peers.Listen = taken.Addr().String() },
		"metrics-listen " + taken.Addr().String(): func(c *config.Config) { c.Listen.Metrics, c.Listen.MetricsAsked = taken.Addr().String(), true },
		"advertise no.such.invalid":               func(c *config.Config) { c.Listen.Advertise = "no.such.invalid" },
	} {
		c := good
		spoil(&c)
		faults := faultsOf(t, c)
		assert.Len(t, faults, 3, what)
		assert.NotEmpty(t, faults[what], "%s: %v", what, faults)
	}
	c := good
	c.Listen.Metrics = taken.Addr().String()
	assert.Len(t, faultsOf(t, c), 2, "a default that is taken does not keep it from its start")
	c = good
	c.Cassandra.TLS, c.Cassandra.TLSCA = true, "/no/such"
	assert.Contains(t, faultsOf(t, c)[node], "/no/such")
}
