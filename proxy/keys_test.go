package proxy

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra/cassandratest"
	"music/proxy/synchronise"
	"music/rewrite"
)

// Of a type whose values Cassandra respells before it looks for a partition no column can be
// locked.
func TestTypesOfKeys(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(5))
	s.Do("CREATE TYPE KS.ty (x int, y text)")
	refused := []string{
		"frozen<set<int>>", "frozen<map<text, int>>", "frozen<list<int>>", "frozen<tuple<int, text>>", "frozen<ty>", "vector<float, 2>",
		"frozen<list<frozen<set<int>>>>", "frozen<map<int, frozen<map<int, int>>>>", "vector<frozen<set<int>>, 2>", "'org.apache.cassandra.db.marshal.LexicalUUIDType'",
	}
	for i, typeName := range append(refused, wholeTypes...) {
		for _, key := range []string{"PRIMARY KEY (a)", "PRIMARY KEY ((b, a))", "PRIMARY KEY (b, a)"} {
			table := &dataTable{keyspace: s.Name, name: fmt.Sprintf("t%d_%d", i, len(key))}
			s.Do(fmt.Sprintf("CREATE TABLE KS.%s (a %s, b int, %s)", table.name, typeName, key))
			require.NoError(t, (&schemaReader{session: s.Session, release: "5.0.8"}).readColumns(t.Context(), table))
			if i >= len(refused) || key == "PRIMARY KEY (b, a)" {
				assert.Empty(t, table.Refused, "%s %s", typeName, key)
			} else {
				assert.Contains(t, table.Refused, "its key column a is of type ", "%s %s", typeName, key)
			}
		}
	}
}

// wholeTypes are the types that a key may have.
var wholeTypes = []string{
	"ascii", "text", "blob", "boolean", "tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double",
	"uuid", "timeuuid", "inet", "date", "time", "timestamp",
}

// spellings are values of a type in wire form, of which some look alike or mean the same.
func spellings(typeName string) (all [][]byte) {
	n := func(size int, values ...uint64) {
		for _, v := range values {
			all = append(all, binary.BigEndian.AppendUint64(nil, v)[8-size:])
		}
	}
	switch typeName {
	case "ascii":
		return [][]byte{[]byte("a"), []byte("a "), []byte("A"), []byte("a\x00")}
	case "text":
		return [][]byte{[]byte("é"), []byte("e\u0301"), []byte("a"), []byte("a ")}
	case "blob", "varint":
		return [][]byte{{0}, {0, 0}, {5}, {0, 5}, {0, 0, 5}, {0xff}, {0xff, 0xff}, {0x80}, {0xff, 0x80}, {0, 0x80}}
	case "boolean":
		return [][]byte{{0}, {1}, {2}, {0xff}}
	case "tinyint":
		n(1, 0, 0x80, 0xff)
	case "smallint":
		n(2, 0, 0x80, 0xff80, 0x8000)
	case "int", "date":
		n(4, 0, 1, 1<<31, 1<<32-1)
	case "bigint", "timestamp":
		n(8, 0, 1, 1<<63, 1<<64-1)
	case "time":
		n(8, 0, 1, 86399999999999)
	case "float":
		n(4, 0, 1<<31, 0x7fc00000, 0x7fc00001, 0xffc00000, 0x7f800001, 0x7f800000, 0xff800000, 1)
	case "double":
		n(8, 0, 1<<63, math.Float64bits(math.NaN()), 0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0x7ff0000000000000, 0xfff0000000000000, 1)
	case "decimal":
		return [][]byte{{0, 0, 0, 1, 10}, {0, 0, 0, 2, 100}, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 1}, {0xff, 0xff, 0xff, 0xff, 1}, {0, 0, 0, 0, 10}, {0, 0, 0, 0, 0}, {0, 0, 0, 9, 0}}
	case "inet":
		v4, mapped := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.1")
		return [][]byte{v4.AsSlice(), mapped.AsSlice(), netip.IPv6Loopback().AsSlice(), netip.MustParseAddr("127.0.0.1").AsSlice()}
	case "uuid":
		all = append(all, []byte("\x12\x3e\x45\x67\xe8\x9b\x42\xd3\xa4\x56\x42\x66\x14\x17\x40\x00"), make([]byte, 16))
		fallthrough
	case "timeuuid":
		for _, changed := range []int{0, 4, 7, 8, 15} {
			id := []byte("\x12\x3e\x45\x67\xe8\x9b\x12\xd3\x24\x56\x42\x66\x14\x17\x40\x00")
			id[changed] ^= 0x80
			all = append(all, id)
		}
	}
	return all
}

// Two spellings are one key for the proxy if and only if they are one for Cassandra: as a partition
// key by their bytes, as a clustering column by what they mean. Cassandra is the judge, on a table
// and on what stands for its lock rows.
func TestSpellingsAreOneKeyWhereTheyAreForCassandra(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(5))
	for _, typeName := range wholeTypes {
		s.Do("CREATE TABLE KS.p_" + typeName + " (a " + typeName + " PRIMARY KEY, v int)")
		s.Do("CREATE TABLE KS.c_" + typeName + " (k int, a " + typeName + ", v int, PRIMARY KEY (k, a)) WITH CLUSTERING ORDER BY (a DESC)")
		partitions, rows := map[string]bool{}, map[string]bool{}
		for _, value := range spellings(typeName) {
			partitions[string(value)] = true
			canonical, ok := rewrite.Canonical(typeName, value)
			require.True(t, ok, typeName)
			rows[string(canonical)] = true
			for _, cql := range []string{"INSERT INTO KS.p_%s (a, v) VALUES (?, 1)", "INSERT INTO KS.c_%s (k, a, v) VALUES (1, ?, 1)"} {
				cql = strings.ReplaceAll(fmt.Sprintf(cql, typeName), "KS", s.Name)
				require.NoError(t, s.Session.Query(cql, synchronise.RawValue(value)).Exec(), "%s %x", typeName, value)
			}
		}
		assert.Equal(t, len(partitions), rowsOf(t, s, "p_"+typeName), "partitions of %s", typeName)
		assert.Equal(t, len(rows), rowsOf(t, s, "c_"+typeName), "rows of %s", typeName)
	}
}

// rowsOf returns how many rows a table has.
func rowsOf(t *testing.T, s *cassandratest.Keyspace, table string) (n int) {
	t.Helper()
	require.NoError(t, s.Session.Query("SELECT count(*) FROM "+s.Name+"."+table).Scan(&n))
	return n
}

// What is read of a literal is what Cassandra reads, and it is read in whatever way drivers and
// people write it.
func TestLiteralsAreWhatCassandraReads(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(5))
	r := rand.New(rand.NewPCG(1, 2))
	read := map[string]int{}
	for typeName, literals := range someLiterals(r) {
		for _, literal := range literals {
			statement, err := rewrite.Parse([]byte("LOCK t WHERE a = " + literal))
			require.NoError(t, err, literal)
			got, err := rewrite.Encode(typeName, []byte("LOCK t WHERE a = "+literal), statement.Where[0].Value)
			if err != nil {
				continue
			}
			read[typeName]++
			var want synchronise.RawValue
			assert.NoError(t, s.Session.Query("SELECT ("+typeName+") "+literal+" FROM system.local").Scan(&want), "%s %s", typeName, literal)
			assert.Equal(t, []byte(want), got, "%s %s", typeName, literal)
		}
	}
	for _, typeName := range append([]string{"duration"}, wholeTypes...) {
		assert.Greater(t, read[typeName], 1, typeName)
	}
}

// someLiterals are literals by the type that they are to be read as; not all of them are of it.
func someLiterals(r *rand.Rand) map[string][]string {
	id, timeID := "123E4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"
	all := map[string][]string{
		"text": {"'it''s'", "$$it's$$", "''", "'é'"}, "ascii": {"'a'", "$$b$$", "'é'"}, "blob": {"0x", "0xCAfe", "0XCA"}, "boolean": {"true", "FALSE", "tRue"},
		"uuid": {id, timeID}, "timeuuid": {timeID, strings.ToUpper(timeID), id}, "duration": {"1d2h", "30m", "-1y2mo", "P1Y2M", "PT5S", "P2W", "5us3ns", "0s", "1h1h"},
		"inet":  {"'10.0.0.1'", "'::1'", "'::ffff:10.0.0.1'", "'2001:DB8::0:1'", "'0.0.0.0'", "'::'", "'fe80::1:2'", "'::10.0.0.1'"},
		"float": {"NaN", "nan", "Infinity", "1e99", "1e-99", "0.1", "-0.0", "-0", "3.4028236e38", "1.", "1e5"}, "double": {"NaN", "INFINITY", "1e999", "-0.0", "-0", "5e-324", "1.", "007", "-5"},
		"decimal": {"1.0", "1.00", "0.0", "-0.0", "1e5", "1E+5", "1.5e-3", "007", "1.", "100", "1e2147483647"},
	}
	for range 60 {
		plus, minus := r.Int64()>>r.IntN(63), r.Int64()>>r.IntN(63)
		n := plus - minus
		for _, typeName := range []string{"tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double", "date", "time", "timestamp"} {
			all[typeName] = append(all[typeName], fmt.Sprint(n), fmt.Sprintf("%07d", n%300))
		}
		all["varint"] = append(all["varint"], fmt.Sprintf("%d%d", n, r.Uint64()))
		for _, typeName := range []string{"decimal", "float", "double"} {
			all[typeName] = append(all[typeName], fmt.Sprintf("%d.%d", n, r.Uint64()>>r.IntN(63)), fmt.Sprintf("%de%d", n, r.IntN(80)-40))
		}
		at := time.Unix(r.Int64N(20e9)-10e9, r.Int64N(1e9)).In(time.FixedZone("", (r.IntN(105)-52)*900))
		for _, layout := range []string{"2006-01-02", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05.000", "2006-01-02T15:04:05.00"} {
			for _, zone := range []string{"Z", "-07", "-0700", "-07:00", "", " MST"} {
				all["timestamp"] = append(all["timestamp"], at.Format("'"+layout+zone+"'"))
			}
		}
		all["date"] = append(all["date"], at.AddDate(r.IntN(4000)-1000, 0, 0).Format("'2006-01-02'"))
		for _, layout := range []string{"'15:04:05'", "'15:04:05.000000000'", "'15:04:05.0'", "'15:04'"} {
			all["time"] = append(all["time"], at.Format(layout))
		}
	}
	return all
}
