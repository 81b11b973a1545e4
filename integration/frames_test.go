package integration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// talk is a conversation on one connection of which every answer is kept.
type talk struct {
	t     testing.TB
	wire  *wire
	moves []move
}

// move is one request and its answer.
type move struct {
	name   string
	answer envelope
	shown  []byte // of the body, what must be equal
}

// mask takes out of an answer what may differ, for the reason that its name tells.
type mask func(*frame.Frame)

// exact is the mask of answers that must be equal to the byte, header and all.
var exact mask

// tracingID hides an id that Cassandra draws for each request.
func tracingID(f *frame.Frame) { f.Body.TracingId = &primitive.UUID{} }

// addresses hides those of the node and the proxy in system.local, with their ports; every other cell must be equal.
func addresses(f *frame.Frame) {
	rows, ok := f.Body.Message.(*message.RowsResult)
	if !ok {
		return
	}
	for i, column := range rows.Metadata.Columns {
		if column.Type.Code() != primitive.DataTypeCodeInet && !strings.HasSuffix(column.Name, "_port") {
			continue
		}
		for _, row := range rows.Data {
			row[i] = nil
		}
	}
}

// uncompressed is for answers of the proxy itself, which it does not compress; all else in them must be equal.
func uncompressed(*frame.Frame) {}

// own is the mask of answers that the proxy gives by itself: exact where there is no compression.
func (k *talk) own() mask {
	if k.wire.compress && k.wire.version < primitive.ProtocolVersion5 {
		return uncompressed
	}
	return exact
}

// ask sends a request and keeps the answer.
func (k *talk) ask(name string, m message.Message, hide mask, change func(*frame.Frame)) *frame.Frame {
	k.t.Helper()
	if err := k.wire.send(m, change); err != nil {
		k.t.Fatalf("%s at %s: %v", name, k.wire.net.RemoteAddr(), err)
	}
	e, err := k.wire.receive()
	if err != nil {
		k.t.Fatalf("%s at %s: %v", name, k.wire.net.RemoteAddr(), err)
	}
	f, err := k.wire.decode(e)
	if err != nil && hide != nil {
		k.t.Fatalf("%s: %v in %v", name, err, e)
	}
	shown := append(bytes.Clone(e.header), e.body...)
	if hide != nil {
		hide(f)
		shown = k.encode(f)
		shown = append(shown[:5:5], shown[9:]...) // the length says no more than the body
	}
	k.moves = append(k.moves, move{name, e, shown})
	return f
}

// encode writes a frame that has been masked.
func (k *talk) encode(f *frame.Frame) []byte {
	f.Header.Flags &^= primitive.HeaderFlagCompressed
	var b bytes.Buffer
	if err := k.wire.codec.EncodeFrame(f, &b); err != nil {
		k.t.Fatal(err)
	}
	return b.Bytes()
}

// query runs a statement given as text.
func (k *talk) query(text string) { k.ask(text, plainQuery(text), exact, nil) }

// plainQuery is a statement as text at level ONE.
func plainQuery(text string) *message.Query {
	return &message.Query{Query: text, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}}
}

// prepare prepares a statement and returns the message that executes it.
func (k *talk) prepare(text string, values ...*primitive.Value) *message.Execute {
	f := k.ask("prepare "+text, &message.Prepare{Query: text}, exact, nil)
	x := &message.Execute{Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PositionalValues: values}}
	if p, ok := f.Body.Message.(*message.PreparedResult); ok {
		x.QueryId, x.ResultMetadataId = p.PreparedQueryId, p.ResultMetadataId
	}
	return x
}

// openTalk begins a conversation after the handshake.
func openTalk(t *testing.T, address string, version primitive.ProtocolVersion, compression primitive.Compression) *talk {
	t.Helper()
	return &talk{t: t, wire: openWire(t, address, version, compression)}
}

// converse carries out the whole script in a new keyspace.
func converse(t *testing.T, address string, version primitive.ProtocolVersion, compression primitive.Compression) []move {
	t.Helper()
	k := openTalk(t, address, version, compression)
	for _, text := range []string{
		"DROP KEYSPACE IF EXISTS frames", "CREATE KEYSPACE frames WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"USE frames",
	} {
		if _, err := k.wire.ask(plainQuery(text)); err != nil {
			t.Fatal(err)
		}
	}
	k.handshakeAgain()
	k.statements()
	k.prepared()
	k.values()
	k.paging()
	k.batches()
	k.extras()
	k.pipelined()
	return k.moves
}

// frameCases are the versions and compressions of the protocol that Cassandra has.
func frameCases() []struct {
	version     primitive.ProtocolVersion
	compression primitive.Compression
} {
	var all []struct {
		version     primitive.ProtocolVersion
		compression primitive.Compression
	}
	for _, v := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		for _, c := range []primitive.Compression{primitive.CompressionNone, primitive.CompressionLz4, primitive.CompressionSnappy} {
			if v >= primitive.ProtocolVersion5 && c == primitive.CompressionSnappy {
				continue // the protocol has it no more
			}
			all = append(all, struct {
				version     primitive.ProtocolVersion
				compression primitive.Compression
			}{v, c})
		}
	}
	return all
}

func TestFramesAreEqual(t *testing.T) {
	proxy := needProxy(t)
	for _, c := range frameCases() {
		t.Run(fmt.Sprintf("v%d %s", c.version, strings.ToLower(string(c.compression))), func(t *testing.T) {
			direct := converse(t, needWorld(t).direct(), c.version, c.compression)
			proxied := converse(t, proxy, c.version, c.compression)
			before, behind := openTalk(t, needWorld(t).direct(), c.version, c.compression), openTalk(t, proxy, c.version, c.compression)
			before.topology()
			behind.topology()
			for _, difference := range differentMoves(append(direct, before.moves...), append(proxied, behind.moves...)) {
				t.Error(difference)
			}
		})
	}
}

// differentMoves are the requests whose answers are not the same.
func differentMoves(direct, proxied []move) []string {
	var all []string
	for i, d := range direct {
		p := proxied[i]
		if d.name != p.name || !bytes.Equal(d.shown, p.shown) {
			all = append(all, fmt.Sprintf("%s\ndirect  %v\nproxied %v", d.name, d.answer, p.answer))
		}
	}
	return all
}
