package frontend

import (
	"bytes"
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/rewrite"
)

// topology says how the rows of a SELECT on system.local or system.peers become those of a cluster whose only node is
// this proxy (DESIGN.md 3): local shows the proxy's address, and there are no peers.
type topology struct {
	peers   bool
	count   bool     // of peers: what is selected is a number of rows
	sources []string // of local: the column that each result column shows; nil: its own name says it
}

// readTopology looks at what is selected. What would show an address in a form that cannot be translated is refused.
func readTopology(text []byte, m meaning) (*topology, *Failure) {
	t := &topology{peers: m == peers}
	statement, err := rewrite.Parse(text)
	if err != nil {
		return t, nil //nolint:nilerr // Cassandra will not read it either, and says so better
	}
	if statement.JSON {
		return nil, invalid("MUSIC_REFUSED: SELECT JSON on system.local and system.peers is not translated: select columns")
	}
	for _, s := range statement.Selectors {
		switch s.Kind {
		case rewrite.StarSelector:
			return t, nil
		case rewrite.ColumnSelector:
			t.sources = append(t.sources, string(s.Column.AppendTo(nil, text)))
		case rewrite.CountSelector:
			t.count = true
			t.sources = append(t.sources, "")
		default:
			if !t.peers && namesAddress(text[s.Start:s.End]) {
				return nil, invalid("MUSIC_REFUSED: functions of a node's address are not translated: select the column")
			}
			t.sources = append(t.sources, "")
		}
	}
	return t, nil
}

// namesAddress tells whether an expression may show an address or port of the node.
func namesAddress(expression []byte) bool {
	folded := bytes.ToLower(expression)
	return bytes.Contains(folded, []byte("address")) || bytes.Contains(folded, []byte("port"))
}

// holdTopology sends such a SELECT on, asking for the columns in the answer: they are needed to translate it.
func (c *conn) holdTopology(t *topology) verdict {
	v := c.holdFor((*conn).askColumns)
	c.plan.watch = watch{kind: watchTopology, topology: t}
	return v
}

func (c *conn) askColumns(e envelope) error {
	body, err := c.plainBody(e)
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	cur := cursor{b: body}
	if e.opcode == primitive.OpCodeExecute {
		c.skipIDs(&cur)
	} else {
		cur.longString()
	}
	what := body[:cur.at]
	p := readParameters(&cur, c.version)
	if cur.bad {
		return c.answerUnreadable(e, errShort)
	}
	if !p.flags.Contains(primitive.QueryFlagSkipMetadata) {
		return c.forwardHeld(e)
	}
	p.flags &^= primitive.QueryFlagSkipMetadata
	return c.forwardEdited(e, p.appendTo(bytes.Clone(what), c.version))
}

// skipIDs skips the ids that stand before the parameters of an EXECUTE.
func (c *conn) skipIDs(cur *cursor) {
	cur.string()
	if c.version >= byte(primitive.ProtocolVersion5) {
		cur.string()
	}
}

// translate makes the answer to such a SELECT.
func (c *conn) translate(e envelope, t *topology) (envelope, error) {
	if e.opcode != primitive.OpCodeResult {
		return e, nil
	}
	f, err := c.decode(e)
	if err != nil {
		return e, err
	}
	rows, ok := f.Body.Message.(*message.RowsResult)
	if !ok {
		return e, nil
	}
	if t.peers {
		t.empty(rows)
	} else {
		c.showProxy(rows, t)
	}
	return c.encode(f)
}

// empty takes all peers out of rows; where they are counted, that makes 0.
func (t *topology) empty(rows *message.RowsResult) {
	rows.Metadata.PagingState = nil
	if !t.count {
		rows.Data = message.RowSet{}
		return
	}
	for _, row := range rows.Data {
		for i := range row {
			row[i] = nil
			if t.source(i, "") == "" {
				row[i] = make([]byte, 8)
			}
		}
	}
}

// showProxy puts the proxy's address in the place of the node's. Every inet of system.local is an address of the node.
func (c *conn) showProxy(rows *message.RowsResult, t *topology) {
	address := c.server.Advertise.Addr().Unmap().AsSlice()
	port := binary.BigEndian.AppendUint32(nil, uint32(c.server.Advertise.Port()))
	for i, column := range rows.Metadata.Columns {
		var shown []byte
		switch {
		case column.Type.Code() == primitive.DataTypeCodeInet:
			shown = address
		case isPort(t.source(i, column.Name)):
			shown = port
		default:
			continue
		}
		for _, row := range rows.Data {
			if row[i] != nil {
				row[i] = shown
			}
		}
	}
}

// source is the column of the table that a result column shows.
func (t *topology) source(i int, name string) string {
	if i < len(t.sources) {
		return t.sources[i]
	}
	return name
}

// isPort tells whether a column of system.local is a port of the node.
func isPort(column string) bool {
	switch column {
	case "rpc_port", "native_port", "broadcast_port", "listen_port":
		return true
	}
	return false
}

// decode decodes a response of the backend whole.
func (c *conn) decode(e envelope) (*frame.Frame, error) {
	body := e.body()
	if e.flags.Contains(primitive.HeaderFlagCompressed) && !c.segmented.Load() {
		var err error
		if body, err = decompressBody(c.compression, body, nil, maxDecoded); err != nil {
			return nil, err
		}
		e.flags &^= primitive.HeaderFlagCompressed
	}
	return frame.NewRawCodec().ConvertFromRawFrame(&frame.RawFrame{
		Header: &frame.Header{
			IsResponse: true, Version: e.protocol(), Flags: e.flags, StreamId: e.stream, OpCode: e.opcode, BodyLength: int32(len(body)),
		},
		Body: body,
	})
}

// maxDecoded bounds an answer that is decoded: rows of system tables and prepared metadata are small.
const maxDecoded = 64 << 20

// encode makes an envelope of a decoded response, uncompressed.
func (c *conn) encode(f *frame.Frame) (envelope, error) {
	raw, err := frame.NewRawCodec().ConvertToRawFrame(f)
	if err != nil {
		return envelope{}, err
	}
	b := responseEnvelope(c.version, f.Header.StreamId, f.Header.OpCode, raw.Body)
	b[1] = byte(f.Header.Flags)
	return envelope{header: readHeader(b), raw: b}, nil
}
