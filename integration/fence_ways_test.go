package integration

import (
	"crypto/md5"
	"encoding/binary"
	"math"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/require"
)

// attempt is one attempt to write what only the holder of a lock may write.
type attempt struct {
	name  string
	want  string // the errors that are right, see matches
	least primitive.ProtocolVersion
	try   func(b *attacker) *failure // nil = the attempt succeeded
}

// ask sends a message and returns its answer, decoded.
func (b *attacker) ask(m message.Message) (message.Message, *failure) {
	b.fixture.t.Helper()
	require.NoError(b.fixture.t, b.wire.send(m, b.adorn))
	e, err := b.wire.receive()
	require.NoError(b.fixture.t, err, "the connection is gone after %v", m)
	f, err := b.wire.decode(e)
	require.NoError(b.fixture.t, err, "%v", e)
	if refused, ok := f.Body.Message.(message.Error); ok {
		return nil, &failure{int(refused.GetErrorCode()), refused.GetErrorMessage()}
	}
	return f.Body.Message, nil
}

const (
	withTracing uint8 = 1 << iota
	withPayload
)

// adorn sets the fields of the frame itself.
func (b *attacker) adorn(f *frame.Frame) {
	if b.flag&withTracing != 0 {
		f.RequestTracingId(true)
	}
	if b.flag&withPayload != 0 {
		f.SetCustomPayload(map[string][]byte{"music.lockref": []byte("1")})
	}
}

// options returns the options of QUERY and EXECUTE.
func (b *attacker) options(values []*primitive.Value) *message.QueryOptions {
	return &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PositionalValues: values, Keyspace: b.own}
}

// query sends a text.
func (b *attacker) query(text string, values ...*primitive.Value) *failure {
	b.fixture.t.Helper()
	_, f := b.ask(&message.Query{Query: b.fixture.expand(text), Options: b.options(values)})
	return f
}

// execute prepares a text and executes it.
func (b *attacker) execute(text string, values ...*primitive.Value) *failure {
	b.fixture.t.Helper()
	id, metadata, f := b.prepare(b.fixture.expand(text), b.own)
	if f != nil {
		return f
	}
	return b.executeID(id, metadata, values...)
}

// executeID executes a statement that some connection has prepared.
func (b *attacker) executeID(id, metadata []byte, values ...*primitive.Value) *failure {
	b.fixture.t.Helper()
	if len(metadata) == 0 {
		metadata = id
	}
	o := b.options(values)
	o.Keyspace = ""
	_, f := b.ask(&message.Execute{QueryId: id, ResultMetadataId: metadata, Options: o})
	return f
}

// batch sends a BATCH message of texts and ids.
func (b *attacker) batch(kind primitive.BatchType, children ...any) *failure {
	b.fixture.t.Helper()
	m := &message.Batch{Type: kind, Consistency: primitive.ConsistencyLevelOne, Keyspace: b.own}
	for _, child := range children {
		switch child := child.(type) {
		case string:
			m.Children = append(m.Children, &message.BatchChild{Query: b.fixture.expand(child)})
		case []byte:
			m.Children = append(m.Children, &message.BatchChild{Id: child})
		case *message.BatchChild:
			m.Children = append(m.Children, child)
		}
	}
	_, f := b.ask(m)
	return f
}

// stamped sends a text with a timestamp in the frame, as drivers do.
func (b *attacker) stamped(text string, stamp int64) *failure {
	b.fixture.t.Helper()
	o := b.options(nil)
	o.DefaultTimestamp = &stamp
	_, f := b.ask(&message.Query{Query: b.fixture.expand(text), Options: o})
	return f
}

// adorned sends a text with flags in the frame.
func (b *attacker) adorned(text string, flag uint8) *failure {
	b.fixture.t.Helper()
	b.flag = flag
	defer func() { b.flag = 0 }()
	return b.query(text)
}

// used sends a text in a keyspace chosen by USE, or by v5's field, and restores the keyspace.
func (b *attacker) used(keyspace, text string) *failure {
	b.fixture.t.Helper()
	b.mustUse(keyspace)
	defer b.mustUse("system")
	return b.query(text)
}

// inKeyspace sends a text in some way, in the keyspace of the request.
func (b *attacker) inKeyspace(keyspace string, way func() *failure) *failure {
	b.own = keyspace
	defer func() { b.own = "" }()
	return way()
}

// long returns a value of eight bytes.
func long(n int64) *primitive.Value {
	return primitive.NewValue(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// short returns a value of four bytes.
func short(n int32) *primitive.Value {
	return primitive.NewValue(binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// double returns a number as drivers encode it that do not know its type.
func double(n float64) *primitive.Value { return long(int64(math.Float64bits(n))) }

// text returns a value of any bytes.
func text(s string) *primitive.Value { return primitive.NewValue([]byte(s)) }

// md5ID returns the id that Cassandra gives a statement that names its keyspace.
func md5ID(cql string) []byte {
	id := md5.Sum([]byte(cql))
	return id[:]
}
