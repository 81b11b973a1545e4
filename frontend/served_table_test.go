package frontend

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// servedStatements are statements that Cassandra carries out. $L is where a lock clause stands alone, $A where another item of USING
// follows it.
var servedStatements = []string{
	"INSERT INTO $T (id, c, n) VALUES ('x', 1, 1) $L",
	"INSERT INTO $T (id, c, n) VALUES ('x', 1, 1) IF NOT EXISTS $L",
	"UPDATE $T $L SET n = 1 WHERE id = 'x' AND c = 1",
	"UPDATE $T $L SET n = 1 WHERE id = 'x' AND c = 1 IF n = null",
	"DELETE FROM $T $L WHERE id = 'x' AND c = 1",
	"UPDATE $T USING $A TIMESTAMP 5 SET n = 1 WHERE id = 'x' AND c = 1",
	"UPDATE $T USING $A TTL 9 AND TIMESTAMP 5 SET n = 1 WHERE id = 'x' AND c = 1",
	"UPDATE $T USING $A TIMESTAMP 5 SET n = 1 WHERE id = 'x' AND c = 1 IF n = null",
	"BEGIN BATCH USING $A TIMESTAMP 5 UPDATE $T SET n = 1 WHERE id = 'x' AND c = 1; APPLY BATCH",
	"INSERT INTO $T (id, c) VALUES ('x', 1) USING $A TTL 60",
	"INSERT INTO $T (id, c) VALUES ('x', 1) USING $A TTL 0",
	"BEGIN BATCH $L INSERT INTO $T (id, c) VALUES ('x', 1) USING TTL 60; UPDATE $T USING TTL 60 SET n = 1 WHERE id = 'x' AND c = 1 IF n = null; APPLY BATCH",
	"BEGIN BATCH $L DELETE FROM $T WHERE id = 'x' AND c = 1; UPDATE $T SET n = 1 WHERE id = 'x' AND c = 1; APPLY BATCH",
	"BEGIN BATCH $L DELETE FROM $T WHERE id = 'x' AND c = 1; UPDATE $T SET n = 1 WHERE id = 'x' AND c = 1 IF n = null; APPLY BATCH",
	"BEGIN BATCH $L UPDATE $T SET n = 1 WHERE id = 'x' AND c = 1; UPDATE $T SET n = 1 WHERE id = 'y' AND c = 1; APPLY BATCH",
	"BEGIN BATCH $L UPDATE $T SET n = 1 WHERE id = 'x' AND c = 1; INSERT INTO bank.plain (id) VALUES ('x'); APPLY BATCH",
	"BEGIN BATCH $L UPDATE $T SET n = 1 WHERE id = 'x' AND c = 1; INSERT INTO bank.plain (id) VALUES ('x') IF NOT EXISTS; APPLY BATCH",
	`INSERT INTO $T JSON '{"id": "x", "c": 1, "n": 1}' $L`,
	"UPDATE $T $L SET n = 1 WHERE id IN ('x', 'y') AND c = 1",
	"DELETE FROM $T $L WHERE id IN ('x')",
	"UPDATE $T $L SET n = 1 WHERE id = (text)'x' AND c = 1",
	"INSERT INTO $T (id, c, n) VALUES ('x', (int)1, 1) IF NOT EXISTS $L",
	"INSERT INTO bank.uuids (id, n) VALUES (fromJson('1'), 1) $L",
	"INSERT INTO bank.uuids (id, n) VALUES (now(), 1) $L",
	"UPDATE $T $L SET n = n + 1 WHERE id = 'x' AND c = 1 IF n = null",
	"UPDATE $T $L SET n = 1 WHERE id = 'x' AND c = 1 IF n = token('x')",
	"TRUNCATE $T",
}

// servedWays are how a statement comes.
var servedWays = []string{"QUERY", "PREPARE+EXECUTE", "BATCH child"}

// servedRig is a client of tables with one policy, and a node that carries everything out.
type servedRig struct {
	*testing.T
	client *peer
	node   *permissiveNode
}

// outcome sends one statement in one way and returns what came of it.
func (r *servedRig) outcome(text, way string) string {
	r.Helper()
	var request message.Message = query(text)
	switch way {
	case "BATCH child":
		request = &message.Batch{Children: []*message.BatchChild{{Query: text}}}
	case "PREPARE+EXECUTE":
		answer := relayedTo(r.client, &message.Prepare{Query: text})
		p, ok := answer.(*message.PreparedResult)
		if !ok {
			return "PREPARE " + firstWord(answer)
		}
		x := execute(p.PreparedQueryId, nil)
		x.Options.PositionalValues = nil
		request = x
	}
	answer := relayedTo(r.client, request)
	plain, fenced := r.node.seen()
	_, failed := answer.(message.Error)
	switch {
	case failed && len(plain)+len(fenced) == 0:
		return firstWord(answer)
	case !failed && len(plain) == 1 && len(fenced) == 0:
		return "forwarded"
	case !failed && len(plain) == 0 && len(fenced) == 1:
		return "served"
	}
	return fmt.Sprintf("%v, forwarded %q, fenced %q", answer, plain, fenced)
}

// firstWord returns the stable word of an error, or all of Cassandra's.
func firstWord(answer message.Message) string {
	text := answer.(message.Error).GetErrorMessage()
	if word, _, ok := strings.Cut(text, ":"); ok && strings.HasPrefix(word, "MUSIC_") {
		return word
	}
	return text
}

// What a critical table does with each statement that Cassandra knows, with a lock and without, in each way in which it can come, is
// written down whole: testdata/served.txt. What changes there is a change of what is served. UPDATE=1 writes it anew.
func TestWhatIsServed(t *testing.T) {
	columns := []string{"USING LOCK", "auto", "auto, timestamp=ignore", "allow", "reject"}
	rigs := map[string]*servedRig{}
	for _, column := range columns {
		rigs[column] = newServedRig(t, column)
	}
	var b strings.Builder
	for _, text := range servedStatements {
		fmt.Fprintf(&b, "%s\n", text)
		for _, column := range columns {
			fmt.Fprintf(&b, "    %-24s%s\n", column, rigs[column].outcomes(servedText(text, column)))
		}
	}
	path := filepath.Join("testdata", "served.txt")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String())
}

// outcomes sends one statement in all ways, and returns what came of it: once, where it is the same in all of them.
func (r *servedRig) outcomes(text string) string {
	r.Helper()
	var all, different []string
	for _, way := range servedWays {
		if way == "BATCH child" && (strings.HasPrefix(text, "BEGIN") || strings.HasPrefix(text, "TRUNCATE")) {
			continue
		}
		got := r.outcome(text, way)
		all = append(all, way+": "+got)
		if !slices.Contains(different, got) {
			different = append(different, got)
		}
	}
	if len(different) == 1 {
		return different[0]
	}
	return strings.Join(all, " | ")
}

// servedText returns a statement with its lock clause, or without.
func servedText(text, column string) string {
	own, other := "", ""
	if column == "USING LOCK" {
		own, other = "USING LOCK 9", "LOCK 9 AND"
	}
	return strings.NewReplacer("$T", "bank.accounts", "$L", own, "$A", other).Replace(text)
}

// newServedRig connects a client to tables that are critical in one way.
func newServedRig(t *testing.T, column string) *servedRig {
	t.Helper()
	settings := catalog.Settings{}
	switch name, _, _ := strings.Cut(column, ","); name {
	case "auto":
		settings.Unlocked = catalog.Auto
	case "allow":
		settings.Unlocked = catalog.Allow
	}
	settings.Ignore = strings.Contains(column, "timestamp=ignore")
	r := newRig(t, func(o *Options) { o.Locks = uncountedLocks{} })
	for _, table := range []string{"accounts", "uuids"} {
		key := catalog.Column{Name: "id", Type: map[string]string{"accounts": "text", "uuids": "timeuuid"}[table]}
		c := &catalog.Critical{
			Key: []catalog.Column{key}, Primary: []string{"id"}, Settings: settings,
			Columns: map[string]catalog.Column{"id": key, "n": {Name: "n", Type: "int"}},
		}
		if table == "accounts" {
			c.Primary = append(c.Primary, "c")
			c.Columns["c"] = catalog.Column{Name: "c", Type: "int", Clustering: true}
		}
		r.server.Tables.Set("bank", table, c)
	}
	client, backend := r.login(dialect{version: primitive.ProtocolVersion4})
	node := &permissiveNode{texts: map[string]string{}}
	go node.serve(backend)
	require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
	return &servedRig{t, client, node}
}
