package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
)

// segmented are the dialects that cut their bytes into segments.
func segmented(t *testing.T, test func(t *testing.T, d dialect)) {
	t.Helper()
	t.Run("v5", func(t *testing.T) { test(t, dialect{v5, ""}) })
	t.Run("v5 lz4", func(t *testing.T) { test(t, dialect{v5, primitive.CompressionLz4}) })
}

// An envelope that is held back in the middle of a segment is answered, and those around it go on in order.
func TestSegmentIsCutAnew(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "SELECT * FROM bank.accounts WHERE id = ?")
		unknown := []byte("unknown to proxy")
		var envelopes [][]byte
		for stream := range int16(9) {
			known := id
			if stream == 0 || stream == 4 || stream == 5 || stream == 8 {
				known = unknown
			}
			envelopes = append(envelopes, client.envelope(t, stream, execute(known, noise(100))))
		}
		client.write(client.framed(envelopes...))
		for _, stream := range []int16{1, 2, 3, 6, 7} {
			assert.Equal(t, id, backend.answer(stream).(*message.Execute).QueryId)
		}
		for _, stream := range []int16{0, 4, 5, 8} {
			assert.Equal(t, unknown, client.failure(stream).(*message.Unprepared).Id)
		}
		backend.silent()
	})
}

// The same towards the client: an answer that is translated leaves the others of its segment as they are.
func TestSegmentOfAnswersIsCutAnew(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		client.send(2, query("SELECT rpc_address FROM system.local"))
		client.send(3, query("SELECT a FROM b.c"))
		for stream := range int16(3) {
			backend.answer(stream + 1)
		}
		backend.write(backend.framed(
			backend.envelope(t, 1, rows(noise(10))), backend.envelope(t, 2, systemLocal("rpc_address")), backend.envelope(t, 3, rows(noise(10))),
		))
		for stream := range int16(3) {
			m := client.answer(stream + 1).(*message.RowsResult)
			if stream == 1 {
				assert.Equal(t, []byte{192, 0, 2, 7}, m.Data[0][0])
				continue
			}
			assert.Equal(t, noise(10), m.Data[0][0])
		}
	})
}

// A large request comes in parts. Wherever they are cut, also inside the header, it arrives; where its first part decides, as the
// bytes received.
func TestSegmentsOfOneEnvelope(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
		value := noise(3000)
		envelope := client.envelope(t, 5, execute(id, value))
		answer := backend.envelope(t, 5, rows(value))
		for _, size := range []int{1, 2, 8, 9, 10, 27, 28, 100, 1500, len(envelope) - 1, len(envelope)} {
			parts := client.parts(t, envelope, size)
			if size >= wire.HeaderSize+2+len(id) {
				pipe(client, backend, parts, atOnce)
			} else {
				client.write(parts)
				require.Equal(t, value, backend.answer(5).(*message.Execute).Options.PositionalValues[0].Contents)
			}
			pipe(backend, client, backend.parts(t, answer, max(size, wire.HeaderSize)), atOnce)
		}
	})
}

// A large request that is held back is answered, and what follows is not disturbed.
func TestSegmentsOfOneEnvelopeHeldBack(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, size := range []int{1, 8, 9, 1000} {
			client.write(client.parts(t, client.envelope(t, 5, execute([]byte("unknown to proxy"), noise(3000))), size))
			client.failure(5)
			assert.IsType(t, &message.VoidResult{}, relayed(client, backend, 6, query("SELECT a FROM b.c"), &message.VoidResult{}))
		}
	})
}

// A PREPARE is looked at whole, and one larger than a segment arrives whole; so does its answer.
func TestSegmentsOfPrepare(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		text := "SELECT " + strings.Repeat("quite_a_long_name_"+string(noise(1)[0]%26+'a')+", ", 10000) + "z FROM b.c"
		prepared := preparedAs(idOf("x"))
		for range 3000 {
			prepared.ResultMetadata.Columns = append(prepared.ResultMetadata.Columns, &message.ColumnMetadata{
				Keyspace: "b", Table: "c", Name: string(noise(60)), Type: inet,
			})
		}
		prepared.ResultMetadata.ColumnCount = 3000
		raw := dialect{version: v5}
		client.write(raw.segmentsOf(client, client.envelope(t, 1, &message.Prepare{Query: text})))
		assert.Equal(t, text, rawNext(backend).(*message.Prepare).Query)
		backend.write(raw.segmentsOf(backend, backend.envelope(t, 1, prepared)))
		assert.Len(t, rawNext(client).(*message.PreparedResult).ResultMetadata.Columns, 3000)
		// It is known now.
		client.send(2, execute(idOf("x"), nil))
		backend.answer(2)
	})
}

// segmentsOf cuts an envelope into segments that are not compressed, which the dialect of the peer allows.
func (dialect) segmentsOf(p *peer, envelope []byte) []byte {
	return wire.SegmentCodec{Compression: p.compression}.AppendTo(nil, envelope, false)
}

// rawNext reads an envelope; the library cannot decompress what compresses well.
func rawNext(p *peer) message.Message {
	p.t.Helper()
	return p.next().Body.Message
}
