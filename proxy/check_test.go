package proxy

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/rs/zerolog"
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
	audit := filepath.Join(t.TempDir(), "audit")
	for file, faults := range map[string]int{audit: 2, filepath.Dir(audit): 3, "/no/such/audit": 3} {
		c := good
		c.Log.AuditFile = file
		assert.Len(t, faultsOf(t, c), faults, file)
	}
	assert.NoFileExists(t, audit, "nothing is changed")
	c := good
	c.Listen.Metrics = taken.Addr().String()
	assert.Len(t, faultsOf(t, c), 2, "a default that is taken does not keep it from its start")
	c = good
	c.Cassandra.TLS, c.Cassandra.TLSCA = true, "/no/such"
	assert.Contains(t, faultsOf(t, c)[node], "/no/such")
}

// A data centre without nodes is found, and a proxy at the place of a node.
func TestCheckAsksTheNode(t *testing.T) {
	behind := false
	node := startCQLNode(t, func(a asked) message.Message {
		switch {
		case strings.HasPrefix(a.text, "SELECT cluster_name"):
			id := gocql.UUID{7}
			return rowOf("cluster_name", []byte("c"), "release_version", []byte("5.0.8"), "data_center", []byte("dc1"), "host_id", id[:])
		case strings.HasPrefix(a.text, "SELECT data_center"):
			return rowOf("data_center", []byte("dc2"))
		case a.text == "LIST LOCKS" && !behind:
			return &message.SyntaxError{ErrorMessage: "x"}
		case a.text == "LIST LOCKS":
			return &message.Invalid{ErrorMessage: "MUSIC_REFUSED: name a table"}
		}
		return noRow("table_name")
	})
	c := config.Default()
	c.Cassandra.ContactPoints, c.Cassandra.ConnectTimeout = []string{node.address}, time.Minute
	c.Listen.Address, c.Listen.Metrics = "127.0.0.1:0", ""
	for _, centre := range []string{"", "dc1", "dc2"} {
		c.Cassandra.LocalDC = centre
		assert.Empty(t, faultsOf(t, c), centre)
	}
	c.Cassandra.LocalDC = "dc3"
	assert.Equal(t, map[string]string{"local-dc dc3": "no node is in this data centre: there are dc1, dc2"}, faultsOf(t, c))
	h, err := newHome(c.Cassandra, zerolog.Nop())
	require.NoError(t, err)
	var log bytes.Buffer
	(&process{cfg: c, home: h, log: zerolog.New(&log)}).introduce(t.Context(), "")
	assert.Contains(t, log.String(), "local-dc names no data centre of this cluster", "at start, too")
	c.Cassandra.LocalDC, behind = "", true
	assert.Equal(t, map[string]string{"keyspace music": errProxyThere.Error()}, faultsOf(t, c))
	c.Music.Locks = false
	assert.Empty(t, faultsOf(t, c), "a relay may stand before a proxy")
}

// A proxy does not start before another one, and says that there is one.
func TestNoSecretIsReadThroughAProxy(t *testing.T) {
	node := startCQLNode(t, func(asked) message.Message { return &message.Invalid{ErrorMessage: "MUSIC_REFUSED: x"} })
	_, err := clusterSecret(t.Context(), node.session)
	assert.ErrorIs(t, err, errProxyThere)
	assert.False(t, unanswered(err))
}
