package statement

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/rewrite"
)

// What Cassandra reads anew when it carries out a statement is no key: it would be another one than was locked. What it never takes for
// a key is told at once, and by people who know no Go.
func TestKeysThatAreNoConstants(t *testing.T) {
	long := strings.Repeat("x", 65536)
	for _, c := range []struct {
		types, where string // of the columns a, b, …, of which the last one is a clustering column
		says         string // "" where it is a key
	}{
		{"timestamp", "a = 'now'", "a is of type timestamp, and 'now' is not a constant of that type: write a moment with its time zone"},
		{"timestamp", "a = '2024-02-29'", "write a moment with its time zone"},
		{"timestamp", "a = '2024-02-29Z'", ""},
		{"timestamp", "a = 5", ""},
		{"inet", "a = 'localhost'", "write an address, not a name"},
		{"inet", "a = '::1'", ""},
		{"date", "a = 'today'", "write a day"},
		{"uuid", "a = uuid()", "a is of type uuid, and uuid() is not a constant of that type"},
		{"timeuuid", "a = now()", "now() is not a constant"},
		{"text", "a = (text) 'x'", "(text) 'x' is not a constant"},
		{"text", "a = token('x')", "token('x') is not a constant"},
		{"text", "a = 5", "a is of type text, and 5 is not a constant of that type: write it in quotes ('x'), or bind the value"},
		{"int", "a = '5'", "a is of type int, and '5' is not a constant of that type: write a whole number that fits, without quotes (5), or bind the value"},
		{"int", "a = null", "null is not a constant"},
		{"varint", "a = " + strings.Repeat("1", 2000), "…"},
		{"text", "a = ''", "a is empty"},
		{"blob", "a = 0x", "a is empty"},
		{"text", "a = '" + long + "'", "the key has 65536 bytes: Cassandra takes 65535 at most"},
		{"text", "a = '" + long[1:] + "'", ""},
		{"text int", "a = '' AND b = 5", ""},
		{"text int", "a = '" + long[9:] + "' AND b = 5", "the key has 65537 bytes"},
		{"text int", "a = '" + long[11:] + "' AND b = 5", ""},
	} {
		for _, text := range []string{"LOCK t WHERE " + c.where, "DELETE FROM t USING LOCK 1 WHERE " + c.where} {
			s := keyStatement(t, c.types, text)
			k, f := s.Key()
			if c.says == "" {
				require.Nil(t, f, "%.80s", text)
				assert.NotEmpty(t, k.PK)
				continue
			}
			require.NotNil(t, f, "%.80s", text)
			assert.Contains(t, f.Text, "MUSIC_KEY: ")
			assert.Contains(t, f.Text, c.says, "%.80s", text)
			assert.Less(t, len(f.Text), 400)
		}
	}
	for value, ok := range map[string]bool{"": false, "x": true, long: false} {
		s := keyStatement(t, "text", "LOCK t WHERE a = ?")
		s.Values = [][]byte{append(binary.BigEndian.AppendUint32(nil, uint32(len(value))), value...)}
		_, f := s.Key()
		assert.Equal(t, ok, f == nil, "%d bytes", len(value))
		s = keyStatement(t, "text", "LOCK t WHERE a IN ('"+value+"', 'y')")
		_, f = s.Keys()
		assert.Equal(t, ok, f == nil, "%d bytes among several", len(value))
	}
}

// keyStatement is a statement on a table whose partition key has columns a, b, … of these types.
func keyStatement(t *testing.T, types, text string) *Statement {
	t.Helper()
	parsed, err := rewrite.Parse([]byte(text))
	require.NoError(t, err, "%.80s", text)
	s := &Statement{Parsed: &parsed, Text: []byte(text), Table: &catalog.Table{Keyspace: "ks", Name: "t"}, Critical: &catalog.Critical{}}
	for i, typeName := range strings.Fields(types) {
		column := catalog.Column{Name: string(rune('a' + i)), Type: typeName}
		s.Critical.Key, s.Critical.Primary = append(s.Critical.Key, column), append(s.Critical.Primary, column.Name)
	}
	return s
}
