package frontend

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// question is one request of a topology: who asks sees the nodes of that moment.
type question struct {
	*topology
	nodes []Node
	proxy netip.AddrPort // of the home node: this one
	bare  bool           // the client wants no columns with its rows
	ours  bool           // the nodes are restricted by us, and not by the client

	edits []edit
}

// edit puts bytes in the place of a part of the text.
type edit struct {
	rewrite.Span
	with string
}

// ask returns the text to be sent, and makes the bound values in p those of the nodes.
func (q *question) ask(p *wire.Parameters) []byte {
	q.askTable()
	if q.table != "local" {
		q.askAddresses(p)
	}
	slices.SortFunc(q.edits, func(a, b edit) int { return a.Start - b.Start })
	var text []byte
	at := 0
	for _, e := range q.edits {
		text = append(append(text, q.text[at:e.Start]...), e.with...)
		at = e.End
	}
	return append(text, q.text[at:]...)
}

// askTable names the table in full, since a prepared statement may be executed under another USE, and restricts peers to the nodes
// that have a proxy, unless the client restricts them itself.
func (q *question) askTable() {
	s := &q.statement
	e := edit{s.Table.Span, " system." + q.table + " "}
	if !s.Keyspace.Empty() {
		e.Start = s.Keyspace.Start
	}
	if q.table != "local" && !slices.ContainsFunc(s.Where, func(r rewrite.Relation) bool { return q.name(r.Column) == "peer" }) {
		q.ours = true
		e.with += "WHERE peer IN (" + q.list() + ") "
		if len(s.Where) > 0 {
			lex := rewrite.NewLexer(q.text[e.End:])
			e.End += lex.Next().End // WHERE
			e.with += "AND"
		}
	}
	q.edits = append(q.edits, e)
}

// list is all nodes with a proxy, and two that there are not: of one or none, Cassandra would treat a count in another way.
func (q *question) list() string {
	list := []string{spell("peer", wireAddress(nowhere())), "'255.255.255.255'"}
	for i := range q.nodes {
		list = append(list, spell("peer", q.nodes[i].value("peer")))
	}
	return strings.Join(list, ", ")
}

// askAddresses makes the client's restrictions those of nodes. Addresses come first: a port is that of a node at one of them.
func (q *question) askAddresses(p *wire.Parameters) {
	meant := q.nodes
	for _, ports := range []bool{false, true} {
		for _, r := range q.statement.Where {
			column := q.name(r.Column)
			if !q.restricts(r) || isPort(column) != ports {
				continue
			}
			var found []Node
			q.translate(r, p, func(shown []byte) []byte {
				found = append(found, nodesAt(meant, shown)...)
				return nodeValue(meant, column, shown)
			})
			if !ports {
				meant = found
			}
		}
	}
}

// nodesAt are those whose proxy has an address.
func nodesAt(nodes []Node, shown []byte) (found []Node) {
	for i := range nodes {
		if nodes[i].isAt(shown) {
			found = append(found, nodes[i])
		}
	}
	return found
}

// translate puts other values into a relation, literals and bound ones.
func (q *question) translate(r rewrite.Relation, p *wire.Parameters, to func([]byte) []byte) {
	column := q.name(r.Column)
	for _, term := range append(slices.Clip(r.Values), r.Value) {
		if term.Kind == rewrite.TermMarker {
			if i := q.bound(term, column, p); i >= 0 {
				p.Values[i] = translateValue(p.Values[i], r.Op == rewrite.OpIn && len(r.Values) == 0, to)
			}
			continue
		}
		if shown := readPlace(column, q.text, term); shown != nil {
			q.edits = append(q.edits, edit{term.Span, spell(column, to(shown))})
		}
	}
}

// bound is the index of a marker's value, -1 where there is none: then Cassandra will say so.
func (q *question) bound(term rewrite.Term, column string, p *wire.Parameters) int {
	if p.Names == nil {
		if term.Marker < len(p.Values) {
			return term.Marker
		}
		return -1
	}
	if !term.Name.Empty() {
		column = q.name(term.Name)
	}
	return slices.IndexFunc(p.Names, func(name []byte) bool { return string(name) == column })
}

// translateValue translates a bound value, or each of a list of them. One that is null, not set or malformed stays for Cassandra to
// deal with.
func translateValue(value []byte, list bool, to func([]byte) []byte) []byte {
	plain := (&wire.Cursor{Body: value}).Value()
	if plain == nil {
		return value
	}
	if !list {
		return wireValue(to(plain))
	}
	cur := wire.Cursor{Body: plain}
	n := cur.Int()
	whole := binary.BigEndian.AppendUint32(nil, uint32(n))
	for ; n > 0 && !cur.Bad; n-- {
		if one := cur.Value(); one != nil {
			whole = append(whole, wireValue(to(one))...)
		}
	}
	if cur.Bad {
		return value
	}
	return wireValue(whole)
}

// wireValue is a [value] of the protocol.
func wireValue(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// readPlace reads the literal of an address or port; nil for what is none, which Cassandra will refuse.
func readPlace(column string, text []byte, term rewrite.Term) []byte {
	if isPort(column) {
		port, err := rewrite.Encode("int", text, term)
		if err != nil {
			return nil
		}
		return port
	}
	literal, err := rewrite.String(text, term)
	if err != nil {
		return nil
	}
	address, err := netip.ParseAddr(literal)
	if err != nil {
		return nil
	}
	return wireAddress(address.WithZone(""))
}

// spell writes an address or port as a literal.
func spell(column string, wire []byte) string {
	if isPort(column) {
		return strconv.Itoa(int(int32(binary.BigEndian.Uint32(wire))))
	}
	address, _ := netip.AddrFromSlice(wire)
	return "'" + address.String() + "'"
}

// translateRows makes the answer to a question that of a cluster of proxies.
func (c *conn) translateRows(e wire.Envelope, q *question) (wire.Envelope, error) {
	if e.OpCode != primitive.OpCodeResult {
		return e, nil
	}
	f, err := c.decode(e)
	if err != nil {
		return e, err
	}
	rows, ok := f.Body.Message.(*message.RowsResult)
	switch {
	case !ok:
		return e, nil
	case q.text == nil:
		f := wire.Invalid("MUSIC_SYNTAX: the statement cannot be read, and it shows addresses of nodes")
		return c.insteadOf(e, f), nil
	}
	q.show(rows)
	for i, warning := range f.Body.Warnings {
		if q.ours && warning == countedIn {
			f.Body.Warnings[i] = counted
		}
	}
	if q.bare {
		rows.Metadata.Columns = nil
	}
	return wire.Encode(f)
}

// Warnings of Cassandra (SelectStatement): the restriction of peers that we add turns the second, which the client's own text
// gets, into the first.
const (
	countedIn = "Aggregation query used on multiple partition keys (IN restriction)"
	counted   = "Aggregation query used without partition key"
)

// show puts proxies in the place of nodes. A row that tells of a node without a proxy is left out.
func (q *question) show(rows *message.RowsResult) {
	sources := make([]string, len(rows.Metadata.Columns))
	for i, column := range rows.Metadata.Columns {
		sources[i] = q.source(i, column.Name)
	}
	rows.Data = slices.DeleteFunc(rows.Data, func(row message.Row) bool {
		proxy, known := q.proxyOf(sources, row)
		for i, column := range rows.Metadata.Columns {
			if row[i] != nil {
				row[i] = q.cell(column, sources[i], row[i], proxy)
			}
		}
		return !known
	})
}

// source is the column of the table that a result column shows.
func (q *question) source(i int, name string) string {
	if i < len(q.sources) {
		return q.sources[i]
	}
	return name
}

// cell is what is shown in a column in the place of what the node has there.
func (q *question) cell(column *message.ColumnMetadata, source string, value []byte, proxy netip.AddrPort) []byte {
	switch {
	case column.Type.Code() != primitive.DataTypeCodeInet && !isPort(source):
		return value
	case q.table != "local" && !identifies(source):
		return nil // preferred_ip, preferred_port: between nodes alone
	case isPort(source):
		return wirePort(proxy.Port())
	}
	return wireAddress(proxy.Addr())
}

// proxyOf finds the proxy of the node that a row is about; not known where the row tells of a node that has none. A row that does
// not tell which node it is about shows no place either.
func (q *question) proxyOf(sources []string, row message.Row) (proxy netip.AddrPort, known bool) {
	if q.table == "local" {
		return q.proxy, true
	}
	for i := range q.nodes {
		if q.nodes[i].fits(sources, row) {
			return q.nodes[i].Proxy, true
		}
	}
	for i, source := range sources {
		if identifies(source) && row[i] != nil {
			return netip.AddrPort{}, false
		}
	}
	return netip.AddrPort{}, true
}
