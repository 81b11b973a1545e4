package frontend

import (
	"bytes"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// knownRow is the row that the read of a write with IF returns after an earlier such write, which gave
// all columns of it their values; after one with IF EXISTS only that there is a row. It stands in the
// tickets of the key (musiccore.Ticket, Known) and must not be modified.
type knownRow struct {
	table   *catalog.Critical // the state of the table
	conn    uint64            // whose client wrote it
	version byte              // of the protocol, in whose types the columns are: version 3 does not have all
	read    []byte            // the read, as conditionalWrite.read has it
	values  [][]byte
	columns []*message.ColumnMetadata
	row     message.Row
}

// maxKnownRow is the largest row, in bytes, that is kept.
const maxKnownRow = 4 << 10

// rowSize returns how many bytes the values of a row take.
func rowSize(row message.Row) (n int) {
	for _, value := range row {
		n += len(value)
	}
	return n
}

// note puts the row that the write leaves into the ticket of its put, if that follows from the write
// alone. The proxy forwards no plain writes to the table meanwhile: it is not in the state of
// unlocked=allow, and another state has another catalog.Critical.
func (x *conditionalWrite) note(c *conn, tk *musiccore.Ticket) {
	if tk.Kind != musiccore.Put || x.leaves == nil || x.Table.Unlocked == catalog.Allow {
		return
	}
	columns := x.columns
	if x.All {
		columns = nil
	}
	if rowSize(x.leaves) <= maxKnownRow {
		tk.Known = &knownRow{x.Table, c.id, c.version, x.read.body, x.read.request.parameters.Values, columns, x.leaves}
	}
}

// known returns the row that the ticket of a get says the read would return; nil if it does not. With
// roles, only who wrote the values is shown them without asking Cassandra: columns may be masked.
func (x *conditionalWrite) known(c *conn, k *lockedOperation, tk musiccore.Ticket) *knownRow {
	r, ok := tk.Known.(*knownRow)
	switch {
	case !ok, tk.Kind != musiccore.Get, !x.OfOneRow(), r.conn != c.id && c.hasRoles():
		return nil
	case r.table != x.Table || r.table != k.sent.table.Critical(), r.version != c.version:
		return nil
	case !bytes.Equal(r.read, k.body) || !slices.EqualFunc(r.values, k.request.parameters.Values, bytes.Equal):
		return nil
	case k.header.Flags&primitive.HeaderFlagTracing != 0: // its client wants to see what Cassandra did
		return nil
	}
	return r
}

// readKnown continues a write with IF whose read the proxy can answer by itself. f has the ticket of the
// read, which is over with that.
func (c *conn) readKnown(f *sentOperation, stream int16, r *knownRow, inPlace bool) {
	verdict, wait := c.endTickets(f, musiccore.OutcomeAcked)
	if wait != nil {
		c.answerLater(stream, func(o operation) []byte {
			verdict := wait()
			o.free()
			return c.continueKnown(f, stream, r, verdict, false)
		})
		return
	}
	if raw := c.continueKnown(f, stream, r, verdict, inPlace); raw != nil {
		c.post(raw)
	}
}

// continueKnown is continueConditional for a row that was not read.
func (c *conn) continueKnown(f *sentOperation, stream int16, r *knownRow, v musiccore.Verdict, inPlace bool) []byte {
	nothing := wire.ResponseEnvelope(c.version, stream, primitive.OpCodeResult, []byte{0, 0, 0, 1})
	e, err := c.conclude(wire.EnvelopeOf(nothing), f, outcome{what: musiccore.OutcomeAcked}, v)
	switch {
	case err != nil:
		f.done()
		c.end(err)
		return nil
	case e.OpCode != primitive.OpCodeResult:
		f.done()
		return e.Raw
	}
	answer := frame.NewFrame(primitive.ProtocolVersion(c.version), stream, &message.VoidResult{})
	answer.Body.Warnings = c.lateWarning(f)
	return c.decideConditional(answer, r.columns, message.RowSet{append(message.Row{}, r.row...)}, f, inPlace)
}
