package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bareRef returns the reference in the queue, counted from 1 for each lock table, that a client
// sees with a tag behind it.
func bareRef(t *testing.T, ref string) string {
	t.Helper()
	return strconv.FormatInt(mustInt(t, ref)>>23%(1<<16), 10)
}

// number returns the reference in the queue that a lock_ref stands for: lock_ref without its tag.
func number(ref int64) int64 { return ref >> 23 }

// states returns the rows of LOCK … IN on one line: key, reference and state of each.
func (s *tableFixture) states(o outcome) string {
	s.t.Helper()
	require.NoError(s.t, o.err())
	require.Equal(s.t, []string{"[applied]", "lock_ref", "state", "position", "holder", "lease_ms", "owner_died", "branch"}, o.columns)
	var all []string
	for _, row := range o.rows {
		clean := func(i int) string { return strings.ToLower(strings.Trim(row[i], `"`)) }
		require.Equal(s.t, clean(2) == "held", clean(0) == "true", "%v", o)
		ref := "0" // as gocql shows it
		if n := clean(1); n != "null" && n != "0" {
			ref = bareRef(s.t, clean(1))
			s.refs[clean(7)] = clean(1)
		}
		all = append(all, clean(7)+" "+ref+" "+clean(2))
	}
	return strings.Join(all, ", ")
}

// statesOnceReleased is states of a LOCK … NOWAIT when key 0 is free: UNLOCK is answered while its
// Release is still in flight.
func (s *tableFixture) statesOnceReleased(c client, cql string) (all string) {
	s.t.Helper()
	eventually(s.t, answerLimit, "the Release has arrived", func() error {
		if all = s.states(s.works(c, cql)); strings.Contains(all, "0 0 busy") {
			return errorf("%s", all)
		}
		return nil
	})
	return all
}

// A LOCK of several keys takes all of them or none, or, with SKIP LOCKED, the free ones, through every driver.
func TestLockOfSeveralKeys(t *testing.T) {
	for _, d := range oneOfEach() {
		t.Run(d.name, func(t *testing.T) {
			s := newTableFixtureFor(t, d)
			s.refs = map[string]string{}
			c, other := s.client, d.open(t, s.address, s.keyspace)
			defer other.close()
			assert.Equal(t, "c 1 held, a 1 held, b 1 held", s.states(s.works(c, "LOCK ACCOUNTS WHERE branch IN ('c', 'a', 'b', 'a') LEASE 60s AS 'me'")))
			for _, branch := range []string{"a", "b", "c"} {
				s.works(c, "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('"+branch+"', 'x', 1) USING LOCK "+s.refs[branch])
				s.inWindow(branch, "x", mustInt(t, s.refs[branch]), 1)
			}
			assert.Equal(t, "0 1 released, z 0 busy, b 0 busy", s.states(s.works(other, "LOCK ACCOUNTS WHERE branch IN ('0', 'z', 'b') WAIT 1400ms")))
			assert.Equal(t, "z 0 busy, 0 2 released, b 0 busy", s.statesOnceReleased(other, "LOCK ACCOUNTS WHERE branch IN ('z', '0', 'b') NOWAIT"))
			assert.Equal(t, "0 3 held, z 1 held", s.statesOnceReleased(c, "LOCK ACCOUNTS WHERE branch IN ('0', 'z') NOWAIT"), "nothing was left behind")
			s.grant(s.works(c, "UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK "+s.refs["b"]), "RELEASED")
			assert.Equal(t, "b 3 held", s.states(s.works(c, "LOCK ACCOUNTS WHERE branch IN ('b') WAIT 1s")), "who gave up waiting is passed over")

			assert.Equal(t, "q 1 held, b 0 busy, p 1 held", s.states(s.works(other, "SELECT LOCK ACCOUNTS WHERE branch IN (?, ?, ?, ?) SKIP LOCKED LIMIT 2", "q", "b", "p", "r")))
			s.works(other, "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('q', 'x', 1) USING LOCK "+s.refs["q"])
			assert.Equal(t, "r 1 held", s.states(s.works(other, "LOCK ACCOUNTS WHERE branch IN ('r') SKIP LOCKED")), "it was not asked for")
			if d.bound {
				assert.Equal(t, "v 1 held, u 1 held", s.states(s.works(c, "SELECT LOCK ACCOUNTS WHERE branch IN ? LEASE ?", []string{"v", "u"}, 60000)))
			}
			for cql, prefix := range map[string]string{
				"LOCK ACCOUNTS WHERE branch IN ('a', 'b') USING LOCK 1":                                "MUSIC_SYNTAX",
				"UNLOCK ACCOUNTS WHERE branch IN ('a', 'b') USING LOCK 1":                              "MUSIC_SYNTAX",
				"LOCK ACCOUNTS WHERE branch = 'a' LIMIT 1":                                             "MUSIC_SYNTAX",
				"LOCK ACCOUNTS WHERE branch IN ('a') LIMIT 0":                                          "MUSIC_SYNTAX",
				"LOCK ACCOUNTS WHERE branch IN ()":                                                     "MUSIC_KEY",
				"LOCK ACCOUNTS WHERE branch IN ('a', null)":                                            "MUSIC_KEY",
				"UPDATE ACCOUNTS USING LOCK 1 SET balance = 1 WHERE branch IN ('a', 'b') AND id = 'x'": "MUSIC_KEY",
			} {
				s.refused(c, prefix, cql)
			}
		})
	}
}

// Two clients that lock the same keys, written in opposite orders, do not deadlock.
func TestLocksOfSeveralKeysDoNotDeadlock(t *testing.T) {
	s := newTableFixture(t, "section_circle", "@critical")
	var clients taskGroup
	for _, keys := range []string{"'a', 'b', 'c'", "'c', 'b', 'a'", "'b', 'c', 'a'"} {
		c := s.driver.open(t, s.address, s.keyspace)
		clients.Go(func() error {
			for sections := 0; sections < 5; {
				o, err := s.must(c, "LOCK ACCOUNTS WHERE branch IN (%s) WAIT 1500ms", keys)
				if err != nil {
					return err
				}
				if o.rows[0][0] != "true" {
					continue
				}
				sections++
				for _, row := range o.rows {
					key, ref := strings.Trim(row[7], `"`), row[1]
					if _, err := s.must(c, "UPDATE ACCOUNTS USING LOCK %s SET balance = %d WHERE branch = '%s' AND id = 'x'", ref, sections, key); err != nil {
						return err
					}
					if _, err := s.must(c, "UNLOCK ACCOUNTS WHERE branch = '%s' USING LOCK %s", key, ref); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, clients.Wait())
}

// PREPARE declares exactly what EXECUTE takes and returns, in every framing, and has no effect.
func TestPreparedLockOfSeveralKeys(t *testing.T) {
	s := newTableFixture(t, "section_severalframes", "@critical")
	s.works(s.client, `CREATE TABLE pairs (a text, "B" int, c int, PRIMARY KEY ((a, "B"), c)) WITH comment = '@critical'`)
	for _, f := range frameCases() {
		name := fmt.Sprintf("v%d%s", f.version, strings.ToLower(string(f.compression)))
		t.Run(name, func(t *testing.T) {
			b := &attacker{fixture: &fenceFixture{t: t}, wire: openWire(t, s.address, f.version, f.compression)}
			m, failed := b.ask(&message.Prepare{Query: "LOCK " + s.keyspace + `.pairs WHERE a = ? AND "B" IN ? SKIP LOCKED LIMIT ?`})
			require.Nil(t, failed)
			p := m.(*message.PreparedResult)
			assert.Equal(t, []string{"a varchar", "in(B) list<int>", "[limit] int"}, declared(p.VariablesMetadata.Columns))
			list := primitive.NewValue(append(append([]byte{0, 0, 0, 2}, 0, 0, 0, 4, 0, 0, 0, 7), 0, 0, 0, 4, 0, 0, 0, 6))
			m, failed = b.ask(&message.Execute{QueryId: p.PreparedQueryId, ResultMetadataId: p.ResultMetadataId, Options: b.options([]*primitive.Value{text(name), list, short(5)})})
			require.Nil(t, failed)
			rows := m.(*message.RowsResult)
			assert.Equal(t, declared(p.ResultMetadata.Columns), declared(rows.Metadata.Columns))
			assert.Equal(t, []string{"a varchar", "B int"}, declared(rows.Metadata.Columns)[7:])
			require.Len(t, rows.Data, 2)
			for i, n := range []byte{7, 6} {
				assert.Equal(t, [][]byte{[]byte("HELD"), []byte(name), {0, 0, 0, n}}, [][]byte{rows.Data[i][2], rows.Data[i][7], rows.Data[i][8]})
			}
			for _, bad := range [][]byte{{}, {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 1, 255, 255, 255, 255}, {127, 0, 0, 0}, {0, 0, 0, 1, 0, 0, 0, 1, 7, 9}, nil} {
				_, failed := b.ask(&message.Execute{QueryId: p.PreparedQueryId, ResultMetadataId: p.ResultMetadataId, Options: b.options([]*primitive.Value{text(name), primitive.NewValue(bad), short(5)})})
				require.NotNil(t, failed, "%v", bad)
				assert.True(t, matches("MUSIC_KEY", failed), "%v: %v", bad, failed)
			}
			m, failed = b.ask(&message.Prepare{Query: "LOCK " + s.keyspace + `.pairs WHERE a IN (?, ?) AND "B" = ?`})
			require.Nil(t, failed)
			assert.Equal(t, []string{"a varchar", "a varchar", "B int"}, declared(m.(*message.PreparedResult).VariablesMetadata.Columns))
		})
	}
}

// declared returns names and types of columns.
func declared(columns []*message.ColumnMetadata) (all []string) {
	for _, c := range columns {
		all = append(all, c.Name+" "+c.Type.AsCql())
	}
	return all
}
