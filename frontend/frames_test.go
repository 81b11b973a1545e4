package frontend

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
)

// testdata/frames.txt says what Cassandra's own decoder reads of requests with every flag in every version (integration/parser writes it).
// The proxy reads the same of each, or refuses it: what it does not know might name another table, or another time.
func TestFramesAreReadAsCassandraReadsThem(t *testing.T) {
	page, err := os.ReadFile("testdata/frames.txt")
	require.NoError(t, err)
	read := 0
	for line := range strings.Lines(string(page)) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		raw, err := hex.DecodeString(parts[1])
		require.NoError(t, err)
		got := understood(raw)
		switch {
		case got != "refused":
			read++
			assert.Equal(t, parts[2], got, parts[0])
		case parts[2] != "refused":
			assert.True(t, isStrange(parts[0]), "%s: Cassandra reads %s", parts[0], parts[2])
		}
	}
	assert.Greater(t, read, 300)
}

// isStrange reports whether a request has flags that Cassandra 5.0 ignores, and of which nobody knows what they will mean; or says that it is
// compressed where no compression was agreed upon.
func isStrange(name string) bool {
	var version, opcode, headers, flags uint32
	_, err := fmt.Sscanf(name, "v%d op%d header%v flags%v", &version, &opcode, &headers, &flags)
	if err != nil {
		panic(err)
	}
	known := uint32(wire.KnownFlags)
	if opcode == uint32(primitive.OpCodePrepare) {
		known = 1
	}
	return headers&^uint32(headerFlags) != 0 || headers&1 != 0 && version < 5 || flags&^known != 0
}

// understood is what the proxy reads of a request, in the words of integration/parser/testdata/Frames.java.
func understood(raw []byte) string {
	e := wire.EnvelopeOf(raw)
	c := &conn{codec: codec{version: e.Version, limits: limited(func(*Limits) {})}}
	c.framing.SetSegmented(e.Version >= 5)
	body, err := c.requestBody(&e)
	if err != nil || e.Flags&^headerFlags != 0 {
		return "refused"
	}
	cur := wire.Cursor{Body: body}
	text, id, keyspace := "-", "-", ""
	switch e.OpCode {
	case primitive.OpCodeExecute:
		id = hex.EncodeToString(body[2:18])
		c.skipIDs(&cur)
	case primitive.OpCodeBatch:
		cur.Byte()
		keyspace, err = c.batchKeyspace(wire.Cursor{Body: body, At: 3}, cur.Short())
		text = "[" + childText(&cur) + ",_" + childText(&cur) + "]"
	case primitive.OpCodePrepare:
		text = string(cur.LongString())
		keyspace, err = c.keyspaceOfPrepare(body[cur.At:])
	default:
		text = string(cur.LongString())
		keyspace, err = c.keyspaceOfQuery(body[cur.At:], true)
	}
	said := "text=" + strings.ReplaceAll(text, " ", "_") + " ids=" + id
	if e.OpCode != primitive.OpCodePrepare {
		p := wire.ReadParameters(&cur, e.Version)
		if e.OpCode == primitive.OpCodeExecute {
			keyspace = p.Keyspace
		}
		said += " " + shownParameters(&p)
	}
	if err != nil || cur.Bad {
		return "refused"
	}
	if e.OpCode == primitive.OpCodePrepare {
		return said + " keyspace=" + orDash(keyspace)
	}
	return strings.Replace(said, "keyspace=", "keyspace="+orDash(keyspace), 1)
}

// childText is the text or id of a batch's next statement.
func childText(cur *wire.Cursor) string {
	var text string
	if cur.Byte() == 0 {
		text = string(cur.LongString())
	} else {
		text = hex.EncodeToString(cur.ShortBytes())
	}
	skipValues(cur)
	return text
}

func shownParameters(p *wire.Parameters) string {
	var values, names []string
	for _, v := range p.Values {
		if int32(binary.BigEndian.Uint32(v)) < 0 {
			values = append(values, "null")
			continue
		}
		values = append(values, hex.EncodeToString(v[4:]))
	}
	for _, n := range p.Names {
		names = append(names, string(n))
	}
	shown := map[primitive.QueryFlag]string{
		primitive.QueryFlagPageSize: "-1", primitive.QueryFlagSerialConsistency: "SERIAL", primitive.QueryFlagDefaultTimestamp: "-",
		primitive.QueryFlagNowInSeconds: "-", primitive.QueryFlagValueNames: "-",
	}
	for flag := range shown {
		if !p.Flags.Contains(flag) {
			continue
		}
		switch flag {
		case primitive.QueryFlagPageSize:
			shown[flag] = strconv.Itoa(int(int32(binary.BigEndian.Uint32(p.PageSize))))
		case primitive.QueryFlagSerialConsistency:
			level := primitive.ConsistencyLevel(binary.BigEndian.Uint16(p.Serial)).String()
			shown[flag] = strings.Fields(strings.TrimPrefix(level, "ConsistencyLevel "))[0]
		case primitive.QueryFlagDefaultTimestamp:
			shown[flag] = strconv.FormatInt(p.Timestamp, 10)
		case primitive.QueryFlagNowInSeconds:
			cur := wire.Cursor{Body: p.Rest}
			if p.Flags.Contains(primitive.QueryFlagWithKeyspace) {
				cur.ShortBytes()
			}
			shown[flag] = strconv.Itoa(cur.Int())
		case primitive.QueryFlagValueNames:
			if p.Names != nil {
				shown[flag] = "[" + strings.Join(names, ",") + "]"
			}
		}
	}
	return fmt.Sprintf("consistency=QUORUM values=[%s] names=%s page=%s serial=%s timestamp=%s keyspace= now=%s", strings.Join(values, ","),
		shown[primitive.QueryFlagValueNames], shown[primitive.QueryFlagPageSize], shown[primitive.QueryFlagSerialConsistency],
		shown[primitive.QueryFlagDefaultTimestamp], shown[primitive.QueryFlagNowInSeconds])
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
