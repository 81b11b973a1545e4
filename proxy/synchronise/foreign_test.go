package synchronise

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"music/musiccore"
)

// Vectors are kept, whatever their elements are, alone and inside other types, and so are values of
// Cassandra's own classes.
func TestSynchroniseKeepsVectorsAndClasses(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TYPE KS.pair (x int, y text)")
	for i, c := range [][2]string{
		{"vector<text, 2>", "['a', '']"},
		{"vector<date, 2>", "['2020-01-01', '1969-01-01']"},
		{"vector<decimal, 1>", "[1.50]"},
		{"vector<boolean, 2>", "[true, false]"},
		{"vector<duration, 1>", "[1d]"},
		{"vector<inet, 2>", "['127.0.0.1', '::1']"},
		{"vector<time, 1>", "['12:00:00']"},
		{"vector<tinyint, 1>", "[1]"},
		{"vector<vector<float, 2>, 2>", "[[1, 2], [3, 4]]"},
		{"vector<vector<text, 2>, 2>", "[['a', 'b'], ['', 'd']]"},
		{"vector<frozen<list<int>>, 2>", "[[1], [2, 3]]"},
		{"vector<frozen<set<text>>, 1>", "[{'a', 'b'}]"},
		{"vector<frozen<map<int, text>>, 1>", "[{1: 'a'}]"},
		{"vector<frozen<tuple<int, text>>, 2>", "[(1, 'a'), (2, null)]"},
		{"vector<frozen<pair>, 1>", "[{x: 1}]"},
		{"list<frozen<vector<int, 1>>>", "[[1], [2]]"},
		{"map<int, frozen<vector<text, 1>>>", "{1: ['a']}"},
		{"frozen<list<vector<text, 1>>>", "[['a']]"},
		{"tuple<int, vector<text, 2>>", "(1, ['a', 'b'])"},
		{"tuple<int, vector<frozen<list<int>>, 1>>", "(1, [[3]])"},
		{"'org.apache.cassandra.db.marshal.LexicalUUIDType'", "50554d6e-29bb-41e5-b345-feff819cdc9f"},
		{"'org.apache.cassandra.db.marshal.LegacyTimeUUIDType'", "50554d6e-29bb-11e5-b345-feff819cdc9f"},
		{"'org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.Int32Type,org.apache.cassandra.db.marshal.UTF8Type)'", "'1:a'"},
		{"'org.apache.cassandra.db.marshal.DynamicCompositeType(a=>org.apache.cassandra.db.marshal.Int32Type)'", "'a@1'"},
	} {
		t.Run(c[0], func(t *testing.T) {
			s.t = t
			table := fmt.Sprintf("v%d", i)
			s.Do("CREATE TABLE KS." + table + " (k int PRIMARY KEY, v " + c[0] + ")")
			s.Do("INSERT INTO KS." + table + " (k, v) VALUES (1, " + c[1] + ") USING TIMESTAMP 5 AND TTL 1000")
			k, now := s.key(table, wireInt32(1)), int(time.Now().Unix())
			before, _ := s.look(k, now)
			s.synchronise(k, 10)
			after, stamps := s.look(k, now)
			assert.Equal(t, before, after)
			assert.Equal(t, []musiccore.Stamp{11}, stamps)
		})
	}
}

// A class that did not come with Cassandra is foreign, wherever it stands.
func TestForeign(t *testing.T) {
	for typeName, foreign := range map[string]bool{
		"int": false, "vector<frozen<list<int>>, 2>": false, "'org.apache.cassandra.db.marshal.LexicalUUIDType'": false,
		"'org.apache.cassandra.db.marshal.PartitionerDefinedOrder(org.apache.cassandra.dht.Murmur3Partitioner)'": true,
		"'com.example.Point'": true, "list<'com.example.Point'>": true, "tuple<'org.apache.cassandra.db.marshal.EmptyType', 'com.example.Point'>": true,
	} {
		assert.Equal(t, foreign, Foreign(typeName), typeName)
	}
}
