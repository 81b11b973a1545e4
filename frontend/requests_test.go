package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/traffic"
	"music/frontend/wire"
)

func supportedAnswer() *message.Supported {
	return &message.Supported{Options: map[string][]string{"CQL_VERSION": {"3.4.7"}, "COMPRESSION": {"lz4"}}}
}

// OPTIONS is answered before STARTUP, after it, and while another request waits.
func TestOptionsAtAnyTime(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client := r.dial(d)
		client.compression = ""
		client.send(3, &message.Options{})
		backend := r.accept(dialect{version: d.version})
		backend.answer(3)
		backend.send(3, supportedAnswer())
		client.answer(3)

		client.compression, backend.compression = d.compression, d.compression
		client.send(0, startup(d))
		backend.answer(0)
		backend.write(dialect{version: d.version}.envelope(t, 0, &message.Ready{}))
		client.answer(0)
		client.segmented, backend.segmented = d.version == v5, d.version == v5

		client.send(1, query("SELECT a FROM b.c"))
		backend.answer(1)
		for range 3 {
			relayed(client, backend, 2, &message.Options{}, supportedAnswer())
		}
		backend.send(1, rows(nil))
		client.answer(1)
	})
}

// Of what a client registers for, Cassandra hears schema changes alone.
func TestRegisterAsksForSchemaChangesOnly(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		all := []primitive.EventType{primitive.EventTypeTopologyChange, primitive.EventTypeStatusChange, primitive.EventTypeSchemaChange}
		client.send(1, &message.Register{EventTypes: all})
		assert.Equal(t, all[2:], backend.answer(1).(*message.Register).EventTypes)
		backend.send(1, &message.Ready{})
		client.answer(1)

		client.send(2, &message.Register{EventTypes: all[:2]})
		assert.IsType(t, &message.Ready{}, client.answer(2))
		backend.silent()
	})
}

// Cassandra ignores the case of event types: no spelling of one gets past the proxy.
func TestRegisterInOtherSpellings(t *testing.T) {
	r := newRig(t)
	d := dialect{version: v4}
	client, backend := r.login(d)
	register := func(stream int16, types ...string) {
		body := []byte{0, byte(len(types))}
		for _, s := range types {
			body = append(append(body, 0, byte(len(s))), s...)
		}
		b := wire.ResponseEnvelope(byte(v4), stream, primitive.OpCodeRegister, body)
		b[0] = byte(v4)
		client.write(b)
	}
	register(1, "status_change", "Topology_Change")
	assert.IsType(t, &message.Ready{}, client.answer(1))
	register(2, "schema_change", "status_change")
	assert.Equal(t, []primitive.EventType{primitive.EventTypeSchemaChange}, backend.answer(2).(*message.Register).EventTypes)
	for _, odd := range []string{"ﬆATUS_CHANGE", "STATUS", ""} {
		register(3, "SCHEMA_CHANGE", odd)
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(3).GetErrorCode())
	}
	backend.silent()
}

// An id that nobody has prepared here may belong to anything: Cassandra does not see it.
func TestUnknownPreparedStatement(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		known := r.prepare(client, backend, "SELECT a FROM b.c")
		for stream, id := range [][]byte{[]byte("sixteen bytes!!!"), []byte("short"), noise(1000)} {
			client.send(int16(stream), execute(id, nil))
			assert.Equal(t, id, client.failure(int16(stream)).(*message.Unprepared).Id)
			client.send(int16(stream), &message.Batch{Children: []*message.BatchChild{{Id: known}, {Query: "INSERT INTO b.c (a) VALUES (1)"}, {Id: id}}})
			assert.Equal(t, id, client.failure(int16(stream)).(*message.Unprepared).Id)
		}
		backend.silent()
	})
}

// What one connection has prepared, all may execute.
func TestPreparedStatementOfAnotherConnection(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "SELECT a FROM b.c")
		second, node := r.login(d)
		for _, c := range [][2]*peer{{client, backend}, {second, node}} {
			assert.IsType(t, &message.VoidResult{}, relayed(c[0], c[1], 2, execute(id, nil), &message.VoidResult{}))
		}
	})
}

// A PREPARE that Cassandra refuses teaches nothing.
func TestPrepareThatFails(t *testing.T) {
	r := newRig(t)
	client, backend := r.login(dialect{version: v4})
	relayed(client, backend, 1, &message.Prepare{Query: "SELECT a FROM nowhere.c"}, &message.Invalid{ErrorMessage: "no"})
	client.send(1, execute(idOf("SELECT a FROM nowhere.c"), nil))
	client.failure(1)
	backend.silent()
}

// A statement that was prepared while its table was ordinary is refused from the moment that it is critical.
func TestCriticalityIsAskedWhenExecuted(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		id := r.prepare(client, backend, "INSERT INTO bank.accounts (id) VALUES (?)")
		requests := []message.Message{
			execute(id, []byte("x")),
			query("INSERT INTO bank.accounts (id) VALUES ('x')"),
			&message.Batch{Children: []*message.BatchChild{{Id: id, Values: []*primitive.Value{primitive.NewValue(nil)}}}},
			&message.Batch{Children: []*message.BatchChild{{Query: "DELETE FROM bank.accounts WHERE id = 'x'"}}},
		}
		for stream, m := range requests {
			relayed(client, backend, int16(stream), m, &message.VoidResult{})
		}
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		for stream, m := range requests {
			client.send(int16(stream), m)
			assert.Contains(t, client.failure(int16(stream)).GetErrorMessage(), "MUSIC_", "%v", m)
		}
		relayed(client, backend, 9, query("SELECT * FROM bank.accounts WHERE id = 'x'"), rows(nil))
		r.server.Tables.Set("bank", "accounts", nil)
		for stream, m := range requests {
			relayed(client, backend, int16(stream), m, &message.VoidResult{})
		}
	})
}

// A schema change is told to the client when the proxy has followed it, and the connection goes on meanwhile. The client may use
// the stream again as soon as it has the answer.
func TestSchemaChangeIsFollowedFirst(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		followed := make(chan SchemaChange)
		r := newRig(t, func(o *Options) {
			o.DDL = func(change SchemaChange) []string { followed <- change; return []string{"take care", "and more"} }
		})
		client, backend := r.login(d)
		for range 50 {
			client.send(1, query("CREATE TABLE bank.accounts (id text PRIMARY KEY) WITH comment = '@critical'"))
			backend.answer(1)
			backend.send(1, &message.SchemaChangeResult{
				ChangeType: primitive.SchemaChangeTypeCreated, Target: primitive.SchemaChangeTargetTable, Keyspace: "bank", Object: "accounts",
			})
			relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil))
			assert.Equal(t, SchemaChange{"CREATED", "TABLE", "bank", "accounts"}, <-followed)
			f := client.next()
			require.IsType(t, &message.SchemaChangeResult{}, f.Body.Message)
			if d.version >= v4 {
				assert.Equal(t, []string{"take care", "and more"}, f.Body.Warnings)
			}
			// The proxy looks at the answer to this one too.
			id := r.prepare(client, backend, "SELECT a FROM b.c")
			relayed(client, backend, 1, execute(id, nil), rows(nil))
		}
	})
}

// A refused DDL is no change.
func TestSchemaChangeThatFails(t *testing.T) {
	r := newRig(t, func(o *Options) { o.DDL = func(SchemaChange) []string { panic("there is none") } })
	client, backend := r.login(dialect{version: v4})
	assert.IsType(t, &message.Invalid{}, relayed(client, backend, 1, query("DROP TABLE bank.accounts"), &message.Invalid{}))
	assert.IsType(t, &message.VoidResult{}, relayed(client, backend, 1, query("CREATE ROLE IF NOT EXISTS somebody"), &message.VoidResult{}))
}

// Where another has made the table, this proxy may not know it yet: it follows, and the client is told then.
func TestSchemaChangeThatOthersMade(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		followed := make(chan SchemaChange, 1)
		r := newRig(t, func(o *Options) { o.DDL = func(change SchemaChange) []string { followed <- change; return nil } })
		client, backend := r.login(d)
		const text = "CREATE TABLE IF NOT EXISTS a.\"B\" (c int PRIMARY KEY) WITH comment = '@critical'"
		for _, m := range []message.Message{query(text), execute(r.prepare(client, backend, text), nil)} {
			assert.IsType(t, &message.VoidResult{}, relayed(client, backend, 1, m, &message.VoidResult{}))
			assert.Equal(t, SchemaChange{Target: "TABLE", Keyspace: "a", Name: "B"}, <-followed)
		}
	})
}

// The counters say what became of each request.
func TestStats(t *testing.T) {
	r := newRig(t)
	client, backend := r.login(dialect{version: v4})
	id := r.prepare(client, backend, "SELECT a FROM b.c")
	for range 3 {
		relayed(client, backend, 1, execute(id, nil), rows(nil))
	}
	client.send(1, execute([]byte("unknown"), nil))
	client.answer(1)
	client.send(1, &message.Register{EventTypes: []primitive.EventType{primitive.EventTypeStatusChange}})
	client.answer(1)
	got := map[string]uint64{}
	r.server.Stats.Requests(func(opcode primitive.OpCode, fate traffic.Fate, n uint64) { got[opcode.String()+" "+fate.String()] = n })
	assert.Equal(t, map[string]uint64{
		primitive.OpCodeStartup.String() + " forwarded": 1, primitive.OpCodePrepare.String() + " forwarded": 1,
		primitive.OpCodeExecute.String() + " forwarded": 3, primitive.OpCodeExecute.String() + " refused": 1,
		primitive.OpCodeRegister.String() + " answered": 1,
	}, got)
	assert.EqualValues(t, 1, r.server.Stats.Accepted.Load())
	assert.EqualValues(t, 1, r.server.Stats.Open.Load())
}
