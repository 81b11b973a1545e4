package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// trial is one conditional write, on either table.
type trial struct {
	before, behind string // of the place where USING LOCK stands
	values         []any  // all of them behind that place, or none
	insert         bool
}

// on is the statement on a table, under a reference if there is one.
func (t trial) on(table string, ref int64) statement {
	using := ""
	if ref > 0 {
		using = fmt.Sprintf(" USING LOCK %d", ref)
	}
	if t.insert {
		return statement{cql: strings.ReplaceAll(t.before+t.behind+using, "TABLE", table), values: t.values}
	}
	return statement{cql: strings.ReplaceAll(t.before+using+t.behind, "TABLE", table), values: t.values}
}

// trier makes up conditional writes.
type trier struct {
	*rand.Rand
	bound bool
}

// triedColumns are columns with some literals each, which are often equal and not always written alike.
func triedColumns() [][]string {
	return [][]string{
		{"a", "1", "2", "-3", "2147483647", "null"},
		{"b", "1", "-9223372036854775808", "9223372036854775807", "null"},
		{"s", "1", "-2", "null"},
		{"y", "0", "-128", "null"},
		{"t", "'x'", "'y'", "''", "'ä'", "null"},
		{"n", "1.0", "1.00", "-0.5", "123456789012345678901234567890.5", "null"},
		{"v", "1", "-300", "123456789012345678901234567890", "null"},
		{"f", "1.5", "NaN", "Infinity", "0.0", "null"},
		{"g", "1.5", "-0.25", "NaN", "null"},
		{"u", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-426614174001", "null"},
		{"w", "'2020-01-01'", "'1960-02-03 04:05:06+0000'", "null"},
		{"o", "true", "false", "null"},
		{"d", "'2020-01-01'", "'1950-12-31'", "null"},
		{"i", "'127.0.0.1'", "'::1'", "'10.0.0.7'", "null"},
		{"l", "0x", "0xff00", "0x01", "null"},
		{"h", "'12:00:00'", "'23:59:59.999999999'", "null"},
	}
}

// column is a column, and value one of its literals.
func (r trier) column() []string { all := triedColumns(); return all[r.IntN(len(all))] }

func (r trier) value(column []string) string { return column[1+r.IntN(len(column)-1)] }

// condition is what stands behind IF. An order with null is no part of several: whether Cassandra comes to it, and then refuses it, is a
// matter of chance.
func (r trier) condition() string {
	n := 1 + r.IntN(2)
	var all []string
	for range n {
		column := r.column()
		switch sign := []string{"=", "!=", "<", "<=", ">", ">=", "IN", "="}[r.IntN(8)]; {
		case sign == "IN":
			all = append(all, fmt.Sprintf("%s IN (%s, %s)", column[0], r.value(column), r.value(column)))
		case strings.ContainsAny(sign, "<>") && (column[0] == "u" || n > 1):
			all = append(all, column[0]+" = "+column[1])
		default:
			all = append(all, column[0]+" "+sign+" "+r.value(column))
		}
	}
	return strings.Join(all, " AND ")
}

// next is a conditional write on one of a few rows.
func (r trier) next() trial {
	row := fmt.Sprintf(" WHERE k = 'key' AND c = %d", r.IntN(3))
	column := r.column()
	switch r.IntN(11) {
	case 0, 1:
		other := r.column()
		if other[0] == column[0] {
			return trial{before: "INSERT INTO TABLE (c, k) VALUES (" + fmt.Sprint(r.IntN(3)) + ", 'key') IF NOT EXISTS", insert: true}
		}
		return trial{before: fmt.Sprintf("INSERT INTO TABLE (k, c, %s, %s) VALUES ('key', %d, %s, %s) IF NOT EXISTS", column[0], other[0], r.IntN(3), r.value(column), r.value(other)), insert: true}
	case 2:
		return trial{before: "DELETE FROM TABLE", behind: row + " IF EXISTS"}
	case 3:
		return trial{before: "DELETE " + column[0] + " FROM TABLE", behind: row + " IF " + r.condition()}
	case 4:
		return trial{before: "UPDATE TABLE", behind: " SET " + column[0] + " = " + r.value(column) + row + " IF EXISTS"}
	case 5:
		return r.boundTrial()
	case 6:
		static := fmt.Sprintf(" WHERE k = 'key' IF st %s %d", []string{"=", "!=", "<"}[r.IntN(3)], r.IntN(3))
		if r.IntN(3) == 0 {
			return trial{before: "DELETE st FROM TABLE", behind: static}
		}
		return trial{before: "UPDATE TABLE", behind: fmt.Sprintf(" SET st = %d", r.IntN(3)) + strings.Replace(static, "= 0", "= null", 1)}
	}
	return trial{before: "UPDATE TABLE", behind: " SET " + column[0] + " = " + r.value(column) + row + " IF " + r.condition()}
}

// boundTrial has its values bound.
func (r trier) boundTrial() trial {
	if !r.bound {
		return r.next()
	}
	c := r.IntN(3)
	return []trial{
		{before: "INSERT INTO TABLE (k, c, a, t) VALUES (?, ?, ?, ?) IF NOT EXISTS", values: []any{"key", c, 1, "x"}, insert: true},
		{before: "UPDATE TABLE", behind: " SET a = ?, t = ? WHERE k = ? AND c = ? IF a = ? AND t != ?", values: []any{2, "y", "key", c, 1, "z"}},
		{before: "UPDATE TABLE", behind: " SET b = ? WHERE c = ? AND k = ? IF a IN ? AND a > ?", values: []any{int64(1), c, "key", []int{1, 2}, 0}},
		{before: "UPDATE TABLE", behind: " SET b = ? WHERE c = ? AND k = ? IF t IN (?, ?)", values: []any{int64(7), c, "key", "x", "y"}},
		{before: "DELETE FROM TABLE", behind: " WHERE k = ? AND c = ? IF a >= ?", values: []any{"key", c, 2}},
	}[r.IntN(5)]
}

// A client alone sees its conditional writes under a lock answered, and its rows changed, as Cassandra answers and changes by its own
// lightweight transactions: by every driver that shows them whole.
func TestConditionsUnderALockAnswerLikeLightweightTransactions(t *testing.T) {
	for n, d := range []driver{withGocql2(3, ""), withGocql2(4, "+lz4"), withGocql2(5, ""), withPython(), withCqlsh()} {
		t.Run(d.name, func(t *testing.T) {
			s := newScene(t, d)
			const columns = " (k text, c int, a int, b bigint, s smallint, y tinyint, t text, n decimal, v varint, f double, g float, u uuid, w timestamp, o boolean, d date, i inet, l blob, h time, st int static, su int static, PRIMARY KEY (k, c))"
			s.works(s.client, "CREATE TABLE "+s.keyspace+".locked"+columns+" WITH comment = '@critical(lease=10m)'")
			s.works(s.client, "CREATE TABLE "+s.keyspace+".twin"+columns)
			direct := d.open(t, needWorld(t).direct(), s.keyspace)
			ref := s.grant(s.works(s.client, "LOCK "+s.keyspace+".locked WHERE k = 'key' LEASE 10m"), "HELD")
			// A row with a marker shows in whatever is asked of the partition; one without may not, which CQL cannot tell.
			require.NoError(t, direct.run(statement{cql: "INSERT INTO " + s.keyspace + ".twin (k, c) VALUES ('key', 99)"}).err())
			s.works(s.client, fmt.Sprintf("INSERT INTO %s.locked (k, c) VALUES ('key', 99) USING LOCK %d", s.keyspace, ref))
			r := trier{rand.New(rand.NewPCG(7, uint64(n))), d.bound}
			applied := 0
			for i := range 250 {
				x := r.next()
				want := direct.run(x.on(s.keyspace+".twin", 0))
				got := s.client.run(x.on(s.keyspace+".locked", ref))
				want.warnings, got.warnings = nil, nil
				require.Equal(t, want.String(), strings.ReplaceAll(got.String(), "locked", "twin"), "%d: %v", i, x.on("twin", 0))
				if told(got, "[applied]") == "true" {
					applied++
				}
				if i%50 == 49 {
					read := "SELECT * FROM " + s.keyspace + ".%s WHERE k = 'key'"
					assert.Equal(t, direct.run(statement{cql: fmt.Sprintf(read, "twin")}).rows, s.client.run(statement{cql: fmt.Sprintf(read, "locked")}).rows, "%d", i)
				}
			}
			assert.True(t, applied > 40 && applied < 210, "%d of 250 were applied: both outcomes have been seen", applied)
		})
	}
}

// Conditional writes of one holder go one after another: of many that want the same, one is applied.
func TestConditionsOfOneHolderDoNotOvertake(t *testing.T) {
	s := newStage(t, "section_turns", "@critical(lease=5m)")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 5m"), "HELD")
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 0) USING LOCK %d", ref))
	const writers, rounds = 8, 10
	for round := range rounds {
		var all together
		applied := make(chan bool, writers)
		for range writers {
			all.Go(func() error {
				o, err := s.must(s.client, "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'b' AND id = 'x' IF balance = %d", ref, round+1, round)
				if err == nil && o.rows[0][0] == "true" {
					applied <- true
				}
				return err
			})
		}
		require.NoError(t, all.Wait())
		assert.Len(t, applied, 1)
	}
	s.inWindow("b", "x", ref, rounds)
}

// What the proxy does not try itself it refuses, and nothing is written; a lock that is not held is no lock for a condition either.
func TestConditionsThatAreNotServed(t *testing.T) {
	s := newStage(t, "section_conditions", "@critical(lease=5m)")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".rich (k text, c int, v int, m map<text, int>, fl frozen<list<int>>, st int static, PRIMARY KEY (k, c)) WITH comment = '@critical'")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 5m"), "HELD")
	rich := s.grant(s.works(s.client, "LOCK "+s.keyspace+".rich WHERE k = 'b'"), "HELD")
	for cql, prefix := range map[string]string{
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF m['a'] = 1":                    "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF m = {'a': 1}":                  "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF fl = [1]":                      "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF v = 1 AND m CONTAINS 1":        "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF st = 1":                        "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET st = 1 WHERE k = 'b' IF EXISTS":                                 "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF v = 1 + 1":                     "MUSIC_REFUSED",
		"DELETE FROM RICH USING LOCK %d WHERE k = 'b' IF EXISTS":                                       "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c IN (1, 2) IF v = 1":                   "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF nosuch = 1":                    "Undefined column name nosuch",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF v = 'text'":                    "Invalid STRING constant",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF v < null":                      "Invalid comparison with null for operator",
		"BEGIN BATCH USING LOCK %d UPDATE RICH SET v = 1 WHERE k = 'b' AND c = 1 IF v = 1 APPLY BATCH": "MUSIC_REFUSED",
	} {
		o := s.do(s.client, fmt.Sprintf(strings.ReplaceAll(cql, "RICH", s.keyspace+".rich"), rich))
		require.NotNil(t, o.failure, cql)
		assert.True(t, strings.HasPrefix(o.failure.text, prefix) && o.failure.code == 0x2200, "%s: %v", cql, o)
	}
	s.refused(s.client, "MUSIC_NOT_HELD", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = null", ref+1))
	s.refused(s.client, "MUSIC_UNLOCKED", "UPDATE ACCOUNTS SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = null")
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = null", ref))
	s.inWindow("b", "x", ref, 1)
	s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref))
	s.refused(s.client, "MUSIC_LOST", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 2 WHERE branch = 'b' AND id = 'x' IF balance = 1", ref))
}
