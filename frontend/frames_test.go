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

// isStrange tells whether a request has flags that Cassandra 5.0 ignores, and of which nobody knows what they will mean; or says that it is
// compressed where no compression was agreed upon.
func isStrange(name string) bool {
	var version, opcode, headers, flags uint32
	_, err := fmt.Sscanf(name, "v%d op%d header%v flags%v", &version, &opcode, &headers, &flags)
	if err != nil {
		panic(err)
	}
	known := uint32(knownFlags)
	if opcode == uint32(primitive.OpCodePrepare) {
		known = 1
	}
	return headers&^uint32(headerFlags) != 0 || headers&1 != 0 && version < 5 || flags&^known != 0
}

// understood is what the proxy reads of a request, in the words of integration/parser/testdata/Frames.java.
func understood(raw []byte) string {
	e := envelope{header: readHeader(raw), raw: raw}
	c := &conn{server: &Server{}, version: e.version}
	c.segmented.Store(e.version >= 5)
	body, err := c.plainBody(e)
	if err != nil || e.flags&^headerFlags != 0 {
		return "refused"
	}
	cur := cursor{b: body}
	text, id, keyspace := "-", "-", ""
	switch e.opcode {
	case primitive.OpCodeExecute:
		id = hex.EncodeToString(body[2:18])
		c.skipIDs(&cur)
	case primitive.OpCodeBatch:
		cur.byte()
		keyspace, err = c.batchKeyspace(cursor{b: body, at: 3}, cur.short())
		text = "[" + childText(&cur) + ",_" + childText(&cur) + "]"
	case primitive.OpCodePrepare:
		text = string(cur.longString())
		keyspace, err = c.keyspaceOfPrepare(body[cur.at:])
	default:
		text = string(cur.longString())
		keyspace, err = c.keyspaceOfQuery(body[cur.at:], true)
	}
	said := "text=" + strings.ReplaceAll(text, " ", "_") + " ids=" + id
	if e.opcode != primitive.OpCodePrepare {
		p := readParameters(&cur, e.version)
		if e.opcode == primitive.OpCodeExecute {
			keyspace = p.keyspace
		}
		said += " " + shownParameters(&p)
	}
	if err != nil || cur.bad {
		return "refused"
	}
	if e.opcode == primitive.OpCodePrepare {
		return said + " keyspace=" + orDash(keyspace)
	}
	return strings.Replace(said, "keyspace=", "keyspace="+orDash(keyspace), 1)
}

// childText is the text or id of a batch's next statement.
func childText(cur *cursor) string {
	var text string
	if cur.byte() == 0 {
		text = string(cur.longString())
	} else {
		text = hex.EncodeToString(cur.string())
	}
	skipValues(cur)
	return text
}

func shownParameters(p *parameters) string {
	var values, names []string
	for _, v := range p.values {
		if int32(binary.BigEndian.Uint32(v)) < 0 {
			values = append(values, "null")
			continue
		}
		values = append(values, hex.EncodeToString(v[4:]))
	}
	for _, n := range p.names {
		names = append(names, string(n))
	}
	shown := map[primitive.QueryFlag]string{
		primitive.QueryFlagPageSize: "-1", primitive.QueryFlagSerialConsistency: "SERIAL", primitive.QueryFlagDefaultTimestamp: "-",
		primitive.QueryFlagNowInSeconds: "-", primitive.QueryFlagValueNames: "-",
	}
	for flag := range shown {
		if !p.flags.Contains(flag) {
			continue
		}
		switch flag {
		case primitive.QueryFlagPageSize:
			shown[flag] = strconv.Itoa(int(int32(binary.BigEndian.Uint32(p.pageSize))))
		case primitive.QueryFlagSerialConsistency:
			level := primitive.ConsistencyLevel(binary.BigEndian.Uint16(p.serial)).String()
			shown[flag] = strings.Fields(strings.TrimPrefix(level, "ConsistencyLevel "))[0]
		case primitive.QueryFlagDefaultTimestamp:
			shown[flag] = strconv.FormatInt(p.timestamp, 10)
		case primitive.QueryFlagNowInSeconds:
			cur := cursor{b: p.rest}
			if p.flags.Contains(primitive.QueryFlagWithKeyspace) {
				cur.string()
			}
			shown[flag] = strconv.Itoa(cur.int())
		case primitive.QueryFlagValueNames:
			if p.names != nil {
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
