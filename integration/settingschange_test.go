package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// numberedWrites are plain writes of a number to one row; $T stands for the table, and $N for the
// number.
var numberedWrites = []string{
	"INSERT INTO $T (k, v) VALUES (1, $N)", "UPDATE $T SET v = $N WHERE k = 1",
	"BEGIN BATCH UPDATE $T SET v = $N WHERE k = 1; APPLY BATCH",
}

// Statements that were prepared under one setting of their table are executed under others, in
// every version and compression, as EXECUTE and in a BATCH, beside texts whose keyspace is a field
// of the frame. What the node has afterwards shows which were allowed.
func TestPreparedWritesObeyTheSettingsOfTheirExecution(t *testing.T) {
	const keyspace = "gatechange"
	node := openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session
	admin := openGocql2(t, cluster2(needProxy(t), "")).session
	order := func(cql string) {
		require.NoError(t, admin.Query(cql).Exec(), cql)
	}
	order("DROP KEYSPACE IF EXISTS " + keyspace)
	order("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	var clients []*plainClient
	for _, c := range frameCases() {
		clients = append(clients, &plainClient{t: t, node: node, wire: openWire(t, needProxy(t), c.version, c.compression), name: c.String()})
	}
	for _, before := range []string{"ordinary", "unlocked=allow", "unlocked=auto", "unlocked=reject"} {
		table := tableName{keyspace, "was_" + strings.TrimPrefix(before, "unlocked=")}
		order("CREATE TABLE " + keyspace + "." + table.name + " (k int PRIMARY KEY, v int) WITH comment = '" + commentFor(before) + "'")
		for _, c := range clients {
			c.prepareAll(table)
		}
		for _, after := range []string{"unlocked=reject", "unlocked=auto", "unlocked=allow"} {
			order("ALTER TABLE " + keyspace + "." + table.name + " WITH comment = '" + commentFor(after) + "'")
			for _, c := range clients {
				c.tryAll(table, before, after)
			}
		}
	}
}

// commentFor returns the comment with these settings.
func commentFor(world string) string {
	if world == "ordinary" {
		return world
	}
	return "@critical(" + world + ")"
}

// plainClient is one connection that writes without locks.
type plainClient struct {
	t      *testing.T
	node   *gocql.Session
	wire   *wire
	name   string
	number int
	turn   int
	writes []preparedWrite
}

// preparedWrite is a write that was prepared while its table had other settings.
type preparedWrite struct {
	text   string // without the keyspace: it stands in the frame
	full   string
	number int
	id     []byte
	meta   []byte
}

// tableName is keyspace and name of a table.
type tableName struct{ keyspace, name string }

// prepareAll prepares the writes to a table, each with a number of its own.
func (c *plainClient) prepareAll(table tableName) {
	c.t.Helper()
	c.writes = nil
	for _, text := range numberedWrites {
		c.number++
		say := func(name string) string {
			return strings.NewReplacer("$T", name, "$N", fmt.Sprint(c.number)).Replace(text)
		}
		w := preparedWrite{text: say(table.name), full: say(table.keyspace + "." + table.name), number: c.number}
		c.prepare(&w)
		c.writes = append(c.writes, w)
	}
}

func (c *plainClient) prepare(w *preparedWrite) {
	c.t.Helper()
	p, ok := c.say(&message.Prepare{Query: w.full}, "").(*message.PreparedResult)
	require.True(c.t, ok, w.full)
	if w.id != nil {
		require.Equal(c.t, w.id, p.PreparedQueryId, "no driver takes another id")
	}
	w.id, w.meta = p.PreparedQueryId, p.ResultMetadataId
}

// say sends a message, in a keyspace of its own if one is given, and returns its answer. In
// versions before 5 it appends the keyspace itself, since the library knows that field for version
// 5 only; consistency and flags are last in the body there.
func (c *plainClient) say(m message.Message, keyspace string) message.Message {
	c.t.Helper()
	var e envelope
	var err error
	if keyspace != "" && c.wire.version < primitive.ProtocolVersion5 {
		var b bytes.Buffer
		c.wire.stream = (c.wire.stream + 1) % 1000
		require.NoError(c.t, frame.NewCodec().EncodeFrame(frame.NewFrame(c.wire.version, c.wire.stream, m), &b))
		raw := b.Bytes()
		raw[len(raw)-1] |= byte(primitive.QueryFlagWithKeyspace)
		raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(keyspace))), keyspace...)
		binary.BigEndian.PutUint32(raw[5:], uint32(len(raw)-primitive.FrameHeaderLengthV3AndHigher))
		require.NoError(c.t, c.wire.sendRaw(raw))
		e, err = c.wire.receive()
	} else {
		e, err = c.wire.ask(m)
	}
	require.NoError(c.t, err)
	f, err := c.wire.decode(e)
	require.NoError(c.t, err)
	return f.Body.Message
}

// ways returns the ways to try a write: by what was prepared, also in a BATCH, and as text in the
// keyspace of the request.
func (c *plainClient) ways(w preparedWrite, keyspace string) map[string]func() message.Message {
	one := func() *message.QueryOptions { return &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne} }
	own := one()
	if c.wire.version >= primitive.ProtocolVersion5 {
		own.Keyspace = keyspace
	}
	ways := map[string]func() message.Message{
		"EXECUTE": func() message.Message {
			return c.say(&message.Execute{QueryId: w.id, ResultMetadataId: w.meta, Options: one()}, "")
		},
		"QUERY": func() message.Message { return c.say(&message.Query{Query: w.text, Options: own}, keyspace) },
	}
	if !strings.HasPrefix(w.text, "BEGIN") {
		batch := func(child *message.BatchChild, keyspace string) func() message.Message {
			return func() message.Message {
				return c.say(&message.Batch{Children: []*message.BatchChild{child}, Consistency: primitive.ConsistencyLevelOne, Keyspace: own.Keyspace}, keyspace)
			}
		}
		ways["BATCH of id"], ways["BATCH of text"] = batch(&message.BatchChild{Id: w.id}, ""), batch(&message.BatchChild{Query: w.text}, keyspace)
	}
	return ways
}

// tryAll tries every write under the present settings of the table, and checks by the row which
// were allowed.
func (c *plainClient) tryAll(table tableName, before, after string) {
	c.t.Helper()
	for i := range c.writes {
		w := &c.writes[i]
		ways := c.ways(*w, table.keyspace)
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			try := ways[way]
			if c.turn++; c.turn%2 == 0 {
				continue // every second one, others each time
			}
			value, stamp := c.look(table)
			answer := try()
			if _, again := answer.(*message.Unprepared); again {
				c.prepare(w)
				answer = try()
			}
			now, written := c.look(table)
			failure, failed := answer.(message.Error)
			what := fmt.Sprintf("%s: %s, then %s: %s of %s: %v", c.name, before, after, way, w.text, answer)
			switch {
			case after != "unlocked=reject":
				assert.False(c.t, failed, what)
				if after == "unlocked=auto" {
					assert.Equal(c.t, w.number, now, what)
				}
			case assert.True(c.t, failed, what):
				assert.Contains(c.t, failure.GetErrorMessage(), "MUSIC_UNLOCKED", what)
				fallthrough
			default:
				assert.Equal(c.t, []int64{int64(value), stamp}, []int64{int64(now), written}, what)
			}
		}
	}
}

// look reads the row at the node.
func (c *plainClient) look(table tableName) (value int, stamp int64) {
	c.t.Helper()
	iter := c.node.Query("SELECT v, writetime(v) FROM " + table.keyspace + "." + table.name + " WHERE k = 1").Iter()
	iter.Scan(&value, &stamp)
	require.NoError(c.t, iter.Close())
	return value, stamp
}
