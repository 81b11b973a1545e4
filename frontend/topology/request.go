package topology

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// Request is one execution of a Select, with the nodes of that moment. It must be used only once.
type Request struct {
	*Select
	nodes []Node
	proxy netip.AddrPort // this proxy, which is that of the home node
	bare  bool           // the client wants no column metadata with its rows
	ours  bool           // the restriction of peer was added by the proxy

	edits []edit

	named      map[string]int // the indexes of values by their names; nil until first needed
	translated map[int]bool   // the values that have been translated, by index
}

// NewRequest returns a request. nodes are the nodes beside the home node that have a proxy now, and
// proxy is the home node's proxy.
func NewRequest(s *Select, nodes []Node, proxy netip.AddrPort) *Request {
	return &Request{Select: s, nodes: nodes, proxy: proxy}
}

// edit replaces a span of the text.
type edit struct {
	rewrite.Span
	with string
}

// Query returns the text to send in a QUERY, and changes p to the parameters for it. metadata is
// the result metadata id that the client has sent, nil if it has sent none.
func (q *Request) Query(p *wire.Parameters, metadata []byte) []byte {
	q.bare = p.Flags.Contains(primitive.QueryFlagSkipMetadata) && (metadata == nil || bytes.Equal(metadata, q.metadata))
	p.Flags &^= primitive.QueryFlagSkipMetadata
	p.Unpage()
	q.askTable()
	if q.Table != "local" {
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

// askTable adds the keyspace to the table's name, since a prepared statement may be executed after
// another USE. It restricts peers to the nodes that have a proxy, unless the client's text
// restricts the column peer.
func (q *Request) askTable() {
	s := &q.statement
	e := edit{s.Table.Span, " system." + q.Table + " "}
	if !s.Keyspace.Empty() {
		e.Start = s.Keyspace.Start
	}
	if q.Table != "local" && !slices.ContainsFunc(s.Where, func(r rewrite.Relation) bool { return q.name(r.Column) == "peer" }) {
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

// list returns the values for "peer IN": all nodes with a proxy, and two that do not exist. With
// one value or none Cassandra would treat a count differently.
func (q *Request) list() string {
	list := []string{spell("peer", wire.Address(nowhere())), "'255.255.255.255'"}
	for i := range q.nodes {
		list = append(list, spell("peer", q.nodes[i].value("peer")))
	}
	return strings.Join(list, ", ")
}

// askAddresses translates the client's restrictions from proxies to nodes. Addresses are translated
// before ports, since a port is then that of a node at one of those addresses.
func (q *Request) askAddresses(p *wire.Parameters) {
	meant := q.nodes
	q.translated = map[int]bool{}
	for _, ports := range []bool{false, true} {
		for _, r := range q.statement.Where {
			column := q.name(r.Column)
			if !q.restricts(r) || isPort(column) != ports {
				continue
			}
			var found []Node
			again := q.translate(r, p, func(shown []byte) []byte {
				found = addNodesAt(found, meant, shown)
				return nodeValue(meant, column, shown)
			})
			if !ports && !again {
				meant = found
			}
		}
	}
}

// addNodesAt adds the nodes whose proxy has an address, each once: the address may be listed often.
func addNodesAt(found, nodes []Node, shown []byte) []Node {
	for i := range nodes {
		if nodes[i].isAt(shown) && !slices.Contains(found, nodes[i]) {
			found = append(found, nodes[i])
		}
	}
	return found
}

// translate replaces the values of a relation, literals and bound ones, by what to returns for
// them. A bound value that several markers name is replaced once; again reports whether there was one that
// had been replaced before.
func (q *Request) translate(r rewrite.Relation, p *wire.Parameters, to func([]byte) []byte) (again bool) {
	column := q.name(r.Column)
	for _, term := range append(slices.Clip(r.Values), r.Value) {
		if term.Kind == rewrite.TermMarker {
			i := q.bound(term, column, p)
			switch {
			case i < 0:
			case q.translated[i]:
				again = true
			default:
				q.translated[i] = true
				p.Values[i] = translateValue(p.Values[i], r.Op == rewrite.OpIn && len(r.Values) == 0, to)
			}
			continue
		}
		if shown := readPlace(column, q.text, term); shown != nil {
			q.edits = append(q.edits, edit{term.Span, spell(column, to(shown))})
		}
	}
	return again
}

// bound returns the index of a marker's value, or -1 if there is none, which Cassandra will refuse.
func (q *Request) bound(term rewrite.Term, column string, p *wire.Parameters) int {
	if p.Names == nil {
		if term.Marker < len(p.Values) {
			return term.Marker
		}
		return -1
	}
	if !term.Name.Empty() {
		column = q.name(term.Name)
	}
	if q.named == nil {
		q.named = p.ByName()
	}
	if i, ok := q.named[column]; ok {
		return i
	}
	return -1
}

// translateValue translates a bound value or, if list, each of a bound list. A value that is null,
// not set or malformed is left for Cassandra to refuse.
func translateValue(value []byte, list bool, to func([]byte) []byte) []byte {
	plain := (&wire.Cursor{Body: value}).Value()
	if plain == nil {
		return value
	}
	if !list {
		return wire.Value(to(plain))
	}
	cur := wire.Cursor{Body: plain}
	n := cur.Int()
	whole := binary.BigEndian.AppendUint32(nil, uint32(n))
	for ; n > 0 && !cur.Bad; n-- {
		if one := cur.Value(); one != nil {
			whole = append(whole, wire.Value(to(one))...)
		}
	}
	if cur.Bad {
		return value
	}
	return wire.Value(whole)
}

// readPlace returns the value of a literal of an address or port in wire form; nil if it is
// malformed, which Cassandra will refuse.
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
	return wire.Address(address.WithZone(""))
}

// spell writes an address or port as a literal.
func spell(column string, value []byte) string {
	if isPort(column) {
		return strconv.Itoa(int(int32(binary.BigEndian.Uint32(value))))
	}
	address, _ := netip.AddrFromSlice(value)
	return "'" + address.String() + "'"
}

// Warnings of Cassandra (SelectStatement). A client's text that would get the second gets the first
// because of the restriction that the proxy adds.
const (
	countedIn = "Aggregation query used on multiple partition keys (IN restriction)"
	counted   = "Aggregation query used without partition key"
)

// Translate replaces nodes by proxies in an answer. rows is the message in body.
func (q *Request) Translate(body *frame.Body, rows *message.RowsResult) {
	q.show(rows)
	for i, warning := range body.Warnings {
		if q.ours && warning == countedIn {
			body.Warnings[i] = counted
		}
	}
	if q.bare {
		rows.Metadata.Columns = nil
	}
}

// show replaces nodes by their proxies. It removes the rows of nodes without a proxy.
func (q *Request) show(rows *message.RowsResult) {
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

// source returns the table's column that result column i, which is called name, shows.
func (q *Request) source(i int, name string) string {
	if i < len(q.sources) {
		return q.sources[i]
	}
	return name
}

// cell returns the value to show in the place of a node's value.
func (q *Request) cell(column *message.ColumnMetadata, source string, value []byte, proxy netip.AddrPort) []byte {
	switch {
	case column.Type.Code() != primitive.DataTypeCodeInet && !isPort(source):
		return value
	case q.Table != "local" && !identifies(source):
		return nil // preferred_ip, preferred_port: used between nodes only
	case isPort(source):
		return wire.Port(proxy.Port())
	}
	return wire.Address(proxy.Addr())
}

// proxyOf returns the proxy of the node that a row is about; known is false if that node has none.
// A row without a column that identifies its node has no address to translate: it is known.
func (q *Request) proxyOf(sources []string, row message.Row) (proxy netip.AddrPort, known bool) {
	if q.Table == "local" {
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
