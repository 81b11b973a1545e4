//go:build compat

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/integration/cassandra"
)

// mirrorNode starts a node that returns the custom payload of each request with its answer.
func mirrorNode(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(needEnvironment(t).runDir, "integration-mirror"), RunDir: needEnvironment(t).runDir, FastJIT: true, Log: os.Stderr,
		Address:    func(int) string { return "127.0.14.1" },
		Properties: cassandra.Once("cassandra.custom_query_handler_class", "org.apache.cassandra.cql3.CustomPayloadMirroringQueryHandler"),
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Wipe()) })
	return c.Nodes()[0].Addr()
}

// A custom payload reaches the node with each statement, and the payload of the node's answer
// reaches the client, also if the proxy sends other statements in place of the client's.
func TestCustomPayloads(t *testing.T) {
	node := mirrorNode(t)
	p := startProxy(t, func(c *config.Config) { c.Cassandra.ContactPoints = []string{node} })
	s := &tableFixture{t: t, driver: withGocql2(4, ""), address: p.address, keyspace: "payloads"}
	s.direct = openGocql2(t, cluster2(node, "")).session
	s.create("@critical(lease=5m)")
	s.works(s.client, "CREATE TABLE payloads.auto (id text PRIMARY KEY, n int) WITH comment = '@critical(unlocked=auto)'")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	under := fmt.Sprintf("USING LOCK %d", ref)
	const where = "WHERE branch = 'b' AND id = 'x'"
	statements := []string{
		"SELECT key FROM system.local", "SELECT peer FROM system.peers", "SELECT peer FROM system.peers_v2", "SELECT balance FROM accounts " + where,
		"UPDATE accounts " + under + " SET balance = 1 " + where, "SELECT balance FROM accounts " + where + " " + under,
		"UPDATE accounts " + under + " SET balance = 1 " + where + " IF balance = 1", "BEGIN BATCH " + under + " UPDATE accounts SET balance = 1 " + where + "; APPLY BATCH",
		"UPDATE auto SET n = 1 WHERE id = 'x'", "UPDATE auto SET n = 1 WHERE id = 'x' IF n = 1",
	}
	blue := map[string][]byte{"tenant": []byte("blue")}
	for _, d := range []driver{withGocql1(""), withGocql2(4, ""), withGocql2(5, "")} {
		c := d.open(t, p.address, s.keyspace)
		for _, text := range statements {
			o := c.run(statement{cql: text, payload: blue})
			require.NoError(t, o.err(), "%s: %s", d.name, text)
			assert.Equal(t, show(blue), o.payload, "%s: %s", d.name, text)
		}
	}

	direct, _ := nodeProgram(t, "payload.js", hostOf(t, node), s.keyspace)
	out, dialled := nodeProgram(t, "payload.js", hostOf(t, p.address), s.keyspace, strconv.FormatInt(ref, 10))
	assert.Equal(t, []string{p.address}, dialled)
	for line := range strings.Lines(direct) {
		assert.Contains(t, out, line, "as at the node")
	}
	assert.Equal(t, 2*10, strings.Count(out, "\n"))
	for line := range strings.Lines(out) {
		assert.Contains(t, line, `{"tenant":{"type":"Buffer","data":[98,108,117,101]}}`)
	}

	for _, version := range []string{"V4", "V5"} {
		out, dialled := javaProgram(t, "Payload", append([]string{hostOf(t, p.address), s.keyspace, version}, statements...)...)
		assert.Equal(t, []string{p.address}, dialled)
		assert.Equal(t, 2*len(statements), strings.Count(out, "\n"))
		for line := range strings.Lines(out) {
			assert.True(t, strings.HasSuffix(line, " | blue\n"), "%s: %s", version, line)
		}
	}
}
