package frontend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
)

// rawEnvelope is an envelope with a body of any kind.
func rawEnvelope(d dialect, stream int16, opcode byte, body []byte) []byte {
	h := wire.Header{Version: byte(d.version), Stream: stream, OpCode: primitive.OpCode(opcode), Length: uint32(len(body))}
	return append(h.AppendTo(nil), body...)
}

// survives tells that the connection still serves.
func survives(client, backend *peer) {
	client.t.Helper()
	assert.IsType(client.t, &message.VoidResult{}, relayed(client, backend, 77, query("SELECT a FROM b.c"), &message.VoidResult{}))
}

// An opcode that no request has is refused, and the connection goes on.
func TestUnknownOpcodes(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for opcode := range 256 {
			switch primitive.OpCode(opcode) {
			case primitive.OpCodeOptions, primitive.OpCodeQuery, primitive.OpCodePrepare, primitive.OpCodeExecute, primitive.OpCodeBatch,
				primitive.OpCodeRegister:
				continue
			}
			client.write(client.framed(rawEnvelope(d, 9, byte(opcode), noise(20))))
			assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(9).GetErrorCode(), opcode)
		}
		survives(client, backend)
	})
}

// A response from a client ends its connection.
func TestResponseBitFromAClient(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		b := rawEnvelope(d, 9, byte(primitive.OpCodeResult), nil)
		b[0] |= wire.ResponseBit
		client.write(client.framed(b))
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(0).GetErrorCode())
		client.ended()
		backend.ended()
	})
}

// A length is believed only as far as bytes have come.
func TestLengths(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		for _, length := range []uint32{16<<20 + 1, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
			r := newRig(t)
			client, backend := r.login(d)
			before := allocated()
			b := rawEnvelope(d, 9, byte(primitive.OpCodePrepare), nil)
			binary.BigEndian.PutUint32(b[5:], length)
			if client.segmented {
				b = client.segment(t, b, false)
			}
			client.write(b)
			assert.Contains(t, client.failure(9).GetErrorMessage(), "too big")
			assert.Less(t, allocated()-before, uint64(1<<20))
			client.ended()
			backend.ended()
		}
	})
}

// What a client is allowed to announce costs nothing until it comes.
func TestLengthWithoutBytes(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		var clients, nodes []*peer
		for range 20 {
			client, backend := r.login(d)
			clients, nodes = append(clients, client), append(nodes, backend)
		}
		before := heapInUse()
		for _, client := range clients {
			b := append(rawEnvelope(d, 9, byte(primitive.OpCodePrepare), nil), make([]byte, 1000)...)
			binary.BigEndian.PutUint32(b[5:], 16<<20)
			if client.segmented {
				b = client.segment(t, b, false)
			}
			client.write(b)
			client.write(b[:1])
		}
		assert.Less(t, int64(heapInUse())-int64(before), int64(20*256<<10), "of the 320 MiB that they announce")
		for i, client := range clients {
			_ = client.Close()
			nodes[i].ended()
		}
	})
}

// Nobody knows the client before its login: it gets little.
func TestLargeRequestBeforeLogin(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		for _, opcode := range []primitive.OpCode{primitive.OpCodeStartup, primitive.OpCodeOptions, primitive.OpCodeAuthResponse, primitive.OpCodeQuery} {
			r := newRig(t)
			client := r.dial(dialect{version: d.version})
			client.write(rawEnvelope(d, 9, byte(opcode), noise(maxBeforeLogin+1)))
			assert.Contains(t, client.failure(9).GetErrorMessage(), "too big")
			client.ended()
			r.notDialed()
		}
	})
}

// Frames that break the framing end the connection, and Cassandra sees nothing of them.
func TestBadSegments(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		good := d.segment(t, d.envelope(t, 1, query("SELECT a FROM b.c")), true)
		flip := func(at int) []byte {
			b := bytes.Clone(good)
			b[(at+len(b))%len(b)] ^= 4
			return b
		}
		e := d.envelope(t, 1, execute(noise(16), noise(100)))
		cases := map[string][]byte{
			"header checksum":                  flip(wire.SegmentCodec{Compression: d.compression}.HeaderSize() - 1),
			"length":                           flip(0),
			"payload":                          flip(20),
			"payload checksum":                 flip(-1),
			"no segment":                       append(d.envelope(t, 1, query("SELECT a FROM b.c")), 0, 0, 0),
			"envelope longer than its segment": d.segment(t, e[:50], true),
			"ends inside a header":             d.segment(t, append(bytes.Clone(e), 5, 0, 0), true),
			"segment longer than its envelope": d.segment(t, append(bytes.Clone(e), e...), false),
			"last part too long":               append(d.segment(t, e[:40], false), d.segment(t, append(bytes.Clone(e[40:]), e...), false)...),
			"self-contained inside":            append(d.segment(t, e[:40], false), d.segment(t, e, true)...),
			"self-contained inside a header":   append(d.segment(t, e[:4], false), d.segment(t, e, true)...),
		}
		for name, b := range cases {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				client, backend := r.login(d)
				r.server.prepared.add(preparedID(noise(16)), &preparedStatement{}, nil) // so that e is forwarded as it comes
				client.write(b)
				rest, err := io.ReadAll(client.Conn)
				require.NoError(t, err)
				assert.Empty(t, rest)
				got, err := io.ReadAll(backend.Conn)
				require.NoError(t, err)
				assert.Less(t, len(got), 60, "no more than a first part")
				_ = client.Close()
				assert.Equal(t, "info", r.end()["level"])
			})
		}
	})
}

// Empty segments are allowed and mean nothing.
func TestEmptySegments(t *testing.T) {
	d := dialect{v5, ""} // the library cannot make one with compression
	r := newRig(t)
	client, backend := r.login(d)
	for _, selfContained := range []bool{true, false} {
		for range 100 {
			client.write(client.segment(t, nil, selfContained))
		}
		survives(client, backend)
	}
}

// truncations are the beginnings of a body, each in an envelope that claims no more.
func truncations(t *testing.T, d dialect, m message.Message, each func(n int, envelope []byte)) {
	t.Helper()
	whole := dialect{version: d.version}.envelope(t, 9, m)
	for n := range len(whole) - wire.HeaderSize {
		b := bytes.Clone(whole[:wire.HeaderSize+n])
		binary.BigEndian.PutUint32(b[5:], uint32(n))
		each(n, b)
	}
}

// A body that ends anywhere is answered by the proxy, or by Cassandra; with a value or id of ours in it never by neither.
func TestTruncatedBodies(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := withCritical(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "INSERT INTO b.c (a) VALUES (?)")
		value := primitive.NewValue([]byte("value"))
		options := &message.QueryOptions{PositionalValues: []*primitive.Value{value}, PageSize: 5, PagingState: []byte{1}, DefaultTimestamp: new(int64)}
		for _, m := range []message.Message{
			&message.Query{Query: "SELECT * FROM system.local", Options: options},
			&message.Query{Query: "UPDATE bank.accounts USING LOCK ? SET a = 1 WHERE id = ?", Options: options},
			&message.Execute{QueryId: id, ResultMetadataId: []byte("result metadata!"), Options: options},
			&message.Batch{Children: []*message.BatchChild{{Id: id, Values: []*primitive.Value{value}}, {Query: "INSERT INTO b.c (a) VALUES (1)"}}},
			&message.Prepare{Query: "SELECT rpc_address FROM system.local"},
			&message.Register{EventTypes: []primitive.EventType{primitive.EventTypeSchemaChange}},
		} {
			truncations(t, d, m, func(n int, envelope []byte) {
				client.write(client.framed(envelope))
				// Whatever was forwarded comes before this.
				client.send(10, &message.Options{})
				for f := nextHeader(backend); f.Stream != 10; f = nextHeader(backend) {
					backend.send(9, &message.ProtocolError{ErrorMessage: "short"})
				}
				backend.send(10, supportedAnswer())
				seen := map[int16]int{}
				for range 2 {
					seen[client.next().Header.StreamId]++
				}
				require.Equal(t, map[int16]int{9: 1, 10: 1}, seen, "%v cut at %d", m, n)
			})
		}
		survives(client, backend)
	})
}

// nextHeader reads an envelope without a look at its body.
func nextHeader(p *peer) wire.Header {
	p.t.Helper()
	if p.segmented {
		for !p.decodable() {
			s, err := p.segments().DecodeSegment(p.Conn)
			require.NoError(p.t, err)
			p.payload.Write(s.Payload.UncompressedData)
		}
		h := wire.ReadHeader(p.payload.Next(wire.HeaderSize))
		p.payload.Next(int(h.Length))
		return h
	}
	h := wire.ReadHeader(p.exactly(wire.HeaderSize))
	p.exactly(int(h.Length))
	return h
}

// A custom payload that does not fit its body is refused.
func TestMalformedCustomPayload(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, body := range [][]byte{
			nil, {0}, {0, 1}, {0xff, 0xff}, {0, 1, 0, 1}, {0, 1, 0, 1, 'k'}, {0, 1, 0, 1, 'k', 0x7f, 0xff, 0xff, 0xff}, {0, 1, 0, 1, 'k', 0, 0, 0, 9, 1},
		} {
			for _, opcode := range []primitive.OpCode{primitive.OpCodeQuery, primitive.OpCodeExecute, primitive.OpCodeBatch, primitive.OpCodePrepare, primitive.OpCodeRegister} {
				b := rawEnvelope(d, 9, byte(opcode), body)
				b[1] |= byte(primitive.HeaderFlagCustomPayload)
				client.write(client.framed(b))
				assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(9).GetErrorCode(), "%v %x", opcode, body)
			}
		}
		survives(client, backend)
	})
}

// Bodies that do not decompress, or would become too large.
func TestGarbageThatClaimsToBeCompressed(t *testing.T) {
	for _, algorithm := range []primitive.Compression{primitive.CompressionLz4, primitive.CompressionSnappy} {
		d := dialect{v4, algorithm}
		r := newRig(t)
		client, backend := r.login(d)
		for _, body := range [][]byte{nil, {1}, {0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff, 0x0f, 1}, noise(100), append([]byte{0, 0xff, 0xff, 0xff}, noise(1000)...)} {
			b := rawEnvelope(d, 9, byte(primitive.OpCodeQuery), body)
			b[1] |= byte(primitive.HeaderFlagCompressed)
			before := allocated()
			client.write(b)
			assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(9).GetErrorCode(), "%x", body)
			assert.Less(t, allocated()-before, uint64(2<<20))
		}
		survives(client, backend)
	}
}

// Compression that nobody has asked for cannot hide a statement.
func TestCompressedBodyWithoutCompression(t *testing.T) {
	r := withCritical(t)
	client, backend := r.login(dialect{version: v4})
	b := dialect{version: v4}.envelope(t, 9, query("DELETE FROM bank.accounts WHERE id = 'x'"))
	b[1] |= byte(primitive.HeaderFlagCompressed)
	client.write(b)
	client.failure(9)
	survives(client, backend)
}

// A thousand connections that say nothing end by themselves, cost Cassandra nothing, and take little.
func TestConnectionsThatSayNothing(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HandshakeTimeout = 2 * time.Second })
	before := heapInUse()
	var clients []net.Conn
	for range 1000 {
		conn, err := net.Dial("tcp", r.address)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		clients = append(clients, conn)
	}
	relayed1(r)
	assert.Less(t, int64(heapInUse())-int64(before), int64(1000*8<<10))
	for _, conn := range clients {
		_, err := conn.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)
		_ = conn.Close()
	}
	r.notDialed()
}

// relayed1 tells that another client is served meanwhile.
func relayed1(r *rig) {
	r.t.Helper()
	client, backend := r.login(dialect{version: v4})
	survives(client, backend)
	_ = client.Close()
	backend.ended()
}

// A request in Cassandra's mouth ends the connection.
func TestRequestFromCassandra(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		client.send(1, query("SELECT a FROM b.c"))
		backend.answer(1)
		backend.write(backend.framed(rawEnvelope(d, 1, byte(primitive.OpCodeQuery), nil)))
		backendLost(client, 1)
	})
}

// Answers that nobody has asked for change nothing.
func TestUnaskedAnswers(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, stream := range []int16{-32768, -2, 0, 5, 32767} {
			backend.send(stream, &message.SetKeyspaceResult{Keyspace: "bank"})
			assert.Equal(t, "bank", client.answer(stream).(*message.SetKeyspaceResult).Keyspace, fmt.Sprint(stream))
		}
		survives(client, backend)
	})
}
