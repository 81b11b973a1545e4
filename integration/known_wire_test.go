package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

// knownColumns are columns with values on the wire, which are often equal.
var knownColumns = []struct {
	spelled []string
	values  []string
}{
	{[]string{"a", "A", `"a"`, "/* x */ a"}, []string{"\x00\x00\x00\x01", "\x00\x00\x00\x02", ""}},
	{[]string{"s", "S"}, []string{"\x00\x01", "\x00\x02"}},
	{[]string{"y"}, []string{"\x01", "\x02"}},
	{[]string{"d"}, []string{"\x80\x00\x00\x01", "\x80\x00\x00\x02"}},
	{[]string{"h"}, []string{"\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x00\x00\x00\x00\x00\x00\x02"}},
	{[]string{"t"}, []string{"", "x", "y"}},
	{[]string{`"A B"`}, []string{"", "x", "\"'?"}},
	{[]string{"v"}, []string{"\x01", "\x00\x01", ""}},
	{[]string{"n"}, []string{"\x00\x00\x00\x00\x01", "\x00\x00\x00\x01\x0a"}},
	{[]string{"o"}, []string{"\x00", "\x01", "\x02"}},
	{[]string{"li"}, []string{"\x00\x00\x00\x00", "\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01"}},
	{[]string{"fl"}, []string{"\x00\x00\x00\x00", "\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01"}},
	{[]string{"st"}, []string{"\x00\x00\x00\x01", "\x00\x00\x00\x02"}},
}

// knownWriter makes up writes with IF that often go on from each other.
type knownWriter struct {
	*rand.Rand
	version primitive.ProtocolVersion
	values  []*primitive.Value
}

func (w *knownWriter) oneOf(of ...string) string { return of[w.IntN(len(of))] }

// bind binds a value of a column: rarely none.
func (w *knownWriter) bind(column int, set bool) string {
	switch n := w.IntN(20); {
	case n == 0:
		w.values = append(w.values, primitive.NewNullValue())
	case n == 1 && set && w.version > primitive.ProtocolVersion3:
		w.values = append(w.values, primitive.NewUnsetValue())
	default:
		w.values = append(w.values, primitive.NewValue([]byte(w.oneOf(knownColumns[column].values...))))
	}
	return w.oneOf("?", "?", " ?", "/* ? */ ? -- ?\n")
}

func (w *knownWriter) column(focus []int) int { return focus[w.IntN(len(focus))] }

// text returns a statement, and has values be those that are bound.
func (w *knownWriter) text(focus []int) string {
	w.values = nil
	number := func() string {
		if w.IntN(2) == 0 {
			return "1"
		}
		w.values = append(w.values, primitive.NewValue([]byte{0, 0, 0, 1}))
		return "?"
	}
	where := func() string {
		if w.IntN(2) == 0 {
			w.values = append(w.values, primitive.NewValue([]byte("key")))
			return " WHERE k = ? AND c = " + number()
		}
		return " WHERE c = " + number() + " AND k = 'key'"
	}
	condition := func() string {
		var all []string
		for range 1 + w.IntN(2) {
			at := w.column(focus)
			name := w.oneOf(knownColumns[at].spelled...)
			switch w.IntN(5) {
			case 0:
				all = append(all, name+" IN ("+w.bind(at, false)+", "+w.bind(at, false)+")")
			case 1:
				all = append(all, name+" != "+w.bind(at, false))
			default:
				all = append(all, name+" = "+w.bind(at, false))
			}
		}
		if w.IntN(6) == 0 {
			w.values = w.values[:len(w.values)-strings.Count(strings.NewReplacer("/* ? */", "", "-- ?", "").Replace(strings.Join(all, "")), "?")]
			return " IF EXISTS"
		}
		return " IF " + strings.Join(all, " AND ")
	}
	if w.IntN(16) == 0 {
		return "DELETE " + w.oneOf("", "a", "t") + " FROM TABLE LOCKED" + where() + condition()
	}
	text := "UPDATE TABLE LOCKED"
	if w.IntN(16) == 0 {
		text = "UPDATE TABLE LIVES"
		w.values = append(w.values, primitive.NewValue([]byte{0, 1, 0, 0}))
	}
	text += " SET "
	for i, at := range focus {
		if i > 0 && (w.IntN(2) == 0 || knownColumns[at].spelled[0] == "st") {
			continue
		}
		if i > 0 {
			text += ", "
		}
		name := w.oneOf(knownColumns[at].spelled...)
		if knownColumns[at].spelled[0] == "a" && w.IntN(6) == 0 {
			w.values = append(w.values, primitive.NewValue([]byte{0, 0, 0, 1}))
			text += name + " = " + w.oneOf("(int) ?", "abs((int) ?)")
			continue
		}
		text += name + w.oneOf(" = ", "=") + w.bind(at, true)
	}
	return text + where() + condition()
}

// Writes with IF that go on from each other are answered as Cassandra answers its own lightweight
// transactions, whichever clients of whichever version sent them, and however.
func TestConditionsThatGoOnFromEachOther(t *testing.T) {
	const columns = " (k text, c int, a int, s smallint, y tinyint, d date, h time, t text, \"A B\" text, v varint, n decimal, o boolean, li list<int>, fl frozen<list<int>>, st int static, PRIMARY KEY (k, c))"
	for name, auto := range map[string]bool{"locked": false, "auto": true} {
		t.Run(name, func(t *testing.T) {
			s := newTableFixture(t, "known_wire_"+name, "@critical")
			comment := "@critical(lease=10m)"
			if auto {
				comment = "@critical(unlocked=auto)"
			}
			s.works(s.client, "CREATE TABLE "+s.keyspace+".locked"+columns+" WITH comment = '"+comment+"'")
			s.works(s.client, "CREATE TABLE "+s.keyspace+".twin"+columns)
			ref := int64(0)
			if !auto {
				ref = s.grant(s.works(s.client, "LOCK "+s.keyspace+".locked WHERE k = 'key' LEASE 10m"), "HELD")
			}
			versions := []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5}
			var wires []*twinTables
			for _, version := range versions {
				wires = append(wires, &twinTables{tableFixture: s, b: s.onWire(t, version), ref: ref})
			}
			r := rand.New(rand.NewPCG(knownSeed, 2))
			applied, refused := 0, 0
			var focus []int
			at := 0
			for i := range knownTries {
				if i%20 == 0 {
					focus = append([]int{r.IntN(len(knownColumns) - 1)}, r.Perm(len(knownColumns))...)[:1+r.IntN(3)]
					slices.Sort(focus) // a static column, which is not written, comes last
					focus = slices.Compact(focus)
				}
				if r.IntN(4) == 0 {
					at = r.IntN(len(wires))
				}
				w := wires[at]
				x := knownWriter{Rand: r, version: versions[at]}
				text := x.text(focus)
				prepared, skips, flag := r.IntN(2) == 0, r.IntN(2) == 0, uint8(0)
				if r.IntN(8) == 0 {
					flag = withTracing
				}
				w.b.flag = flag
				want, got := w.both(func(say func(string) string) (message.Message, *failure) {
					plain, lock := ref == 0 || strings.HasSuffix(say("TABLE"), ".twin"), fmt.Sprintf("USING LOCK %d", ref)
					text := strings.NewReplacer("TABLE", say("TABLE"), "LOCKED", lock, "LIVES", lock+" AND TTL ?").Replace(text)
					if plain {
						text = strings.NewReplacer(" "+lock+" AND", " USING", " "+lock, "").Replace(text)
					}
					options := &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PositionalValues: x.values}
					if !prepared {
						return w.b.ask(&message.Query{Query: text, Options: options})
					}
					id, metadata, f := w.b.prepare(text, "")
					if f != nil {
						return nil, f
					}
					options.SkipMetadata = skips
					return w.b.ask(&message.Execute{QueryId: id, ResultMetadataId: metadata, Options: options})
				})
				var shown []string
				for _, v := range x.values {
					shown = append(shown, fmt.Sprintf("%d:%q", v.Type, v.Contents))
				}
				assert.Equal(t, want, got, "%d: v%d prepared %v %q %v", i, versions[at], prepared, text, shown)
				switch {
				case strings.HasSuffix(want, "[[01]]"):
					applied++
				case strings.Contains(want, "[[00"):
					refused++
				}
			}
			t.Log(applied, refused)
			assert.Positive(t, applied)
			assert.Positive(t, refused)
		})
	}
}

// The seed of the writes that are compared, and how many there are.
const knownSeed, knownTries = 7, 2000
