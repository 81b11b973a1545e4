package rewrite

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A statement is drawn together with what it means: pieces (one token each),
// some of them the proxy's own, joined by any blanks and comments.

type piece struct {
	text string
	own  bool
}

type drawn struct {
	pieces    []piece
	verb      Verb
	keyspace  string
	table     string
	keys      []drawnKey
	lock      string // as written, "" for none
	ttl       bool
	timestamp bool
	condition bool
}

type drawnKey struct {
	column string // as Cassandra knows it
	values []string
	in     bool
}

func (d *drawn) add(texts ...string) {
	for _, t := range texts {
		d.pieces = append(d.pieces, piece{text: t})
	}
}

func (d *drawn) addOurs(texts ...string) {
	for _, t := range texts {
		d.pieces = append(d.pieces, piece{text: t, own: true})
	}
}

// tokens joins the pieces that keep wants with glue between them.
func (d *drawn) tokens(keep func(piece) bool) []string {
	list := []string{}
	for _, p := range d.pieces {
		if keep(p) {
			for _, tok := range tokens([]byte(p.text)) {
				list = append(list, string(tok.Of([]byte(p.text))))
			}
		}
	}
	return list
}

func drawGlue(t *rapid.T) string {
	return rapid.SampledFrom([]string{" ", " ", "\n", "\t ", "/**/", "/* USING LOCK 5 */", " -- '?\n", "// \"\r", "\r\n"}).Draw(t, "glue")
}

func (d *drawn) text(t *rapid.T) string {
	var b strings.Builder
	b.WriteString(rapid.SampledFrom([]string{"", " ", "/* ; */", "-- SELECT\n"}).Draw(t, "start"))
	for _, p := range d.pieces {
		b.WriteString(p.text)
		b.WriteString(drawGlue(t))
	}
	b.WriteString(rapid.SampledFrom([]string{"", ";", " ; ;", "-- end"}).Draw(t, "end"))
	return b.String()
}

// drawName returns a name as written and as Cassandra knows it.
func drawName(t *rapid.T) (written, known string) {
	word := rapid.SampledFrom([]string{"t", "accounts", "lock", "wait", "lease", "as", "json", "list", "skip", "a_1", "for", "ttl", "timestamp"}).Draw(t, "name")
	switch rapid.IntRange(0, 3).Draw(t, "spelling") {
	case 0:
		return strings.ToUpper(word), word
	case 1:
		return `"` + word + `"`, word
	case 2:
		odd := rapid.SampledFrom([]string{"From", "a b", `q"q`, "WHERE", "-- x", "/*", "'"}).Draw(t, "odd")
		return `"` + strings.ReplaceAll(odd, `"`, `""`) + `"`, odd
	}
	return word, word
}

func drawTable(t *rapid.T, d *drawn) {
	written, known := drawName(t)
	if rapid.Bool().Draw(t, "qualified") {
		ks, ksKnown := drawName(t)
		d.keyspace = ksKnown
		d.add(ks, ".")
	}
	d.table = known
	d.add(written)
}

func drawValue(t *rapid.T) string {
	return rapid.SampledFrom([]string{
		"?", ":name", `:"Na"`, "5", "-5", "'it''s'", "$$ WHERE $$", "0xcafe", uuid1, "true", "null", "1.5", "3h", "f(?, ')')",
		"{'a': ?, 'b': :x}", "[1, ?]", "(?, 2)", "(int)?", "? + 1", "{(1): g()}",
	}).Draw(t, "value")
}

// drawUsing adds USING with any of the proxy's and Cassandra's items, in any order.
func drawUsing(t *rapid.T, d *drawn) {
	items := [][]string{}
	if rapid.Bool().Draw(t, "lock") {
		d.lock = rapid.SampledFrom([]string{"42", "?", ":ref", "0"}).Draw(t, "ref")
		items = append(items, []string{rapid.SampledFrom([]string{"LOCK", "lock", "Lock"}).Draw(t, "word"), d.lock})
	}
	if d.ttl = rapid.Bool().Draw(t, "ttl"); d.ttl {
		items = append(items, []string{"TTL", "?"})
	}
	if d.timestamp = rapid.Bool().Draw(t, "timestamp"); d.timestamp {
		items = append(items, []string{"timestamp", "-7"})
	}
	if len(items) == 0 {
		return
	}
	items = rapid.Permutation(items).Draw(t, "order")
	at := slices.IndexFunc(items, func(i []string) bool { return strings.EqualFold(i[0], "LOCK") })
	write := func(own bool, texts ...string) {
		for _, text := range texts {
			d.pieces = append(d.pieces, piece{text, own})
		}
	}
	write(at >= 0 && len(items) == 1, "USING")
	for i, item := range items {
		if i > 0 {
			write(i == at || at == 0 && i == 1, "AND")
		}
		write(i == at, item...)
	}
}

func drawWhere(t *rapid.T, d *drawn) {
	d.add("WHERE")
	for i := range rapid.IntRange(1, 3).Draw(t, "keys") {
		if i > 0 {
			d.add("AND")
		}
		written, known := drawName(t)
		key := drawnKey{column: known, in: rapid.Bool().Draw(t, "in")}
		d.add(written)
		if !key.in {
			key.values = []string{drawValue(t)}
			d.add("=", key.values[0])
		} else {
			key.values = rapid.SliceOfN(rapid.Custom(drawValue), 0, 3).Draw(t, "list")
			d.add("IN", "(", strings.Join(key.values, " , "), ")")
		}
		d.keys = append(d.keys, key)
	}
}

func drawIf(t *rapid.T, d *drawn, condition ...string) {
	if d.condition = rapid.Bool().Draw(t, "condition"); d.condition {
		d.add("IF")
		d.add(condition...)
	}
}

func drawInsert(t *rapid.T, d *drawn) {
	d.verb = Insert
	d.add("insert", "INTO")
	drawTable(t, d)
	columns, values := []string{}, []string{}
	for range rapid.IntRange(1, 3).Draw(t, "columns") {
		written, known := drawName(t)
		value := drawValue(t)
		columns, values = append(columns, written), append(values, value)
		d.keys = append(d.keys, drawnKey{column: known, values: []string{value}})
	}
	d.add("(", strings.Join(columns, ","), ")", "VALUES", "(", strings.Join(values, " , "), ")")
	drawIf(t, d, "NOT", "EXISTS")
	drawUsing(t, d)
}

func drawUpdate(t *rapid.T, d *drawn) {
	d.verb = Update
	d.add("UPDATE")
	drawTable(t, d)
	drawUsing(t, d)
	column, _ := drawName(t)
	d.add("SET", column, "=", drawValue(t), ",", "m[?]", "=", drawValue(t))
	drawWhere(t, d)
	drawIf(t, d, "a", "=", "?", "AND", "b", "IN", "(1, 2)")
}

func drawDelete(t *rapid.T, d *drawn) {
	d.verb = Delete
	d.add("Delete")
	if rapid.Bool().Draw(t, "columns") {
		d.add("a['from']", ",", `"from"`, ",", "b.c")
	}
	d.add("FROM")
	drawTable(t, d)
	drawUsing(t, d)
	drawWhere(t, d)
	drawIf(t, d, "EXISTS")
}

func drawSelect(t *rapid.T, d *drawn) {
	d.verb = Select
	d.add("SELECT", rapid.SampledFrom([]string{"*", "a , b", "count(*)", "f(?, 'from') AS x", "{'a': :b}"}).Draw(t, "selection"), "FROM")
	drawTable(t, d)
	drawWhere(t, d)
	if rapid.Bool().Draw(t, "limit") {
		d.add("ORDER BY c DESC", "LIMIT", "?")
	}
	switch rapid.IntRange(0, 2).Draw(t, "tail") {
	case 0:
		d.lock = rapid.SampledFrom([]string{"42", "?"}).Draw(t, "ref")
		d.addOurs("USING", "LOCK", d.lock)
	case 1:
		d.addOurs("FOR", "UPDATE")
		if rapid.Bool().Draw(t, "wait") {
			d.addOurs("WAIT", "5s")
		}
	}
}

// draw returns a statement of any of the four kinds.
func draw(t *rapid.T) *drawn {
	d := &drawn{}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		drawInsert(t, d)
	case 1:
		drawUpdate(t, d)
	case 2:
		drawDelete(t, d)
	default:
		drawSelect(t, d)
	}
	return d
}

func all(piece) bool      { return true }
func theirs(p piece) bool { return !p.own }

func known(n Name, text []byte) string {
	if n.Empty() {
		return ""
	}
	return string(n.AppendTo(nil, text))
}

// squeeze takes out blanks and comments, so that a value can be compared with
// how it was drawn.
func squeeze(text []byte) string {
	list := []string{}
	for _, tok := range tokens(text) {
		list = append(list, string(tok.Of(text)))
	}
	return strings.Join(list, " ")
}

func checkDrawn(t *rapid.T, d *drawn, s Statement, text []byte) {
	require.Equal(t, d.verb, s.Verb)
	require.Equal(t, d.keyspace, known(s.Keyspace, text))
	require.Equal(t, d.table, known(s.Table, text))
	require.Equal(t, squeeze([]byte(d.lock)), squeeze(s.Lock.Of(text)))
	require.Equal(t, d.ttl, s.TTL.Kind != NoTerm)
	require.Equal(t, d.timestamp, s.Timestamp.Kind != NoTerm)
	require.Equal(t, d.condition, s.Conditional)
	require.Len(t, s.Where, len(d.keys))
	for i, key := range d.keys {
		r := s.Where[i]
		require.Equal(t, key.column, known(r.Column, text))
		values := r.Values
		if !key.in {
			values = []Term{r.Value}
		}
		require.Equal(t, key.in, r.Op == OpIn)
		require.Len(t, values, len(key.values))
		for j, v := range values {
			require.Equal(t, squeeze([]byte(key.values[j])), squeeze(v.Of(text)))
		}
	}
}

// Generated statements are parsed as they were generated.
func TestDrawnStatements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		text := []byte(d.text(t))
		s, err := Parse(text)
		require.NoError(t, err, "%s", text)
		checkDrawn(t, d, s, text)
		sent := Apply(nil, text, s.Cut)
		require.Equal(t, strings.Join(d.tokens(theirs), " "), strings.TrimRight(squeeze(sent), " ;"))

		h := ReadHead(text, true)
		require.Equal(t, []any{h.Verb, h.Keyspace, h.Table}, []any{s.Verb, s.Keyspace, s.Table})
	})
}

// TestDrawnMarkers counts markers another way: every ? and every colon before a
// name in what was drawn.
func TestDrawnMarkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		text := []byte(d.text(t))
		s, err := Parse(text)
		require.NoError(t, err, "%s", text)
		want, lockAt := 0, -1
		list := d.tokens(all)
		for i, tok := range list {
			name := i+1 < len(list) && slices.Contains([]string{"name", "x", "b", "ref", `"Na"`}, list[i+1])
			if tok != "?" && (tok != ":" || !name) {
				continue
			}
			if strings.EqualFold(list[i-1], "LOCK") && s.Lock.Kind == TermMarker && lockAt < 0 && strings.EqualFold(list[max(0, i-2)], "USING") {
				lockAt = want
			}
			want++
		}
		require.Equal(t, want, s.Markers, "%s", text)
		if lockAt >= 0 {
			require.Equal(t, lockAt, s.Lock.Marker)
		}
	})
}

// TestDrawnBatches puts drawn writes into a batch.
func TestDrawnBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var children []*drawn
		for range rapid.IntRange(0, 4).Draw(t, "children") {
			if d := draw(t); d.verb != Select {
				children = append(children, d)
			}
		}
		var b strings.Builder
		b.WriteString("BEGIN BATCH USING LOCK ? ")
		for _, d := range children {
			for _, p := range d.pieces {
				b.WriteString(p.text + drawGlue(t))
			}
			b.WriteString(rapid.SampledFrom([]string{"", ";", ";;"}).Draw(t, "between"))
		}
		text := []byte(b.String() + "APPLY BATCH")
		s, err := Parse(text)
		require.NoError(t, err, "%s", text)
		require.Len(t, s.Children, len(children))
		markers := 1
		for i, d := range children {
			checkDrawn(t, d, s.Children[i], text)
			markers += s.Children[i].Markers
		}
		require.Equal(t, s.Markers, markers)
	})
}
