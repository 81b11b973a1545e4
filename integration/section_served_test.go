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

// Every statement that is allowed under a lock works with each version and compression, and writes in the holder's window.
func TestEverythingAllowedUnderALock(t *testing.T) {
	s := newTableFixture(t, "section_served", "@critical")
	s.works(s.client, "CREATE TABLE wide (k text, c int, n bigint, s set<text>, m map<text, int>, l list<int>, st text static, PRIMARY KEY (k, c)) WITH comment = '@critical(lease=5m)'")
	for _, c := range frameCases() {
		name := fmt.Sprintf("v%d %s", c.version, strings.ToLower(string(c.compression)))
		t.Run(name, func(t *testing.T) {
			w := openWire(t, s.address, c.version, c.compression)
			fx := &fenceFixture{t: t, keyspace: s.keyspace, words: map[string]string{"$T": s.keyspace + ".wide", "$K": "'" + name + "'"}}
			b := &attacker{fixture: fx, wire: w}
			m, f := b.ask(plainQuery(fx.expand("LOCK $T WHERE k = $K LEASE 5m")))
			require.Nil(t, f)
			ref := int64(bigEndian([]byte(cellOf(t, m, "lock_ref"))))
			fx.words["$REF"] = fmt.Sprint(ref)
			b.servedTexts()
			b.servedBatches(name, ref)
			b.servedPages(name, ref)
			var rows, early int64
			query := "SELECT count(*) FROM " + s.keyspace + ".wide WHERE k = ?"
			require.NoError(t, s.direct.Query(query, name).Scan(&rows))
			assert.EqualValues(t, 22, rows)
			require.NoError(t, s.direct.Query("SELECT min(writetime(n)) FROM "+s.keyspace+".wide WHERE k = ?", name).Scan(&early))
			assert.Greater(t, early, int64(1_000_000), "the frame's own stamp is overwritten")
			require.Nil(t, b.query("UNLOCK $T WHERE k = $K USING LOCK $REF"))
		})
	}
}

// servedTexts sends single statements, as QUERY and as EXECUTE.
func (b *attacker) servedTexts() {
	b.fixture.t.Helper()
	for _, cql := range []string{
		"INSERT INTO $T (k, c, n) VALUES ($K, 1, 1) USING LOCK $REF", "INSERT INTO $T (k, c, n) VALUES ($K, 2, 1) USING TTL 500 AND LOCK $REF",
		"INSERT INTO $T (k, c, n) VALUES ($K, 2, 1) USING LOCK $REF AND TTL 500;", "UPDATE $T USING LOCK $REF AND TTL 500 SET n = 2 WHERE k = $K AND c = 1",
		"UPDATE $T USING LOCK $REF SET s = s + {'a', 'b'}, m['x'] = 1, l = l + [1, 2] WHERE k = $K AND c = 1", "UPDATE $T USING LOCK $REF SET l = [3] + l, m = m - {'x'} WHERE k = $K AND c = 1",
		"DELETE s['a'], n FROM $T USING LOCK $REF WHERE k = $K AND c = 1", "UPDATE $T USING LOCK $REF SET st = 'static' WHERE k = $K", "DELETE st FROM $T USING LOCK $REF WHERE k = $K",
		"INSERT INTO $T (k, c, n) VALUES ($K, 50, 1) USING LOCK $REF", "DELETE FROM $T USING LOCK $REF WHERE k = $K AND c = 50", "INSERT INTO $T (k, c, n) VALUES ($K, 60, 1) USING LOCK $REF",
		"DELETE FROM $T USING LOCK $REF WHERE k = $K AND c >= 40 AND c < 70", "update /* x */ $T using lock $REF set n = 3 -- y\n where k = $K and c in (1, 2)",
		"BEGIN BATCH USING LOCK $REF INSERT INTO $T (k, c, n) VALUES ($K, 3, 1); UPDATE $T SET n = 2 WHERE k = $K AND c = 3; DELETE FROM $T WHERE k = $K AND c = 9; APPLY BATCH;",
		"BEGIN UNLOGGED BATCH USING LOCK $REF UPDATE $T SET n = 4 WHERE k = $K AND c = 3; APPLY BATCH", "SELECT * FROM $T WHERE k = $K AND c > 0 ORDER BY c DESC LIMIT 5 USING LOCK $REF",
	} {
		assert.Nil(b.fixture.t, b.query(cql), "QUERY %s", cql)
		assert.Nil(b.fixture.t, b.execute(cql), "EXECUTE %s", cql)
	}
	assert.Nil(b.fixture.t, b.stamped("UPDATE $T USING LOCK $REF SET n = 5 WHERE k = $K AND c = 2", 5), "with the driver's own stamp")
	assert.Nil(b.fixture.t, b.adorned("UPDATE $T USING LOCK $REF SET n = 5 WHERE k = $K AND c = 2", withTracing), "traced")
	if b.wire.version >= primitive.ProtocolVersion4 {
		assert.Nil(b.fixture.t, b.adorned("UPDATE $T USING LOCK $REF SET n = 5 WHERE k = $K AND c = 2", withPayload), "with a payload")
	}
}

// servedBatches sends BATCH messages of texts and ids.
func (b *attacker) servedBatches(key string, ref int64) {
	b.fixture.t.Helper()
	const insert = "INSERT INTO $T (k, c, n) VALUES (?, ?, ?) USING LOCK ?"
	id, metadata, f := b.prepare(b.fixture.expand(insert), "")
	require.Nil(b.fixture.t, f)
	values := func(c int32) []*primitive.Value {
		return []*primitive.Value{text(key), short(c), long(1), long(ref)}
	}
	literal := "UPDATE $T USING LOCK $REF SET n = 1 WHERE k = $K AND c = 4"
	for _, kind := range []primitive.BatchType{primitive.BatchTypeLogged, primitive.BatchTypeUnlogged} {
		assert.Nil(b.fixture.t, b.batch(kind, literal, &message.BatchChild{Query: b.fixture.expand(insert), Values: values(5)}, &message.BatchChild{Id: id, Values: values(6)}))
		assert.Nil(b.fixture.t, b.batch(kind, &message.BatchChild{Id: id, Values: values(7)}))
	}
	for c := range int32(15) {
		assert.Nil(b.fixture.t, b.executeID(id, metadata, values(c+8)...))
	}
}

// servedPages reads in pages, by literal and by marker.
func (b *attacker) servedPages(key string, ref int64) {
	b.fixture.t.Helper()
	const cql = "SELECT c, n FROM $T WHERE k = ? USING LOCK ?"
	id, metadata, f := b.prepare(b.fixture.expand(cql), "")
	require.Nil(b.fixture.t, f)
	read := func(way func(o *message.QueryOptions) message.Message) (rows int) {
		for o := b.options([]*primitive.Value{text(key), long(ref)}); ; {
			o.PageSize = 5
			m, f := b.ask(way(o))
			require.Nil(b.fixture.t, f)
			page, ok := m.(*message.RowsResult)
			require.True(b.fixture.t, ok)
			rows += len(page.Data)
			if o.PagingState = page.Metadata.PagingState; o.PagingState == nil {
				return rows
			}
		}
	}
	assert.Equal(b.fixture.t, 22, read(func(o *message.QueryOptions) message.Message {
		return &message.Query{Query: b.fixture.expand(cql), Options: o}
	}), "QUERY")
	assert.Equal(b.fixture.t, 22, read(func(o *message.QueryOptions) message.Message {
		return &message.Execute{QueryId: id, ResultMetadataId: metadata, Options: o}
	}), "EXECUTE")
}
