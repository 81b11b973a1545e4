package synchronise

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// newTestTable makes the table ks.t out of "name kind type" lines, in the order of the key. UDT:
// "Ty pe" of "X x" and y.
func newTestTable(t *testing.T, lines ...string) tableLayout {
	t.Helper()
	d := tableDescription{keyspace: "ks", name: "t", flags: []string{"compound"}, types: map[string][]string{"Ty pe": {"X x", "y"}}}
	for i, line := range lines {
		f := strings.SplitN(line, " ", 3)
		d.columns = append(d.columns, columnDescription{name: f[0], kind: f[1], typeName: f[2], position: i})
	}
	table, err := newTableLayout(d)
	require.NoError(t, err)
	return table
}

// wholly returns the statements of the one batch that writes all rows of a partition back, above the fence 100.
func wholly(t require.TestingT, table tableLayout, rows []dataRow) []statement {
	batches := table.rewrite(termsOf("key"), resultPage{rows: rows}, rewriting{fence: 100, batch: 1 << 20})
	require.Len(t, batches, 1)
	return batches[0].writes
}

// termsOf are values as terms without more to them.
func termsOf(values ...string) []cqlTerm {
	var all []cqlTerm
	for _, v := range values {
		all = append(all, cqlTerm{text: "?", values: []RawValue{RawValue(v)}})
	}
	return all
}

// plainCell is a value with what TTL() and WRITETIME() are of it; ttl 0 is null.
func plainCell(value string, ttl int32, stamp int64) []RawValue {
	cell := []RawValue{RawValue(value), nil, wireInt64(stamp)}
	if ttl != 0 {
		cell[1] = wireInt32(ttl)
	}
	return cell
}

// The SELECT has the value, the time to live and the stamp of every column.
func TestSelection(t *testing.T) {
	table := newTestTable(t, `Que"er partition_key int`, `c1 clustering int`, `from clustering frozen<tuple<int, int>>`, `sl static list<int>`,
		`v regular text`, `u regular "Ty pe"`, `f regular frozen<"Ty pe">`, `tu regular frozen<tuple<int, text>>`, `vec regular vector<float, 3>`)
	s := table.selection(termsOf("key"), clause{})
	assert.Equal(t, `SELECT "c1", ["from"], "sl", TTL("sl"), MAXWRITETIME("sl"), "v", TTL("v"), WRITETIME("v"), "u", TTL("u"), MAXWRITETIME("u"), `+
		`"f", TTL("f"), WRITETIME("f"), ["tu"], TTL("tu"), WRITETIME("tu"), "vec", TTL("vec"), WRITETIME("vec") `+
		`FROM "ks"."t" WHERE "Que""er" = ?`, s.text)
	assert.Equal(t, []RawValue{RawValue("key")}, s.values)

	only := newTestTable(t, "a partition_key int", "b partition_key int")
	assert.Equal(t, `SELECT ["a"] FROM "ks"."t" WHERE "a" = ? AND "b" = ?`, only.selection(termsOf("1", "2"), clause{}).text)
}

// The statements that write some rows back, as text.
func TestRewrite(t *testing.T) {
	table := newTestTable(t, "k partition_key int", "c clustering int", "st static int", "a regular int", "b regular int", "m regular map<int, int>",
		"t regular frozen<tuple<int, int>>")
	page := [][]RawValue{{RawValue("r1")}}
	page[0] = append(page[0], plainCell("static", 7, 50)...)
	page[0] = append(page[0], plainCell("", 0, 51)...)
	page[0] = append(page[0], plainCell("b", 9, 52)...)
	page[0] = append(page[0], nil, nil, nil)
	page[0] = append(page[0], append(wireInt32(1), tupleOf(tupleOf(nil, RawValue("x")))...), nil, wireInt64(53))
	row, err := table.row(page[0])
	require.NoError(t, err)
	assert.Equal(t, musiccore.Stamp(53), highest([]dataRow{row}))

	writes := wholly(t, table, []dataRow{row})
	f1 := wireInt64(101)
	assert.Equal(t, []statement{
		{`DELETE FROM "ks"."t" USING TIMESTAMP ? WHERE "k" = ?`, []RawValue{wireInt64(100), RawValue("key")}},
		{
			`UPDATE "ks"."t" USING TIMESTAMP ? AND TTL ? SET "st" = ? WHERE "k" = ?`,
			[]RawValue{f1, wireInt32(7), RawValue("static"), RawValue("key")},
		},
		{
			`INSERT INTO "ks"."t" ("k", "c", "a", "b", "m", "t") VALUES (?, ?, ?, ?, ?, (null, ?)) USING TIMESTAMP ? AND TTL ?`,
			[]RawValue{RawValue("key"), RawValue("r1"), {}, nil, nil, RawValue("x"), f1, wireInt32(0)},
		},
		{
			`UPDATE "ks"."t" USING TIMESTAMP ? AND TTL ? SET "a" = ?, "b" = ?, "m" = ? WHERE "k" = ? AND "c" = ?`,
			[]RawValue{f1, wireInt32(9), nil, RawValue("b"), nil, RawValue("key"), RawValue("r1")},
		},
	}, writes)
	assert.Equal(t, 21+4+8+4+3, writes[0].size())
	assert.Len(t, wholly(t, table, nil), 1, "an empty partition is deleted as well")
}

// A column with elements of several times to live is written in as many parts.
func TestAdditions(t *testing.T) {
	table := newTestTable(t, "k partition_key int", `u regular "Ty pe"`, "l regular list<int>")
	list := append(wireInt32(3), tupleOf(RawValue("1"), RawValue("2"), RawValue("3"))...)
	_, err := table.row([]RawValue{
		list, append(wireInt32(3), tupleOf(wireInt32(5), nil, wireInt32(5))...), wireInt64(1),
		tupleOf(RawValue("x"), RawValue{}), append(wireInt32(2), tupleOf(nil, wireInt32(5))...), wireInt64(1),
	})
	require.ErrorIs(t, err, errMalformed, "u comes first")
	row, err := table.row([]RawValue{
		tupleOf(RawValue("x"), RawValue{}), append(wireInt32(2), tupleOf(nil, wireInt32(5))...), wireInt64(1),
		list, append(wireInt32(3), tupleOf(wireInt32(5), nil, wireInt32(5))...), wireInt64(1),
	})
	require.NoError(t, err)
	one := func(v string) RawValue { return append(wireInt32(1), tupleOf(RawValue(v))...) }
	var texts []string
	var values [][]RawValue
	for _, w := range wholly(t, table, []dataRow{row})[2:] {
		texts = append(texts, w.text)
		values = append(values, w.values[1:len(w.values)-1])
	}
	const udt = `UPDATE "ks"."t" USING TIMESTAMP ? AND TTL ? SET "u"."X x" = ?, "u"."y" = ? WHERE "k" = ?`
	const add = `UPDATE "ks"."t" USING TIMESTAMP ? AND TTL ? SET "l" = "l" + ? WHERE "k" = ?`
	assert.Equal(t, []string{udt, udt, add, add, add}, texts)
	assert.Equal(t, [][]RawValue{
		{wireInt32(0), RawValue("x"), nil},
		{wireInt32(5), nil, {}},
		{wireInt32(5), one("1")},
		{wireInt32(0), one("2")},
		{wireInt32(5), one("3")},
	}, values)
}

// Counters, compact storage and masks refuse a table for good.
func TestTablesThatCannotBeSynchronised(t *testing.T) {
	column := func(kind, typeName string) []columnDescription {
		return []columnDescription{{name: "v", kind: kind, typeName: typeName}}
	}
	for why, d := range map[string]tableDescription{
		"counters":        {flags: []string{"compound"}, columns: column("regular", "counter")},
		"no timestamp":    {flags: []string{"compound", "counter"}},
		"compact storage": {flags: []string{"dense"}},
		"flags []":        {},
		"masked":          {flags: []string{"compound"}, masked: true},
		"of kind odd":     {flags: []string{"compound"}, columns: column("odd", "int")},
	} {
		_, err := newTableLayout(d)
		require.ErrorIs(t, err, errNotSynchronisable)
		assert.ErrorContains(t, err, why)
	}
}

// The type of a column tells how its value is stored.
func TestColumnStorage(t *testing.T) {
	d := tableDescription{types: map[string][]string{"ty": {"a"}, `Q"t`: {"a", `b"`}}}
	for typeName, want := range map[string]storage{
		"int": plainStorage, "frozen<list<int>>": plainStorage, "frozen<ty>": plainStorage, "vector<float, 3>": plainStorage,
		"frozen<tuple<int, text>>": plainStorage, "'org.example.Custom'": plainStorage, "duration": plainStorage, "other": plainStorage,
		"list<frozen<list<int>>>": listStorage, "set<text>": setStorage, "map<int, frozen<ty>>": mapStorage, "ty": udtStorage, `"Q""t"`: udtStorage,
	} {
		assert.Equal(t, want, d.column(columnDescription{typeName: typeName}).storage, typeName)
	}
	assert.Equal(t, []string{`"a"`, `"b"""`}, d.column(columnDescription{typeName: `"Q""t"`}).fields)
}

// A tuple is written out element by element.
func TestTupleTerms(t *testing.T) {
	shape := shapeOf(`frozen<tuple<map<int, text>, frozen<tuple<"a,<b", 'x,y'>>, int>>`)
	require.Equal(t, tupleShape{nil, {nil, nil}, nil}, shape)
	assert.Nil(t, shapeOf("list<frozen<tuple<int, int>>>"))
	a, b := RawValue("a"), RawValue{}
	for _, tc := range []struct {
		value  RawValue
		text   string
		values []RawValue
	}{
		{nil, "", nil},
		{tupleOf(a, tupleOf(nil, b), nil), "(?, (null, ?), null)", []RawValue{a, b}},
		{tupleOf(nil, nil, b), "(null, null, ?)", []RawValue{b}},
		{tupleOf(a), "(?)", []RawValue{a}},
		{RawValue{}, "(null)", nil},
	} {
		term, err := shape.term(tc.value)
		require.NoError(t, err)
		assert.Equal(t, cqlTerm{tc.text, tc.values}, term)
		assert.Equal(t, tc.value == nil, term.null())
	}
	_, err := shape.term(tupleOf(a, nil, a, a))
	require.ErrorIs(t, err, errMalformed)
	_, err = shape.term(tupleOf(a, a))
	require.ErrorIs(t, err, errMalformed)

	table := newTestTable(t, "k partition_key frozen<tuple<int, int>>")
	pk, err := table.key(string(tupleOf(a, nil)))
	require.NoError(t, err)
	assert.Equal(t, []cqlTerm{{"(?, null)", []RawValue{a}}}, pk)
	_, err = table.key("")
	require.ErrorIs(t, err, errMalformed, "no text can say it, and another partition would be written")
}

// What is not as the protocol promises is an error: a guess would be written over the client's
// data.
func TestMalformedRows(t *testing.T) {
	table := newTestTable(t, "k partition_key int", "a regular int", "l regular list<int>", "m regular map<int, int>", `u regular "Ty pe"`,
		"t regular tuple<int, int>")
	stamp, one := wireInt64(1), append(wireInt32(1), tupleOf(wireInt32(1))...)
	null := []RawValue{nil, nil, nil}
	for name, at := range map[string]struct {
		column int
		cell   []RawValue
	}{
		"value without a stamp":  {0, []RawValue{RawValue("a"), nil, nil}},
		"TTL of no int":          {0, []RawValue{RawValue("a"), RawValue("x"), stamp}},
		"stamp of no bigint":     {0, []RawValue{RawValue("a"), nil, wireInt32(1)}},
		"no list":                {1, []RawValue{RawValue("a"), one, stamp}},
		"list cut off":           {1, []RawValue{one[:6], one, stamp}},
		"list with more":         {1, []RawValue{append(one[:len(one):len(one)], 1), one, stamp}},
		"too few TTLs":           {1, []RawValue{append(wireInt32(2), tupleOf(nil, nil)...), one, stamp}},
		"too many TTLs":          {1, []RawValue{one, append(wireInt32(2), tupleOf(nil, nil)...), stamp}},
		"no TTLs":                {1, []RawValue{one, nil, stamp}},
		"TTLs of no ints":        {1, []RawValue{one, append(wireInt32(1), tupleOf(RawValue("x"))...), stamp}},
		"TTLs cut off":           {1, []RawValue{one, one[:7], stamp}},
		"map of one":             {2, []RawValue{one, one, stamp}},
		"UDT with more fields":   {3, []RawValue{tupleOf(nil, nil, nil), append(wireInt32(3), tupleOf(nil, nil, nil)...), stamp}},
		"UDT cut off":            {3, []RawValue{RawValue("abc"), one, stamp}},
		"tuple not in its list":  {4, []RawValue{{0}, nil, stamp}},
		"tuple with more values": {4, []RawValue{append(wireInt32(1), tupleOf(tupleOf(nil, nil, nil))...), nil, stamp}},
	} {
		var values []RawValue
		for i := range 5 {
			if c := table.regular[i].name; c == []string{`"a"`, `"l"`, `"m"`, `"u"`, `"t"`}[at.column] {
				values = append(values, at.cell...)
				continue
			}
			values = append(values, null...)
		}
		_, err := table.row(values)
		require.ErrorIs(t, err, errMalformed, name)
	}
}

// A UDT that was written before its type had the field is shorter, and as whole as any.
func TestShortUDT(t *testing.T) {
	table := newTestTable(t, "k partition_key int", `u regular "Ty pe"`)
	row, err := table.row([]RawValue{tupleOf(RawValue("x")), append(wireInt32(2), tupleOf(wireInt32(5), nil)...), wireInt64(1)})
	require.NoError(t, err)
	assert.Equal(t, int32(5), row.regular[0].ttl)
	assert.Nil(t, row.regular[0].parts)
}

// Sizes are read as the settings of Cassandra have them.
func TestByteSizes(t *testing.T) {
	for text, want := range map[string]int{"4194304B": 4194304, "16MiB": 16 << 20, "512KiB": 512 << 10, "1GiB": 1 << 30, "77": 77, "": -1, "null": -1, "xMiB": -1} {
		assert.Equal(t, want, byteSize(text, -1), text)
	}
}

// Nodes agree where all that are up have the same version of the schema.
func TestSchemaAgreement(t *testing.T) {
	own, other, untold := gocql.MustRandomUUID(), gocql.MustRandomUUID(), gocql.UUID{}
	for _, down := range []bool{false, true} {
		assert.Equal(t, allAgree, dissentOf(own, own, down))
		assert.Equal(t, allAgree, dissentOf(own, untold, down))
	}
	assert.Equal(t, downDiffer, dissentOf(own, other, true))
	assert.Equal(t, liveDiffer, dissentOf(own, other, false))
}

// Agreement is waited for as long as a change takes to spread, and no longer.
func TestSchemaAgreementIsAwaited(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		others []dissent // by question, the last for ever
		err    error
		within time.Duration
		want   error
		after  time.Duration
	}{
		"later":            {others: []dissent{liveDiffer, liveDiffer, allAgree}, after: 2 * agreementPause},
		"never":            {others: []dissent{liveDiffer}, want: errNotAgreed, after: agreementLimit},
		"but for the down": {others: []dissent{downDiffer}, after: spreadLimit},
		"down, then up":    {others: append(slices.Repeat([]dissent{downDiffer}, 9), liveDiffer), want: errNotAgreed, after: agreementLimit},
		"cut off":          {others: []dissent{liveDiffer}, within: time.Millisecond, want: context.DeadlineExceeded, after: time.Millisecond},
		"unanswered":       {others: []dissent{allAgree}, err: broken, want: broken},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			ask := func(context.Context) (schemaView, dissent, error) {
				asked++
				return schemaView{now: 7}, tc.others[min(asked, len(tc.others))-1], tc.err
			}
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.within, time.Hour))
			defer cancel()
			start := time.Now()
			view, err := awaitView(ctx, ask)
			require.ErrorIs(t, err, tc.want, name)
			assert.Equal(t, schemaView{now: 7}, view, name)
			assert.Equal(t, tc.after, time.Since(start), name)
		})
	}
}

// A peer that is down with another version is waited for once, and not by the attempt on each key: it may be down
// for days. Another difference is waited for anew.
func TestTheDownAreAwaitedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, versions, node := new(Descriptions), "a b", "one"
		took := func() time.Duration {
			start := time.Now()
			_, err := awaitView(t.Context(), func(context.Context) (schemaView, dissent, error) {
				return schemaView{since: known.differing(node, versions, time.Now())}, downDiffer, nil
			})
			require.NoError(t, err)
			return time.Since(start)
		}
		assert.Equal(t, spreadLimit, took())
		assert.Zero(t, took())
		node = "two"
		assert.Equal(t, spreadLimit, took(), "another node may not have heard of the change yet")
		node = "one"
		assert.Zero(t, took())
		versions = "c b"
		assert.Equal(t, spreadLimit, took(), "there was another change")
		assert.Zero(t, took())
		known = nil
		assert.Equal(t, spreadLimit, took())
		assert.Equal(t, spreadLimit, took(), "nothing is remembered")
	})
}

// The now of an attempt has passed on both clocks, and there is none where these are far apart.
func TestNowIsPastForBothClocks(t *testing.T) {
	a := time.UnixMilli(1000_999)
	for _, apart := range []time.Duration{0, 5 * time.Second, clocksApart} {
		for _, pair := range [][2]time.Time{{a, a.Add(apart)}, {a.Add(apart), a}} {
			now, err := pastOf(pair[0], pair[1])
			require.NoError(t, err)
			assert.Equal(t, 999, now)
		}
	}
	// A fence that is written with a time of long ago is purged at once.
	for _, apart := range []time.Duration{clocksApart + time.Second, catalog.MinGrace * time.Second} {
		_, err := pastOf(a, a.Add(apart))
		require.ErrorIs(t, err, errClocks)
		_, err = pastOf(a.Add(apart), a)
		require.ErrorIs(t, err, errClocks)
	}
}

// A value that is nil is UNSET, never null.
func TestBoundValues(t *testing.T) {
	assert.Equal(t, []any{gocql.UnsetValue, RawValue{}, RawValue("a")}, bound([]RawValue{nil, {}, RawValue("a")}), "nil is never null")
	empty, err := gocql.Marshal(nil, RawValue{})
	require.NoError(t, err)
	assert.NotNil(t, empty)
	var null, none RawValue
	require.NoError(t, gocql.Unmarshal(nil, nil, &null))
	require.NoError(t, gocql.Unmarshal(nil, []byte{}, &none))
	assert.Nil(t, null)
	assert.NotNil(t, none)
	var literal RawValue
	require.NoError(t, gocql.Unmarshal(nil, []byte{}, &literal))
	assert.NotNil(t, literal, "the executor's values know null from empty as well")
	require.NoError(t, gocql.Unmarshal(nil, nil, &literal))
	assert.Nil(t, literal)
	buffer := []byte("a")
	require.NoError(t, gocql.Unmarshal(nil, buffer, &null))
	buffer[0] = 'b'
	assert.Equal(t, RawValue("a"), null, "the buffer is the driver's")
}
