package frontend

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// extras is what stands beside a message: tracing is asked for with a request and told as an id with its answer.
type extras struct {
	tracing bool
	warning string // of the node
	payload map[string][]byte
}

// allBeside are all combinations.
func allBeside() (all []extras) {
	for i := range 8 {
		d := extras{tracing: i&1 != 0}
		if i&2 != 0 {
			d.warning = "careful"
		}
		if i&4 != 0 {
			d.payload = map[string][]byte{"tenant": []byte("blue")}
		}
		all = append(all, d)
	}
	return all
}

// echoNode is a node that answers each request with what came beside it, in the order that Cassandra writes (5.0: Message.encode).
type echoNode struct {
	*peer
	mu      sync.Mutex
	warning string
	asked   []*frame.Frame
}

// serve answers until the connection ends.
func (n *echoNode) serve() {
	for {
		f, err := n.tryNext()
		if err != nil {
			return
		}
		n.mu.Lock()
		n.asked = append(n.asked, f)
		d := extras{f.Header.Flags.Contains(primitive.HeaderFlagTracing), n.warning, f.Body.CustomPayload}
		n.mu.Unlock()
		if _, err := n.Write(n.framed(d.around(n.t, n.envelope(n.t, f.Header.StreamId, echo(f.Body.Message))))); err != nil {
			return
		}
	}
}

// around puts it into an answer.
func (d extras) around(t testing.TB, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	h := wire.ReadHeader(raw)
	if d.tracing {
		h.Flags |= primitive.HeaderFlagTracing
		b.Write(bytes.Repeat([]byte{7}, 16))
	}
	if d.warning != "" {
		h.Flags |= primitive.HeaderFlagWarning
		require.NoError(t, primitive.WriteStringList([]string{d.warning}, &b))
	}
	if d.payload != nil {
		h.Flags |= primitive.HeaderFlagCustomPayload
		require.NoError(t, primitive.WriteBytesMap(d.payload, &b))
	}
	h.Length += uint32(b.Len())
	return slices.Concat(h.AppendTo(nil), b.Bytes(), raw[wire.HeaderSize:])
}

// echo is an answer that fits.
func echo(m message.Message) message.Message {
	switch m := m.(type) {
	case *message.Prepare:
		return preparedAs(idOf(m.Query))
	case *message.Query:
		switch {
		case strings.Contains(m.Query, "system.local"):
			return systemLocal("rpc_address")
		case strings.HasPrefix(m.Query, `SELECT "balance"`), strings.HasPrefix(m.Query, `SELECT "id"`):
			return balances(bigint(10))
		case strings.HasPrefix(m.Query, "SELECT"):
			return page(nil, "x")
		}
	case *message.Execute:
		if bytes.Equal(m.QueryId, idOf("SELECT a FROM bank.accounts WHERE id = 'x' ")) {
			return page(nil, "x")
		}
	}
	return &message.VoidResult{}
}

// undress reads the next answer as it is on the wire, and what stands beside it.
func (p *peer) undress() (m message.Message, d extras, warnings int) {
	p.t.Helper()
	var raw *frame.RawFrame
	var err error
	if p.segmented {
		for !p.decodable() {
			s, err := p.segments().DecodeSegment(p.Conn)
			require.NoError(p.t, err)
			p.payload.Write(s.Payload.UncompressedData)
		}
		raw, err = frame.NewRawCodec().DecodeRawFrame(&p.payload)
	} else {
		raw, err = frame.NewRawCodec().DecodeRawFrame(p.Conn)
	}
	require.NoError(p.t, err)
	body := bytes.NewReader(raw.Body)
	if raw.Header.Flags.Contains(primitive.HeaderFlagTracing) {
		id := make([]byte, 16)
		_, _ = body.Read(id)
		d.tracing = assert.Equal(p.t, bytes.Repeat([]byte{7}, 16), id)
	}
	if raw.Header.Flags.Contains(primitive.HeaderFlagWarning) {
		all, err := primitive.ReadStringList(body)
		require.NoError(p.t, err)
		d.warning, warnings = all[0], len(all)
	}
	if raw.Header.Flags.Contains(primitive.HeaderFlagCustomPayload) {
		d.payload, err = primitive.ReadBytesMap(body)
		require.NoError(p.t, err)
	}
	raw.Header.Flags &^= wire.PreambleFlags
	raw.Body = raw.Body[len(raw.Body)-body.Len():]
	raw.Header.BodyLength = int32(len(raw.Body))
	f, err := frame.NewRawCodec().ConvertFromRawFrame(raw)
	require.NoError(p.t, err)
	return f.Body.Message, d, warnings
}

// alwaysGrantingLocks grant whatever is asked, and do not note it.
type alwaysGrantingLocks struct{ *grantingLocks }

func (alwaysGrantingLocks) Lock(_ musiccore.Key, _ musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 9, State: musiccore.StateHeld}}, nil
}

func (alwaysGrantingLocks) Unlock(_ musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateReleased}}, true
}

// rewrittenKinds are requests that do not go to Cassandra as the bytes received, by what they are; beside them one that does.
func rewrittenKinds(prepare func(text string) (id []byte)) map[string]message.Message {
	const (
		put, putIf = "UPDATE bank.accounts USING LOCK 9 SET n = 1 WHERE id = 'x'", "UPDATE bank.accounts USING LOCK 9 SET n = 1 WHERE id = 'x' IF balance = 10"
		auto       = "UPDATE bank.auto SET n = 1 WHERE id = 'x'"
	)
	kinds := map[string]message.Message{
		"forwarded":             query("SELECT a FROM b.c"),
		"PREPARE, under a lock": &message.Prepare{Query: put},
		"PREPARE, FOR UPDATE":   &message.Prepare{Query: "SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE"},
		"batch message":         &message.Batch{Children: []*message.BatchChild{{Query: put}, {Query: put}}},
		"batch message, IF":     &message.Batch{Children: []*message.BatchChild{{Query: putIf}}},
		"batch message, auto":   &message.Batch{Children: []*message.BatchChild{{Query: auto}}},
		"batch message, prepared": &message.Batch{Children: []*message.BatchChild{
			{Id: prepare("UPDATE bank.accounts USING LOCK ? SET n = 1 WHERE id = 'x'"), Values: []*primitive.Value{primitive.NewValue(bigint(9))}},
		}},
	}
	for name, text := range map[string]string{
		"local": "SELECT rpc_address FROM system.local", "peers": "SELECT peer FROM system.peers", "peers_v2": "SELECT peer FROM system.peers_v2",
		"write": put, "read": "SELECT a FROM bank.accounts WHERE id = 'x' USING LOCK 9", "FOR UPDATE": "SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE",
		"batch": "BEGIN BATCH USING LOCK 9 UPDATE bank.accounts SET n = 1 WHERE id = 'x' APPLY BATCH", "IF": putIf,
		"IF that does not hold": "UPDATE bank.accounts USING LOCK 9 SET n = 1 WHERE id = 'x' IF balance = 11",
		"auto":                  auto, "auto, IF": auto + " IF balance = 10", "auto, batch": "BEGIN BATCH " + auto + " APPLY BATCH",
	} {
		kinds["QUERY, "+name] = query(text)
		kinds["EXECUTE, "+name] = &message.Execute{QueryId: prepare(text), ResultMetadataId: []byte("result metadata!"), Options: &message.QueryOptions{}}
	}
	return kinds
}

// What comes beside a request reaches Cassandra with whatever is asked there in its place, and what comes beside the answer reaches the
// client.
func TestWhatStandsBesideAMessageGoesAlong(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.Locks = alwaysGrantingLocks{newGrantingLocks()} })
		for name, policy := range map[string]catalog.Policy{"accounts": catalog.Reject, "auto": catalog.Auto} {
			r.server.Tables.Set("bank", name, &catalog.Critical{
				Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: policy},
				Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "balance": {Name: "balance", Type: "bigint"}, "n": {Name: "n", Type: "int"}},
			})
		}
		client, backend := r.login(d)
		node := &echoNode{peer: backend}
		var serving sync.WaitGroup
		serving.Go(node.serve)
		defer func() {
			_ = client.Close()
			serving.Wait()
		}()
		kinds := rewrittenKinds(func(text string) []byte {
			client.send(1, &message.Prepare{Query: text})
			return client.answer(1).(*message.PreparedResult).PreparedQueryId
		})
		for name, m := range kinds {
			for _, want := range allBeside() {
				node.mu.Lock()
				node.warning, node.asked = want.warning, nil
				node.mu.Unlock()
				request := client.envelope(t, 1, m, func(f *frame.Frame) { f.SetCustomPayload(want.payload) })
				if want.tracing {
					request[1] |= byte(primitive.HeaderFlagTracing) // the library would count an id that requests do not have
				}
				client.write(client.framed(request))
				answer, got, _ := client.undress()
				_, failed := answer.(message.Error)
				require.False(t, failed, "%s: %v", name, answer)
				assert.Equal(t, want, got, "%s: what the client gets", name)
				node.mu.Lock()
				require.NotEmpty(t, node.asked, name)
				for _, f := range node.asked {
					assert.Equal(t, want.payload, f.Body.CustomPayload, "%s: %v", name, f.Body.Message)
					assert.Equal(t, want.tracing, f.Header.Flags.Contains(primitive.HeaderFlagTracing), "%s: %v", name, f.Body.Message)
				}
				node.mu.Unlock()
			}
		}
	})
}
