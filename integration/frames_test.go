package integration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// conversation is a sequence of requests of which every answer is kept: on one connection, or on
// one to each of several nodes or proxies in turn.
type conversation struct {
	t     testing.TB
	wires []*wire
	wire  *wire // the connection of the last request
	moves []roundTrip
}

// roundTrip is one request and its answer.
type roundTrip struct {
	name   string
	answer envelope
	shown  []byte // the part that must be equal
}

// mask removes from an answer what may differ, for the reason that its name gives.
type mask func(*frame.Frame)

// exact is the mask of answers that must be equal in every byte, with the header.
var exact mask

// tracingID removes an id that Cassandra draws for each request.
func tracingID(f *frame.Frame) { f.Body.TracingId = &primitive.UUID{} }

// addresses removes the addresses and ports of the node and the proxy in system.local; every other
// cell must be equal.
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

// own returns the mask of answers that the proxy makes: exact if there is no compression.
func (k *conversation) own() mask {
	if k.wire.compress && k.wire.version < primitive.ProtocolVersion5 {
		return uncompressed
	}
	return exact
}

// next changes to the next connection.
func (k *conversation) next() { k.wire = k.wires[(slices.Index(k.wires, k.wire)+1)%len(k.wires)] }

// ask sends a request on the next connection and keeps the answer. After a change of the schema it
// waits until all nodes have it.
func (k *conversation) ask(name string, m message.Message, hide mask, change func(*frame.Frame)) *frame.Frame {
	k.t.Helper()
	k.next()
	f := k.say(name, m, hide, change)
	if f == nil {
		return nil // the library cannot read it, and it is no change of the schema
	}
	if _, changed := f.Body.Message.(*message.SchemaChangeResult); changed {
		k.agree()
	}
	return f
}

// agree waits until all nodes have the same schema, as drivers do. It adds nothing to the kept
// answers.
func (k *conversation) agree() {
	k.t.Helper()
	eventually(k.t, wireTimeout, "the nodes agree on the schema", func() error {
		versions := map[string]bool{}
		for _, w := range k.wires {
			version, err := w.schemaVersion()
			if err != nil {
				return err
			}
			versions[version] = true
		}
		if len(versions) > 1 {
			return errorf("%d versions", len(versions))
		}
		return nil
	})
}

// schemaVersion asks for the schema's version and leaves the connection's streams as they were.
func (w *wire) schemaVersion() (string, error) {
	defer func(before int16) { w.stream = before }(w.stream)
	if err := w.send(plainQuery("SELECT schema_version FROM system.local"), nil); err != nil {
		return "", err
	}
	e, err := w.answer()
	if err != nil {
		return "", err
	}
	f, err := w.decode(e)
	if err != nil {
		return "", err
	}
	return string(f.Body.Message.(*message.RowsResult).Data[0][0]), nil
}

// answer returns the next envelope that is not an event.
func (w *wire) answer() (envelope, error) {
	for {
		e, err := w.receive()
		if err != nil || e.opcode() != primitive.OpCodeEvent {
			return e, err
		}
	}
}

// say sends a request on the present connection and keeps the answer.
func (k *conversation) say(name string, m message.Message, hide mask, change func(*frame.Frame)) *frame.Frame {
	k.t.Helper()
	require.NoError(k.t, k.wire.send(m, change), "%s at %s", name, k.wire.net.RemoteAddr())
	e, err := k.wire.answer()
	require.NoError(k.t, err, "%s at %s", name, k.wire.net.RemoteAddr())
	f, err := k.wire.decode(e)
	require.True(k.t, err == nil || hide == nil, "%s: %v in %v", name, err, e)
	shown := append(bytes.Clone(e.header), e.body...)
	if hide != nil {
		hide(f)
		shown = k.encode(f)
		shown = append(shown[:5:5], shown[9:]...) // the length says no more than the body
	}
	k.moves = append(k.moves, roundTrip{name, e, shown})
	return f
}

// encode encodes a frame after its mask was applied.
func (k *conversation) encode(f *frame.Frame) []byte {
	f.Header.Flags &^= primitive.HeaderFlagCompressed
	var b bytes.Buffer
	require.NoError(k.t, k.wire.codec.EncodeFrame(f, &b))
	return b.Bytes()
}

// query runs a statement given as text.
func (k *conversation) query(text string) { k.ask(text, plainQuery(text), exact, nil) }

// plainQuery returns a QUERY at level ONE.
func plainQuery(text string) *message.Query {
	return &message.Query{Query: text, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}}
}

// prepare prepares a statement on all connections, and returns the message that executes it on any.
func (k *conversation) prepare(text string, values ...*primitive.Value) *message.Execute {
	k.t.Helper()
	x := k.prepareNext(text, values...)
	for range k.wires[1:] {
		assert.Equal(k.t, x, k.prepareNext(text, values...), "the ids of %s are the same everywhere", text)
	}
	return x
}

// prepareNext prepares a statement on the next connection and returns the message that executes it there.
func (k *conversation) prepareNext(text string, values ...*primitive.Value) *message.Execute {
	k.t.Helper()
	k.next()
	return k.prepareHere(text, values...)
}

// prepareHere prepares a statement on the present connection.
func (k *conversation) prepareHere(text string, values ...*primitive.Value) *message.Execute {
	k.t.Helper()
	f := k.say("prepare "+text, &message.Prepare{Query: text}, exact, nil)
	x := &message.Execute{Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PositionalValues: values}}
	if p, ok := f.Body.Message.(*message.PreparedResult); ok {
		x.QueryId, x.ResultMetadataId = p.PreparedQueryId, p.ResultMetadataId
	}
	return x
}

// openConversation begins a conversation after the handshakes.
func openConversation(t *testing.T, version primitive.ProtocolVersion, compression primitive.Compression, addresses ...string) *conversation {
	t.Helper()
	k := &conversation{t: t}
	for _, address := range addresses {
		k.wires = append(k.wires, openWire(t, address, version, compression))
	}
	k.next()
	return k
}

// converseIn begins a conversation in a new keyspace.
func converseIn(t *testing.T, keyspace string, version primitive.ProtocolVersion, compression primitive.Compression, addresses ...string) *conversation {
	t.Helper()
	k := openConversation(t, version, compression, addresses...)
	for _, text := range []string{
		"DROP KEYSPACE IF EXISTS " + keyspace,
		"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
	} {
		_, err := k.wire.ask(plainQuery(text))
		require.NoError(t, err)
		k.agree()
	}
	for _, w := range k.wires {
		_, err := w.ask(plainQuery("USE " + keyspace))
		require.NoError(t, err)
	}
	return k
}

// converse runs the whole script in a new keyspace.
func converse(t *testing.T, version primitive.ProtocolVersion, compression primitive.Compression, addresses ...string) []roundTrip {
	t.Helper()
	k := converseIn(t, "frames", version, compression, addresses...)
	k.handshakeAgain()
	k.statements()
	k.prepared()
	k.values()
	k.paging()
	k.batches()
	k.extras()
	k.elsewhere()
	k.pipelined()
	return k.moves
}

// frameCase is a version of the protocol with a compression.
type frameCase struct {
	version     primitive.ProtocolVersion
	compression primitive.Compression
}

// String returns the name of its test.
func (c frameCase) String() string {
	return fmt.Sprintf("v%d %s", c.version, strings.ToLower(string(c.compression)))
}

// frameCases returns the versions and compressions of the protocol that Cassandra has.
func frameCases() []frameCase {
	var all []frameCase
	for _, v := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		for _, c := range []primitive.Compression{primitive.CompressionNone, primitive.CompressionLz4, primitive.CompressionSnappy} {
			if v >= primitive.ProtocolVersion5 && c == primitive.CompressionSnappy {
				continue // the protocol has it no more
			}
			all = append(all, frameCase{v, c})
		}
	}
	return all
}

// Every part of the protocol is answered by the proxy as by the node, byte for byte.
func TestFramesAreEqual(t *testing.T) {
	proxy := needProxy(t)
	for _, c := range frameCases() {
		t.Run(c.String(), func(t *testing.T) {
			direct := converse(t, c.version, c.compression, needEnvironment(t).direct())
			proxied := converse(t, c.version, c.compression, proxy)
			before, behind := openConversation(t, c.version, c.compression, needEnvironment(t).direct()), openConversation(t, c.version, c.compression, proxy)
			before.topology()
			behind.topology()
			for _, difference := range differentMoves(append(direct, before.moves...), append(proxied, behind.moves...)) {
				assert.Fail(t, "a difference", "%v", difference)
			}
		})
	}
}

// differentMoves returns the requests whose answers differ.
func differentMoves(direct, proxied []roundTrip) []string {
	if len(direct) != len(proxied) {
		return []string{fmt.Sprintf("%d answers direct, %d proxied", len(direct), len(proxied))}
	}
	var all []string
	for i, d := range direct {
		p := proxied[i]
		if d.name != p.name || !bytes.Equal(d.shown, p.shown) {
			all = append(all, fmt.Sprintf("%s\ndirect  %v\nproxied %v", d.name, d.answer, p.answer))
		}
	}
	return all
}
