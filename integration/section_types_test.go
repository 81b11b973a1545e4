package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keyCase is the type of a key column, a value in two spellings, and literals that are not of the
// type.
type keyCase struct {
	cql, literal, other string
	bound               string // the value on the wire
	wrong               []string
}

// keyCases returns the types that a key may have.
func keyCases() []keyCase {
	const id, timeID = "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"
	raw := "\x12\x3e\x45\x67\xe8\x9b\x42\xd3\xa4\x56\x42\x66\x14\x17\x40\x00"
	return []keyCase{
		{"text", "'it''s'", "$$it's$$", "it's", []string{"5", "0x61", id, "true", "null", "1.5"}},
		{"ascii", "'plain'", "$$plain$$", "plain", []string{"5", "0x61", "true", "'ü'"}},
		{"int", "-5", "-05", "\xff\xff\xff\xfb", []string{"'5'", "2147483648", "1.5", "0x05", "true"}},
		{"bigint", "5000000000", "05000000000", "\x00\x00\x00\x01\x2a\x05\xf2\x00", []string{"'5'", "9223372036854775808", "1.5", id}},
		{"smallint", "300", "0300", "\x01\x2c", []string{"'5'", "32768", "-32769", "1e0"}},
		{"tinyint", "-128", "-0128", "\x80", []string{"'5'", "128", "true"}},
		{"uuid", id, strings.ToUpper(id), raw, []string{"'" + id + "'", "5", "123e4567"}},
		{"timeuuid", timeID, strings.ToUpper(timeID), strings.Replace(raw, "\x42\xd3", "\x12\xd3", 1), []string{id, "5", "'x'"}},
		{"blob", "0xCAFE", "0xcafe", "\xca\xfe", []string{"'cafe'", "5", "0xcaf"}},
		{"boolean", "TRUE", "true", "\x01", []string{"'true'", "1", "0x01"}},
		{"timestamp", "'2024-02-29T00:00:00.000Z'", "1709164800000", "\x00\x00\x01\x8d\xf2\x29\x28\x00", []string{"'now'", "'2024-02-29'", "'yesterday'", "true", "1.5"}},
		{"date", "'1970-01-02'", "2147483649", "\x80\x00\x00\x01", []string{"'today'", "true", "0xff"}},
		{"decimal", "1.50", "150e-2", "\x00\x00\x00\x02\x00\x96", []string{"'1.5'", "true"}},
		{"double", "1.5", "15e-1", "\x3f\xf8\x00\x00\x00\x00\x00\x00", []string{"'1.5'", "true", "0x3f"}},
		{"inet", "'10.0.0.1'", "$$10.0.0.1$$", "\x0a\x00\x00\x01", []string{"5", "'localhost'", "'10.1'", "'300.0.0.1'", "true"}},
		{"varint", "300", "0300", "\x01\x2c", []string{"'300'", "1.5", "true"}},
	}
}

// A key is the same lock whether its value is a literal or bound, for every type that a key may
// have.
func TestLiteralAndBoundValueNameTheSameKey(t *testing.T) {
	s := newTableFixture(t, "section_types", "@critical")
	for _, k := range keyCases() {
		t.Run(k.cql, func(t *testing.T) {
			s.t = t
			table := s.keyspace + ".of_" + k.cql
			o := s.client.run(statement{cql: "CREATE TABLE " + table + " (\"The Key\" " + k.cql + " PRIMARY KEY, v int) WITH comment = '@critical'"})
			require.NoError(t, o.err())
			for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
				b := &attacker{fixture: &fenceFixture{t: t}, wire: openWire(t, s.address, version, primitive.CompressionNone)}
				s.oneKey(b, table, k)
			}
			for _, wrong := range k.wrong {
				o := s.client.run(statement{cql: "LOCK " + table + ` WHERE "The Key" = ` + wrong + " NOWAIT"})
				require.NotNil(t, o.failure, "%s: %v", wrong, o)
				assert.True(t, matches("MUSIC_KEY MUSIC_SYNTAX", o.failure), "%s: %v", wrong, o.failure)
			}
		})
	}
}

// oneKey locks with each form of the key, and writes with the others.
func (s *tableFixture) oneKey(b *attacker, table string, k keyCase) {
	s.t.Helper()
	where := table + ` WHERE "The Key" = `
	value := primitive.NewValue([]byte(k.bound))
	m, f := b.ask(plainQuery("LOCK " + where + k.literal + " NOWAIT"))
	require.Nil(s.t, f, "LOCK %s", k.literal)
	require.Equal(s.t, "HELD", cellOf(s.t, m, "state"))
	ref := int64(bigEndian([]byte(cellOf(s.t, m, "lock_ref"))))
	for _, cql := range []string{"LOCK " + where + k.other + " NOWAIT", "LOCK " + where + "? NOWAIT"} {
		var values []*primitive.Value
		if strings.Contains(cql, "?") {
			values = append(values, value)
		}
		m, f := b.ask(&message.Query{Query: cql, Options: b.options(values)})
		require.Nil(s.t, f, cql)
		assert.Equal(s.t, "BUSY", cellOf(s.t, m, "state"), "%s is the same key", cql)
	}
	using := fmt.Sprintf("UPDATE %s USING LOCK %d SET v = 1 WHERE \"The Key\" = ", table, ref)
	require.Nil(s.t, b.query(using+k.literal))
	require.Nil(s.t, b.query(using+k.other))
	require.Nil(s.t, b.query(using+"?", value))
	require.Nil(s.t, b.execute(using+"?", value))
	require.Nil(s.t, b.execute(strings.Replace(using, fmt.Sprint(ref), "?", 1)+"?", long(ref), value))
	require.Nil(s.t, b.execute("SELECT LOCK "+where+"? NOWAIT", value), "bound and prepared")
	require.Nil(s.t, b.execute("SELECT UNLOCK "+where+"? USING LOCK ?", value, long(ref)))
	var rows int
	require.NoError(s.t, s.direct.Query("SELECT count(*) FROM "+table).Scan(&rows))
	assert.Equal(s.t, 1, rows, "all of them wrote one row")
}

func bigEndian(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// cellOf returns a column of the only row, as it is on the wire.
func cellOf(t *testing.T, m message.Message, column string) string {
	t.Helper()
	rows, ok := m.(*message.RowsResult)
	require.True(t, ok && len(rows.Data) == 1, "%v", m)
	for i, c := range rows.Metadata.Columns {
		if c.Name == column {
			return string(rows.Data[0][i])
		}
	}
	require.Fail(t, "no such column", column)
	return ""
}

// The columns of a partition key may be given in any order, in LOCK and in what is written under it.
func TestKeyOfSeveralColumns(t *testing.T) {
	s := newTableFixture(t, "section_composite", "@critical")
	s.works(s.client, `CREATE TABLE pairs (a text, "B" int, c int, v int, st int static, PRIMARY KEY ((a, "B"), c)) WITH comment = '@critical'`)
	ref := s.grant(s.works(s.client, `LOCK pairs WHERE "B" = 7 AND a = 'x'`), "HELD")
	o := s.works(s.client, `SELECT LOCK pairs WHERE a = ? AND "B" = ? NOWAIT`, "x", 7)
	assert.Equal(t, "busy", told(o, "state"), "the same key in another order")
	s.grant(s.works(s.client, `LOCK pairs WHERE a = 'x' AND "B" = 8 NOWAIT`), "HELD")
	for _, cql := range []string{
		`INSERT INTO pairs ("B", c, a, v) VALUES (7, 1, 'x', 1) USING LOCK %d`, `UPDATE pairs USING LOCK %d SET v = 2 WHERE c = 1 AND "B" = 7 AND a = 'x'`,
		`UPDATE pairs USING LOCK %d SET st = 2 WHERE a = 'x' AND "B" = 7`, `DELETE FROM pairs USING LOCK %d WHERE a = 'x' AND "B" = 7 AND c >= 5 AND c < 9`,
	} {
		s.works(s.client, fmt.Sprintf(cql, ref))
	}
	s.works(s.client, `UPDATE pairs USING LOCK ? SET v = ? WHERE a = ? AND "B" = ? AND c = ?`, ref, 3, "x", 7, 1)
	read := s.works(s.client, fmt.Sprintf(`SELECT v, st FROM pairs WHERE a = 'x' AND "B" = 7 USING LOCK %d`, ref))
	assert.Equal(t, [][]string{{"3", "2"}}, read.rows)
	for _, where := range []string{"a = 'x'", `"B" = 7`, "a = 'x' AND b = 7", `a = 'x' AND "B" IN ()`, `a = 'x' AND "B" IN (7, null)`, `a = 'x' AND "B" > 7`, `a = 'x' AND "B" = '7'`, `a = 7 AND "B" = 7`} {
		o := s.do(s.client, "LOCK pairs WHERE "+where+" NOWAIT")
		require.NotNil(t, o.failure, where)
		assert.True(t, matches("MUSIC_KEY MUSIC_SYNTAX MUSIC_REFUSED", o.failure), "%s: %v", where, o.failure)
	}
}
