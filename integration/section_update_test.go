package integration

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shown returns the rows of SELECT … FOR UPDATE, each as a line.
func (s *tableFixture) shown(o outcome) []string {
	s.t.Helper()
	require.NoError(s.t, o.err())
	require.Equal(s.t, []string{"[applied]", "lock_ref", "state"}, o.columns[:3])
	var all []string
	for _, row := range o.rows {
		row = slices.Clone(row)
		if ref := strings.Trim(row[1], `"`); ref != "null" && ref != "NULL" && ref != "0" {
			s.refs["b"], row[1] = ref, bareRef(s.t, ref)
		}
		all = append(all, strings.ToLower(strings.ReplaceAll(strings.Join(row, " "), `"`, "")))
	}
	return all
}

// SELECT … FOR UPDATE acquires the lock and reads in one statement, through every driver; if it
// does not get the lock, its answer is one row with the state.
func TestSelectForUpdateThroughEveryDriver(t *testing.T) {
	for _, d := range oneOfEach() {
		t.Run(d.name, func(t *testing.T) {
			s := newTableFixtureFor(t, d)
			s.refs = map[string]string{}
			c, other := s.client, d.open(t, s.address, s.keyspace)
			defer other.close()
			none := s.shown(s.works(c, "SELECT id FROM ACCOUNTS WHERE branch = 'b' FOR UPDATE"))
			require.Len(t, none, 1, "one row even where there is no data")
			assert.Contains(t, none[0], "true 1 held")
			first := s.refs["b"]
			for i := range 5 {
				s.works(c, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'i%d', %d) USING LOCK %s", i, i, first))
			}
			s.inWindow("b", "i4", mustInt(t, first), 4)
			for _, wait := range []string{"NOWAIT", "SKIP LOCKED"} {
				busy := s.shown(s.works(other, "SELECT id FROM ACCOUNTS WHERE branch = 'b' FOR UPDATE "+wait))
				require.Len(t, busy, 1)
				assert.Regexp(t, "^false (0|null) busy", busy[0])
				busy = s.shown(s.works(other, "SELECT id FROM ACCOUNTS WHERE branch = ? FOR UPDATE "+wait, "b"))
				require.Len(t, busy, 1)
				assert.Regexp(t, "^false (0|null) busy", busy[0])
			}
			queued := s.shown(s.works(other, "SELECT id FROM ACCOUNTS WHERE branch = ? FOR UPDATE WAIT 100ms", "b"))
			require.Len(t, queued, 1)
			assert.Contains(t, queued[0], "false 2 queued")
			s.works(c, "UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK "+first)
			s.works(other, "UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK "+s.refs["b"])

			rows := s.shown(s.works(c, "SELECT id, balance FROM ACCOUNTS WHERE branch = ? AND id > ? ORDER BY id DESC LIMIT 3 FOR UPDATE WAIT 1s LEASE 60s", "b", "i0"))
			assert.Regexp(t, `^true \d+ held i4 4,true \d+ held i3 3,true \d+ held i2 2$`, strings.Join(rows, ","), "numbers that the proxy kept meanwhile are passed over")
			s.works(c, "UPDATE ACCOUNTS USING LOCK "+s.refs["b"]+" SET balance = 9 WHERE branch = 'b' AND id = 'i4'")
			s.works(c, "UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK "+s.refs["b"])

			o := s.do(c, "SELECT nosuch FROM ACCOUNTS WHERE branch = 'b' FOR UPDATE")
			require.NotNil(t, o.failure)
			assert.Contains(t, o.failure.text, "Undefined column name nosuch")
			free := s.shown(s.works(other, "SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'i4' FOR UPDATE NOWAIT"))
			require.Len(t, free, 1)
			assert.Regexp(t, `^true \d+ held 9$`, free[0], "the failed read has given its lock back; gocql has not even asked for it, since it prepares first")
			for cql, prefix := range map[string]string{
				"SELECT * FROM ACCOUNTS FOR UPDATE":                                    "MUSIC_KEY",
				"SELECT * FROM ACCOUNTS WHERE branch IN ('a', 'b') FOR UPDATE":         "MUSIC_KEY",
				"SELECT * FROM ACCOUNTS WHERE branch = 'b' USING LOCK 5 FOR UPDATE":    "MUSIC_SYNTAX",
				"SELECT * FROM ACCOUNTS WHERE branch = 'b' FOR UPDATE NOWAIT WAIT 1s":  "MUSIC_SYNTAX",
				"SELECT * FROM ACCOUNTS WHERE branch = 'b' FOR UPDATE LEASE 'a while'": "MUSIC_SYNTAX",
			} {
				s.refused(c, prefix, cql)
			}
		})
	}
}

// A later page is read under the lock that the first one acquired, and needs no new reference.
func TestPagesOfSelectForUpdate(t *testing.T) {
	for _, d := range []driver{withGocql2(3, ""), withGocql2(4, "+lz4"), withGocql2(5, "+lz4"), withGocql1("")} {
		t.Run(d.name, func(t *testing.T) {
			s := newTableFixtureFor(t, d)
			ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
			for i := range 7 {
				s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'i%d', %d) USING LOCK %d", i, i, ref))
			}
			s.refs = map[string]string{"b": strconv.FormatInt(ref, 10)}
			last := number(ref)
			for _, bind := range []bool{false, true} {
				s.works(s.client, "UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK "+s.refs["b"])
				read := statement{cql: "SELECT id, balance FROM " + s.keyspace + ".accounts WHERE branch = 'b' FOR UPDATE", page: 2}
				if bind {
					read.cql, read.values = strings.Replace(read.cql, "'b'", "?", 1), []any{"b"}
				}
				rows := s.shown(s.client.run(read))
				require.Len(t, rows, 7)
				shown, err := strconv.ParseInt(s.refs["b"], 10, 64)
				require.NoError(t, err)
				now := number(shown)
				assert.Greater(t, now, last)
				last = now
				for i, row := range rows {
					assert.Equal(t, fmt.Sprintf("true %d held i%d %d", now%(1<<16), i, i), row)
				}
				_, head := s.term("b")
				assert.LessOrEqual(t, head, now, "the head, or behind it in its block")
				s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %s SET balance = 0 WHERE branch = 'b' AND id = 'i0'", s.refs["b"]))
			}
		})
	}
}

// PREPARE of FOR UPDATE declares what EXECUTE takes and returns, with the lock and without,
// whichever columns the client knows already.
func TestPreparedSelectForUpdate(t *testing.T) {
	s := newTableFixture(t, "section_updateframes", "@critical")
	for _, f := range frameCases() {
		name := fmt.Sprintf("v%d%s", f.version, strings.ToLower(string(f.compression)))
		t.Run(name, func(t *testing.T) {
			fx := &fenceFixture{t: t, keyspace: s.keyspace, words: map[string]string{"$T": s.keyspace + ".accounts", "$K": "'" + name + "'"}}
			b := &attacker{fixture: fx, wire: openWire(t, s.address, f.version, f.compression)}
			m, failed := b.ask(&message.Prepare{Query: fx.expand("SELECT * FROM $T WHERE branch = ? AND id >= ? FOR UPDATE WAIT ? LEASE ? LIMIT ?")})
			require.Nil(t, failed)
			p := m.(*message.PreparedResult)
			assert.Equal(t, []string{"branch varchar", "id varchar", "[wait] bigint", "[lease] bigint", "[limit] int"}, declared(p.VariablesMetadata.Columns))
			if f.version >= primitive.ProtocolVersion4 {
				assert.Equal(t, []uint16{0}, p.VariablesMetadata.PkIndices)
			}
			want := []string{"[applied] boolean", "lock_ref bigint", "state varchar", "branch varchar", "id varchar", "balance bigint"}
			assert.Equal(t, want, declared(p.ResultMetadata.Columns))
			run := func(skip bool) message.Row {
				t.Helper()
				o := b.options([]*primitive.Value{text(name), text("a"), long(0), long(60_000), short(10)})
				o.SkipMetadata = skip
				m, failed := b.ask(&message.Execute{QueryId: p.PreparedQueryId, ResultMetadataId: p.ResultMetadataId, Options: o})
				require.Nil(t, failed)
				rows := m.(*message.RowsResult)
				assert.Equal(t, want, declared(rows.Metadata.Columns))
				require.Len(t, rows.Data, 1)
				row := rows.Data[0]
				row[1] = []byte(strconv.FormatInt(number(int64(binary.BigEndian.Uint64(row[1]))), 10))
				return row
			}
			assert.Equal(t, message.Row{{1}, []byte("1"), []byte("HELD"), nil, nil, nil}, run(true))
			assert.Equal(t, message.Row{{0}, []byte("2"), []byte("QUEUED"), nil, nil, nil}, run(true))
			assert.Equal(t, message.Row{{0}, []byte("3"), []byte("QUEUED"), nil, nil, nil}, run(false))

			m, failed = b.ask(plainQuery(fx.expand("SELECT * FROM $T WHERE branch = $K FOR UPDATE NOWAIT")))
			require.Nil(t, failed)
			assert.Equal(t, want, declared(m.(*message.RowsResult).Metadata.Columns), "as text, not held")
			forged := b.options(nil)
			forged.PagingState = []byte("not the proxy's")
			_, failed = b.ask(&message.Query{Query: fx.expand("SELECT * FROM $T WHERE branch = $K FOR UPDATE"), Options: forged})
			require.NotNil(t, failed)
			assert.True(t, matches("MUSIC_SYNTAX", failed), "%v", failed)
		})
	}
}

// A client whose connection ends before it was told of its lock leaves none behind; one that was
// told keeps it.
func TestSelectForUpdateOfAClientThatGoes(t *testing.T) {
	s := newTableFixture(t, "section_updategone", "@critical(lease=5m)")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "HELD")
	for range 3 {
		w := openWire(t, s.address, primitive.ProtocolVersion4, primitive.CompressionNone)
		require.NoError(t, w.send(plainQuery("SELECT * FROM "+s.keyspace+".accounts WHERE branch = 'b' FOR UPDATE WAIT 60s"), nil))
		require.NoError(t, w.send(plainQuery("LOCK "+s.keyspace+".accounts WHERE branch IN ('a', 'b') WAIT 60s"), nil))
		require.NoError(t, w.net.Close())
	}
	s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref))
	for _, branch := range []string{"a", "b"} {
		held, err := s.acquire(s.client, branch)
		require.NoError(t, err)
		s.works(s.client, "UNLOCK ACCOUNTS WHERE branch = '"+branch+"' USING LOCK "+held)
	}
}
