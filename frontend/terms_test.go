package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// termsRig is a server whose core shows what LOCK asks for, with bank.accounts (id) critical and bank.plain not.
func termsRig(t *testing.T, d dialect) (client, backend *peer, core capturingLocks) {
	core = capturingLocks{asked: make(chan musiccore.Request, 9)}
	r := newRig(t, func(o *Options) { o.Locks, o.MaxWait = core, time.Minute })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, MaxLease: time.Minute})
	text := []catalog.Column{{Name: "id", Type: "text"}}
	r.server.Tables.Set("bank", "odd", &catalog.Critical{Key: text, Primary: []string{"id"}, Refused: "its key is odd"})
	r.server.Tables.Set("bank", "new", &catalog.Critical{Key: text, Primary: []string{"id"}, Refused: "try again", Passing: true})
	r.server.Tables.Set("bank", "plain", nil)
	client, backend = r.login(d)
	return client, backend, core
}

// bind gives a statement values.
func bind(text string, values ...string) *message.Query {
	q := query(text)
	for _, v := range values {
		q.Options.PositionalValues = append(q.Options.PositionalValues, primitive.NewValue([]byte(v)))
	}
	return q
}

// What a LOCK says of waiting is what the core is asked: WAIT of nothing is answered at once, no WAIT is not.
func TestWaitOfALock(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		client, _, core := termsRig(t, d)
		for clause, want := range map[string]musiccore.Request{
			"": {}, " WAIT 1s": {Wait: time.Second}, " WAIT 0s": {AtOnce: true}, " NOWAIT": {NoWait: true}, " WAIT 1ns": {Wait: 1},
		} {
			client.send(1, query("LOCK bank.accounts WHERE id = 'x'"+clause))
			client.answer(1)
			q := <-core.asked
			assert.Equal(t, want, musiccore.Request{Wait: q.Wait, AtOnce: q.AtOnce, NoWait: q.NoWait}, "%q", clause)
		}
		for _, clause := range []string{" WAIT 1mo", " WAIT 99999999h", " WAIT -1s", " LEASE 1y"} {
			client.send(1, query("LOCK bank.accounts WHERE id = 'x'"+clause))
			assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_SYNTAX: ", clause)
		}
		assert.Empty(t, core.asked)
	})
}

// A LOCK of several keys takes a bound list with one key or more, and a LIMIT from 1 on.
func TestTermsOfALockOfSeveralKeys(t *testing.T) {
	const one, none = "\x00\x00\x00\x01\x00\x00\x00\x01x", "\x00\x00\x00\x00"
	bothFramings(t, func(t *testing.T, d dialect) {
		client, backend, core := termsRig(t, d)
		for _, m := range []*message.Query{
			bind("LOCK bank.accounts WHERE id IN ?", one), query("LOCK bank.accounts WHERE id IN ('x') LIMIT 1"), bind("LOCK bank.accounts WHERE id IN ('x') LIMIT ?", "\x00\x00\x00\x01"),
		} {
			client.send(1, m)
			require.IsType(t, &message.RowsResult{}, client.answer(1), m.Query)
			for range len(core.asked) { // of one key, whatever that takes
				<-core.asked
			}
		}
		for text, values := range map[string][]string{
			"LOCK bank.accounts WHERE id IN ?": {none}, "LOCK bank.accounts WHERE id IN ('x') LIMIT 0": nil, "LOCK bank.accounts WHERE id IN ('x') LIMIT ?": {"x"},
			"LOCK bank.accounts WHERE id IN ('x') LIMIT -1": nil, "LOCK bank.accounts WHERE id IN ()": nil,
		} {
			client.send(1, bind(text, values...))
			assert.Regexp(t, "^MUSIC_(KEY|SYNTAX): ", client.failure(1).GetErrorMessage(), text)
		}
		assert.Empty(t, core.asked)
		backend.silent()
	})
}

// PREPARE tells of every marker what it is for, in the order in which they stand.
func TestMarkersOfVerbs(t *testing.T) {
	client, backend, _ := termsRig(t, dialect{version: v4})
	for text, want := range map[string]string{
		"LOCK bank.accounts WHERE id = ? WAIT ? LEASE ? AS ? TOKEN ?": "id varchar, [wait] bigint, [lease] bigint, [owner] varchar, [token] uuid",
		"LOCK bank.accounts WHERE id = ? USING LOCK ? LEASE ?":        "id varchar, [lock] bigint, [lease] bigint",
		"LOCK bank.accounts WHERE id IN ? LIMIT ?":                    "in(id) list<varchar>, [limit] int",
		"UNLOCK bank.accounts WHERE id = ? USING LOCK ?":              "id varchar, [lock] bigint",
		"UNLOCK bank.accounts WHERE id = ? FORCE REASON ?":            "id varchar, [reason] varchar",
	} {
		client.send(1, &message.Prepare{Query: text})
		p, ok := client.answer(1).(*message.PreparedResult)
		if !assert.True(t, ok, text) {
			continue
		}
		got := ""
		for i, c := range p.VariablesMetadata.Columns {
			if i > 0 {
				got += ", "
			}
			got += c.Name + " " + c.Type.AsCql()
		}
		assert.Equal(t, want, got, text)
	}
	text := "SELECT n FROM bank.accounts WHERE id = ? FOR UPDATE WAIT ? LEASE ?"
	client.send(1, &message.Prepare{Query: text})
	asked := backend.answer(1).(*message.Prepare)
	assert.NotContains(t, asked.Query, "WAIT")
	backend.send(1, &message.PreparedResult{
		PreparedQueryId:   idOf(text),
		VariablesMetadata: &message.VariablesMetadata{PkIndices: []uint16{0}, Columns: []*message.ColumnMetadata{{Keyspace: "bank", Table: "accounts", Name: "id", Type: datatype.Varchar}}},
		ResultMetadata:    &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{{Keyspace: "bank", Table: "accounts", Name: "n", Type: datatype.Int}}},
	})
	var names []string
	for _, c := range client.answer(1).(*message.PreparedResult).VariablesMetadata.Columns {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"id", "[wait]", "[lease]"}, names)
}

// What names no lock is refused with its reason, and the core hears nothing of it.
func TestWhatHasNoLock(t *testing.T) {
	client, backend, core := termsRig(t, dialect{version: v4})
	for text, says := range map[string]string{
		"UPDATE bank.accounts USING LOCK 99999999999999999999 SET n = 1 WHERE id = 'x'":                                                      "MUSIC_SYNTAX: USING LOCK takes a bigint, and 99999999999999999999 is too large for one",
		"LOCK bank.accounts WHERE id = 'x' TOKEN 00000000-0000-0000-0000-000000000000":                                                       "MUSIC_SYNTAX: TOKEN is a uuid that is not zero",
		"BEGIN BATCH UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = 'x'; APPLY BATCH":                                                "write USING LOCK once, after BEGIN BATCH",
		"BEGIN BATCH USING LOCK 1 UPDATE bank.accounts SET n = 1 WHERE id = 'x'; UPDATE bank.accounts SET n = 1 WHERE id = 5; APPLY BATCH":   "MUSIC_KEY: ",
		"BEGIN BATCH USING LOCK 1 UPDATE bank.accounts SET n = 1 WHERE id = 'x'; UPDATE bank.accounts SET n = 1 WHERE id = 'y'; APPLY BATCH": "names two keys",
	} {
		client.send(1, query(text))
		assert.Contains(t, client.failure(1).GetErrorMessage(), says, text)
	}
	assert.Empty(t, core.asked)
	backend.silent()
}

// lateLocks are Locks whose verdict on an operation comes later.
type lateLocks struct {
	*delayedLocks
	verdicts chan musiccore.Verdict
}

func (l lateLocks) End(_ musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	l.ended <- o
	return musiccore.VerdictTell, func() musiccore.Verdict { return <-l.verdicts }
}

// An answer that waits for the core is counted as held until it is sent, and one that cannot be read is told to the core all the same.
func TestAnswerThatWaitsForItsVerdict(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, core := holdingRig(t)
		l := lateLocks{core, make(chan musiccore.Verdict)}
		r.server.Locks = l
		client, backend := r.login(d)
		client.send(1, query("UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x'"))
		backend.answer(1)
		backend.send(1, &message.VoidResult{})
		assert.Equal(t, musiccore.OutcomeAcked, taken(t, core.ended))
		require.Eventually(t, func() bool { return r.server.answers.InUse() > 0 }, patience, time.Millisecond, "it is held")
		l.verdicts <- musiccore.VerdictTell
		client.answer(1)
		require.Eventually(t, func() bool { return r.server.answers.InUse() == 0 }, patience, time.Millisecond, "it is given back")
	})
}

// A stamp that comes late leaves nothing behind: a proxy that is told to end while one is waited for does so when it has been answered.
func TestDrainAfterALateStamp(t *testing.T) {
	r, core := holdingRig(t)
	core.holds = true
	client, backend := r.login(dialect{version: v4})
	for range 3 {
		client.send(1, query("UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x'"))
		taken(t, core.held)()
		backend.answer(1)
		backend.send(1, &message.VoidResult{})
		client.answer(1)
	}
	r.drained()
	client.ended()
	_ = client.Close()
	r.waitServed()
	backend.ended()
	assert.Len(t, core.ended, 3, "of each operation once")
}

// A LOCK of several keys that says nothing of waiting waits as long as any.
func TestALockOfSeveralKeysWaits(t *testing.T) {
	r, core := holdingRig(t)
	r.server.MaxWait, core.holds = patience, true
	client, _ := r.login(dialect{version: v4})
	client.send(1, query("LOCK bank.accounts WHERE id IN ('x', 'y')"))
	give := taken(t, core.held)
	client.silent()
	give()
	for range 3 { // the other, and both again
		taken(t, core.held)()
	}
	assert.Len(t, client.answer(1).(*message.RowsResult).Data, 2)
}

// A plain write on a table that is critical and cannot be locked is told why; on one whose locks are only just being made, to take one.
func TestPlainWriteOnATableWithoutLocks(t *testing.T) {
	client, _, _ := termsRig(t, dialect{version: v4})
	for name, why := range map[string]string{"odd": "MUSIC_REFUSED: bank.odd is critical, but cannot be locked: its key is odd", "new": "MUSIC_UNLOCKED: bank.new is critical", "accounts": "MUSIC_UNLOCKED: bank.accounts is critical"} {
		client.send(1, query("INSERT INTO bank."+name+" (id) VALUES ('x')"))
		assert.Contains(t, client.failure(1).GetErrorMessage(), why)
	}
}

// An answer to an operation that cannot be read ends the connection, and the core hears that nobody knows.
func TestUnreadableAnswerToAnOperation(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, core := holdingRig(t)
		client, backend := r.login(d)
		client.send(1, query("UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x'"))
		backend.answer(1)
		answer := rawEnvelope(d, 1, byte(primitive.OpCodeError), []byte{0, 0})
		answer[0] |= 0x80
		backend.write(backend.framed(answer))
		backendLost(client, 1)
		assert.Equal(t, musiccore.OutcomeUnknown, taken(t, core.ended))
		r.end()
	})
}

// A large envelope in segments that hold more than it is no envelope.
func TestSegmentsLongerThanTheirEnvelope(t *testing.T) {
	segmented(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		for _, m := range []message.Message{query("SELECT a FROM b.c"), query("LIST LOCKS"), execute(idOf("none"), noise(1000))} {
			for _, size := range []int{5, 20, 50} {
				client, _ := r.login(d)
				client.write(d.parts(t, append(client.envelope(t, 1, m), 1, 2, 3, 4, 5, 6, 7), size))
			}
		}
		for range 9 {
			assert.Contains(t, r.end()["error"], "segment longer than its envelope")
		}
	})
}
