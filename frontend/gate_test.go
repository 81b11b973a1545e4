package frontend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/compression/lz4"
	"github.com/datastax/go-cassandra-native-protocol/compression/snappy"
	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/musiccore"
)

// permissiveNode is a Cassandra that carries out whatever it is sent, and notes what was sent without a stamp of the core.
type permissiveNode struct {
	mu     sync.Mutex
	plain  []string // writes without a stamp
	fenced []string
	texts  map[string]string // of what was prepared, by id
}

// fenceStamp is the stamp that the core of these tests gives.
const fenceStamp = 1000

// noRows is the answer to a read of bank.accounts.
var noRows = &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 2, Columns: []*message.ColumnMetadata{
	{Keyspace: "bank", Table: "accounts", Name: "n", Type: datatype.Int}, {Keyspace: "bank", Table: "accounts", Name: "id", Type: datatype.Varchar},
}}}

// serve answers the proxy's requests on one connection until it ends.
func (n *permissiveNode) serve(p *peer) {
	for {
		f, err := nextRequest(p)
		if err != nil {
			return
		}
		if _, err := p.Write(p.framed(p.envelope(p.t, f.Header.StreamId, n.answer(f.Body.Message)))); err != nil {
			return
		}
	}
}

// nextRequest reads one request. The library does not know the keyspace of protocols 3 and 4, and would leave it for the next one.
func nextRequest(p *peer) (*frame.Frame, error) {
	if p.segmented {
		return p.tryNext()
	}
	codec := p.codec().(frame.RawCodec)
	raw, err := codec.DecodeRawFrame(p.Conn)
	if err != nil {
		return nil, err
	}
	return codec.ConvertFromRawFrame(raw)
}

func (n *permissiveNode) answer(m message.Message) message.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch m := m.(type) {
	case *message.Prepare:
		id := idOf(m.Query)
		n.texts[string(id)] = m.Query
		return preparedAs(id)
	case *message.Query:
		if ks, ok := strings.CutPrefix(m.Query, "USE "); ok {
			return &message.SetKeyspaceResult{Keyspace: ks}
		}
		return n.note(m.Query, m.Options.DefaultTimestamp)
	case *message.Execute:
		return n.note(n.texts[string(m.QueryId)], m.Options.DefaultTimestamp)
	case *message.Batch:
		var all []string
		for _, child := range m.Children {
			all = append(all, child.Query+n.texts[string(child.Id)])
		}
		return n.note("BATCH "+strings.Join(all, "; "), batchStamp(all, m.DefaultTimestamp))
	}
	return &message.Invalid{ErrorMessage: fmt.Sprintf("what is %v?", m)}
}

// batchStamp is the stamp of the core that a batch has: that of the message, or of each of its statements on the critical table.
func batchStamp(statements []string, message *int64) *int64 {
	stamp, critical := int64(fenceStamp), 0
	for _, s := range statements {
		if !strings.Contains(strings.ToLower(s), "accounts") {
			continue
		}
		if critical++; !strings.Contains(s, fmt.Sprint(" USING TIMESTAMP ", stamp, " ")) {
			return message
		}
	}
	if critical == 0 {
		return message
	}
	return &stamp
}

func (n *permissiveNode) note(text string, stamp *int64) message.Message {
	switch {
	case strings.HasPrefix(text, "SELECT"):
		return noRows
	case stamp != nil && *stamp == fenceStamp:
		n.fenced = append(n.fenced, text)
	default:
		n.plain = append(n.plain, text)
	}
	return &message.VoidResult{}
}

// seen is what came since it was asked last.
func (n *permissiveNode) seen() (plain, fenced []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	plain, fenced = n.plain, n.fenced
	n.plain, n.fenced = nil, nil
	return plain, fenced
}

// uncountedLocks grant every LOCK and count nothing.
type uncountedLocks struct{ Locks }

func (uncountedLocks) Lock(_ musiccore.Key, _ musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 9, State: musiccore.StateHeld}}, nil
}

func (uncountedLocks) Unlock(_ musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateReleased}}, true
}

func (uncountedLocks) Begin(_ musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	if ref != 9 {
		return musiccore.Answer{Err: musiccore.ErrNotHeld}, true
	}
	return musiccore.Answer{Ticket: musiccore.Ticket{Ref: ref, Kind: kind, Stamp: fenceStamp}}, true
}

func (uncountedLocks) End(musiccore.Ticket, musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	return musiccore.VerdictTell, nil
}

// world is what a table may be; ordinary is not critical.
type world int

const ordinary world = -1

func (w world) String() string { return [...]string{"ordinary", "reject", "allow", "auto"}[w+1] }

// is makes bank.accounts that.
func (w world) is(r *rig) {
	if w == ordinary {
		r.server.Tables.Set("bank", "accounts", nil)
		return
	}
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: catalog.Policy(w)},
		Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "n": {Name: "n", Type: "int"}},
	})
}

// gateText is a write; $T stands for its table.
type gateText struct {
	text  string
	alone bool // it stands in no BATCH message
}

// gateTexts are plain writes of all kinds.
var gateTexts = []gateText{
	{text: "INSERT INTO $T (id, n) VALUES ('x', 1)"},
	{text: "INSERT INTO $T (id, n) VALUES ('x', 1) IF NOT EXISTS"},
	{text: `INSERT INTO $T JSON '{"id": "x"}'`},
	{text: "UPDATE $T SET n = 1 WHERE id = 'x'"},
	{text: "UPDATE $T USING TTL 60 SET n = 1 WHERE id = 'x' IF n = 2"},
	{text: "UPDATE $T USING TIMESTAMP 5 SET n = 1 WHERE id = 'x'"},
	{text: "DELETE FROM $T WHERE id = 'x'"},
	{text: "DELETE n FROM $T WHERE id IN ('x', 'y')"},
	{text: "BEGIN BATCH DELETE FROM $T WHERE id = 'x'; UPDATE $T SET n = 1 WHERE id = 'x'; APPLY BATCH", alone: true},
	{text: "BEGIN UNLOGGED BATCH UPDATE $T SET n = 1 WHERE id = 'x'; INSERT INTO other.plain (id) VALUES ('x') APPLY BATCH", alone: true},
	{text: "BEGIN BATCH INSERT INTO other.plain (id) VALUES ('x') UPDATE $T SET n = 1 WHERE id = 'x' APPLY BATCH", alone: true},
	{text: "BEGIN BATCH UPDATE $T SET n = 1 WHERE id = 'x'; INSERT INTO other.allowed (id) VALUES ('x'); APPLY BATCH", alone: true},
	{text: "TRUNCATE $T", alone: true},
}

// gateNames are ways to name bank.accounts.
var gateNames = []struct {
	table, used, own string
}{
	{table: "bank.accounts"}, {table: `"bank" . Accounts`, used: "other"}, {table: "accounts", used: "bank"}, {table: "accounts", used: "other", own: "bank"},
}

// gateTry is one client's try to write.
type gateTry struct {
	*testing.T
	client *peer
	d      dialect
	own    string // keyspace of the request
	text   string
	id     []byte // of the text, prepared
	dress  dress
}

// send sends a request in the keyspace of its own, and returns the answer.
func (g *gateTry) send(m message.Message) message.Message {
	g.Helper()
	raw := ownKeyspace(g.T, g.d, m, g.own, g.dress.change)
	if g.dress == traced {
		raw[1] |= byte(primitive.HeaderFlagTracing)
	}
	_, err := g.client.Write(g.client.framed(raw))
	require.NoError(g, err)
	return g.client.answer(1)
}

// prepare prepares the text, and returns what it was answered where it may not be; below protocol 5 there is no way to name its keyspace but USE.
func (g *gateTry) prepare() (refused message.Message) {
	g.Helper()
	answer := relayedTo(g.client, &message.Prepare{Query: g.text, Keyspace: g.own})
	p, ok := answer.(*message.PreparedResult)
	if !ok {
		return answer
	}
	if g.id != nil {
		assert.Equal(g, g.id, p.PreparedQueryId, "no driver takes another id")
	}
	g.id = p.PreparedQueryId
	return nil
}

func relayedTo(client *peer, m message.Message) message.Message {
	client.t.Helper()
	client.send(1, m)
	return client.answer(1)
}

// ways are how a text gets executed.
func (g *gateTry) ways() map[string]message.Message {
	ways := map[string]message.Message{
		"QUERY": query(g.text), "BATCH of text": &message.Batch{Children: []*message.BatchChild{{Query: g.text}}},
	}
	if g.id != nil {
		x := execute(g.id, nil)
		x.Options.PositionalValues = nil
		ways["EXECUTE"], ways["BATCH of id"] = x, &message.Batch{Children: []*message.BatchChild{{Id: g.id}}}
	}
	return ways
}

// ownKeyspace encodes a request with the keyspace flag, which Cassandra obeys in every version; the library knows it of protocol 5 only.
func ownKeyspace(t *testing.T, d dialect, m message.Message, keyspace string, change ...func(*frame.Frame)) []byte {
	t.Helper()
	plain := dialect{version: d.version}
	if keyspace == "" {
		return d.envelope(t, 1, m, change...)
	}
	if d.version >= v5 {
		switch m := m.(type) {
		case *message.Query:
			m.Options.Keyspace = keyspace
		case *message.Execute:
			m.Options.Keyspace = keyspace
		case *message.Batch:
			m.Keyspace = keyspace
		}
		return d.envelope(t, 1, m, change...)
	}
	raw := plain.envelope(t, 1, m, change...) // consistency and flags stand last: there are no values
	raw[len(raw)-1] |= byte(primitive.QueryFlagWithKeyspace)
	raw = binary.BigEndian.AppendUint16(raw, uint16(len(keyspace)))
	return d.dressed(t, append(raw, keyspace...))
}

// dressed is an envelope of protocol 3 or 4 with its length right and its body compressed, where the dialect is.
func (d dialect) dressed(t *testing.T, raw []byte) []byte {
	t.Helper()
	body := raw[wire.HeaderSize:]
	var b bytes.Buffer
	switch d.compression {
	case primitive.CompressionLz4:
		require.NoError(t, lz4.Compressor{}.CompressWithLength(bytes.NewReader(body), &b))
		body = b.Bytes()
	case primitive.CompressionSnappy:
		require.NoError(t, snappy.Compressor{}.CompressWithLength(bytes.NewReader(body), &b))
		body = b.Bytes()
	}
	h := wire.ReadHeader(raw)
	h.Length = uint32(len(body))
	if d.compression != "" {
		h.Flags |= primitive.HeaderFlagCompressed
	}
	return append(h.AppendTo(make([]byte, 0, len(raw))), body...)
}

// judge looks at what came of a try, table being what it was then.
func (g *gateTry) judge(node *permissiveNode, s gateText, table world, way string, answer message.Message) {
	g.Helper()
	plain, fenced := node.seen()
	refused, failed := answer.(message.Error)
	open := table == ordinary || table == world(catalog.Allow)
	switch {
	case open && (len(plain) != 1 || failed):
		assert.Fail(g, "not let through", "%s: %v", way, answer)
	case !open && len(plain) > 0:
		assert.Fail(g, "let through", way)
	case !open && table == world(catalog.Reject) && len(fenced) > 0:
		assert.Fail(g, "a section", way)
	case !open && len(fenced) == 0 && !failed && !strings.Contains(s.text, " IF "):
		assert.Fail(g, "nothing was written", "%s: %v", way, answer)
	case failed && !strings.HasPrefix(refused.GetErrorMessage(), "MUSIC_"):
		assert.Fail(g, "refused by somebody else", "%s: %v", way, refused)
	}
}

// Whether a table lets a write through is asked when it is executed, whatever the table was when it was prepared and by whom, in every
// version, with every compression and flag, and however the table is named. What is let through arrives; nothing else does without a stamp.
func TestTheGate(t *testing.T) {
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Locks = uncountedLocks{} })
			node := &permissiveNode{texts: map[string]string{}}
			r.server.Tables.Set("other", "allowed", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: catalog.Allow}})
			client, backend := r.login(d)
			go node.serve(backend)
			other, second := r.login(d)
			go node.serve(second)
			for before := ordinary; before <= world(catalog.Auto); before++ {
				for after := ordinary; after <= world(catalog.Auto); after++ {
					gateRound(t, r, node, client, other, before, after)
				}
			}
		})
	}
}

// dress is what the header of a frame may say beside, and which changes nothing of what it means.
type dress int

const (
	naked dress = iota
	traced
	laden // with a custom payload
	dresses
)

// change prepares a frame. The library counts the id of a trace where a request has none: that flag is set afterwards.
func (x dress) change(f *frame.Frame) {
	if x == laden && f.Header.Version >= v4 {
		f.SetCustomPayload(map[string][]byte{"k": []byte("v")})
	}
}

// gateRound tries all statements in all ways, prepared in one world and executed in another.
func gateRound(t *testing.T, r *rig, node *permissiveNode, client, other *peer, before, after world) {
	t.Helper()
	for i, n := range gateNames {
		for _, c := range []*peer{client, other} {
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			if n.used != "" {
				relayedTo(c, query("USE "+n.used))
			}
		}
		for j, s := range gateTexts {
			k := i + j + int(before) + int(after) + 2 // of the rest, another combination each time
			preparer := []*peer{client, other}[k/2%2]
			g := &gateTry{T: t, client: preparer, d: client.dialect, own: n.own, text: strings.ReplaceAll(s.text, "$T", n.table), dress: dress(k) % dresses}
			before.is(r)
			if n.own == "" || g.d.version >= v5 {
				g.prepare()
			}
			after.is(r)
			g.client = client
			for way, m := range g.ways() {
				if !s.alone || !strings.HasPrefix(way, "BATCH") {
					g.judge(node, s, after, fmt.Sprintf("%v, then %v: %s of %s in %q", before, after, way, g.text, n.own), g.insist(m))
				}
			}
		}
	}
}

// insist sends a request; where its statement is not prepared any more, it is prepared again first, as drivers do.
func (g *gateTry) insist(m message.Message) message.Message {
	g.Helper()
	answer := g.send(m)
	u, ok := answer.(*message.Unprepared)
	if !ok || g.id == nil {
		return answer
	}
	require.Equal(g, g.id, u.Id)
	if refused := g.prepare(); refused != nil {
		return refused
	}
	return g.send(m)
}
