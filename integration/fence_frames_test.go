package integration

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

const (
	byReference = "UPDATE $KS.accounts USING LOCK ? SET balance = 666 WHERE branch = 'zurich' AND id = 'x'"
	byKey       = "UPDATE $KS.accounts USING LOCK $HELD SET balance = 666 WHERE branch = ? AND id = 'x'"
	byStamp     = "UPDATE $KS.accounts USING TIMESTAMP ? SET balance = 666 WHERE branch = 'zurich' AND id = 'x'"
	stolenRow   = "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'x', 666)"
	heldRow     = "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'x', 666) USING LOCK $HELD"
	plainRow    = "INSERT INTO $KS.plain (branch, id, balance) VALUES ('zurich', 'x', 666)"
)

// bound returns attempts with values bound to a text: in QUERY, in EXECUTE, and in a BATCH.
func bound(name, want, cql string, least primitive.ProtocolVersion, values func(fx *fenceFixture) []*primitive.Value) []attempt {
	return []attempt{
		{name + ", QUERY", want, least, func(b *attacker) *failure { return b.query(cql, values(b.fixture)...) }},
		{name + ", EXECUTE", want, least, func(b *attacker) *failure { return b.execute(cql, values(b.fixture)...) }},
		{name + ", BATCH", want + " MUSIC_REFUSED", least, func(b *attacker) *failure {
			return b.batch(primitive.BatchTypeLogged, &message.BatchChild{Query: b.fixture.expand(cql), Values: values(b.fixture)})
		}},
	}
}

// boundReferences returns values bound to USING LOCK ? that are not valid references.
func boundReferences() []attempt {
	const no, syntax = "MUSIC_NOT_HELD MUSIC_LOST", "MUSIC_SYNTAX"
	one := func(v *primitive.Value) func(*fenceFixture) []*primitive.Value {
		return func(*fenceFixture) []*primitive.Value { return []*primitive.Value{v} }
	}
	var all []attempt
	for _, r := range []struct {
		name, want string
		value      *primitive.Value
	}{
		{"0", no, long(0)},
		{"-1", no, long(-1)},
		{"the least", no, long(math.MinInt64)},
		{"the greatest", no, long(math.MaxInt64)},
		{"future", no, long(4711)},
		{"an int 0", no, short(0)},
		{"a future int", no, short(4711)},
		{"a double", syntax, double(1)},
		{"null", syntax, primitive.NewNullValue()},
		{"empty", syntax, primitive.NewValue([]byte{})},
		{"a number as text", syntax, text("1")},
		{"three bytes", syntax, text("\x00\x00\x01")},
		{"sixteen bytes", syntax, primitive.NewValue(make([]byte, 16))},
		{"text of eight bytes", no, text("00000001")},
	} {
		all = append(all, bound("bound reference "+r.name, r.want, byReference, 0, one(r.value))...)
	}
	all = append(all, bound("bound reference unset", syntax, byReference, primitive.ProtocolVersion4, one(primitive.NewUnsetValue()))...)
	for _, word := range []string{"$QUEUED", "$OTHER", "$FUTURE"} {
		all = append(all, bound("bound reference "+word, no, byReference, 0, func(fx *fenceFixture) []*primitive.Value {
			return []*primitive.Value{long(fx.number(word))}
		})...)
		all = append(all, bound("bound int "+word, no, byReference, 0, func(fx *fenceFixture) []*primitive.Value {
			return []*primitive.Value{short(int32(fx.number(word)))}
		})...)
	}
	held := func(fx *fenceFixture) *primitive.Value { return long(fx.number("$HELD")) }
	none := func(*fenceFixture) []*primitive.Value { return nil }
	two := func(fx *fenceFixture) []*primitive.Value { return []*primitive.Value{held(fx), held(fx)} }
	all = append(all, bound("no value", syntax+" INVALID PROTOCOL", byReference, 0, none)...)
	all = append(all, bound("too many values", syntax+" INVALID PROTOCOL", byReference, 0, two)...)
	all = append(all, bound("lock twice, bound", "MUSIC_SYNTAX MUSIC_REFUSED", strings.Replace(byReference, "?", "? AND LOCK ?", 1), 0, two)...)
	return append(all, bound("lock and bound timestamp", "MUSIC_SYNTAX MUSIC_REFUSED", strings.Replace(byReference, "?", "? AND TIMESTAMP ?", 1), 0, two)...)
}

// boundKeys returns attempts with a key bound that is not the lock's, and with bound timestamps.
func boundKeys() []attempt {
	one := func(v *primitive.Value) func(*fenceFixture) []*primitive.Value {
		return func(*fenceFixture) []*primitive.Value { return []*primitive.Value{v} }
	}
	var all []attempt
	for _, k := range []struct {
		name, want, cql string
		least           primitive.ProtocolVersion
		value           *primitive.Value
	}{
		{"another key", "MUSIC_NOT_HELD MUSIC_LOST", byKey, 0, text("geneva")},
		{"upper case key", "MUSIC_NOT_HELD", byKey, 0, text("Zurich")},
		{"longer key", "MUSIC_NOT_HELD", byKey, 0, text("zurich\x00")},
		{"key that is no text", "MUSIC_KEY", byKey, 0, text("z\xfcrich")},
		{"key null", "MUSIC_KEY", byKey, 0, primitive.NewNullValue()},
		{"key empty", "MUSIC_KEY", byKey, 0, text("")},
		{"key unset", "MUSIC_KEY", byKey, 4, primitive.NewUnsetValue()},
		{"timestamp", "MUSIC_UNLOCKED", byStamp, 0, long(math.MaxInt64)},
		{"timestamp null", "MUSIC_UNLOCKED", byStamp, 0, primitive.NewNullValue()},
		{"timestamp unset", "MUSIC_UNLOCKED", byStamp, 4, primitive.NewUnsetValue()},
	} {
		all = append(all, bound("bound "+k.name, k.want, k.cql, k.least, one(k.value))...)
	}
	const json = "INSERT INTO $KS.accounts JSON ? USING LOCK $HELD"
	return append(all, bound("bound JSON", "MUSIC_KEY MUSIC_NOT_HELD", json, 0, one(text(`{"branch": "geneva", "id": "x"}`)))...)
}

// frameFields returns one statement with every field that a frame can have besides, and with
// keyspaces set in every way.
func frameFields() []attempt {
	const no = "MUSIC_UNLOCKED"
	const bare = "INSERT INTO accounts (branch, id, balance) VALUES ('zurich', 'x', 666)"
	const sessions = "INSERT INTO sessions (session, beat) VALUES (123e4567-e89b-12d3-a456-426614174000, 1)"
	in := func(keyspace, want, cql string, way func(b *attacker, cql string) *failure) attempt {
		name := fmt.Sprintf("%s in the request's keyspace %s", cql, keyspace)
		return attempt{name, want, 5, func(b *attacker) *failure {
			return b.inKeyspace(b.fixture.expand(keyspace), func() *failure { return way(b, cql) })
		}}
	}
	query := func(b *attacker, cql string) *failure { return b.query(cql) }
	execute := func(b *attacker, cql string) *failure { return b.execute(cql) }
	batch := func(b *attacker, cql string) *failure { return b.batch(primitive.BatchTypeLogged, cql) }
	return []attempt{
		{"tracing", no, 0, func(b *attacker) *failure { return b.adorned(stolenRow, withTracing) }},
		{"payload", no, 4, func(b *attacker) *failure { return b.adorned(stolenRow, withPayload) }},
		{"tracing and payload", no, 4, func(b *attacker) *failure { return b.adorned(stolenRow, withPayload|withTracing) }},
		{"stamp of the future", no, 0, func(b *attacker) *failure { return b.stamped(stolenRow, math.MaxInt64) }},
		{"stamp of the past", no, 0, func(b *attacker) *failure { return b.stamped(stolenRow, 1) }},
		{"stamp and a waiting lock", "MUSIC_NOT_HELD", 0, func(b *attacker) *failure {
			return b.stamped(strings.Replace(heldRow, "$HELD", "$QUEUED", 1), math.MaxInt64)
		}},
		{"USE", no, 0, func(b *attacker) *failure { return b.used(b.fixture.keyspace, bare) }},
		{"USE and another case", no, 0, func(b *attacker) *failure {
			return b.used(b.fixture.keyspace, strings.Replace(bare, "accounts", "ACCOUNTS", 1))
		}},
		{"USE and a quoted table", no, 0, func(b *attacker) *failure {
			return b.used(b.fixture.keyspace, strings.Replace(bare, "accounts", `"Accounts"`, 1))
		}},
		{"USE and a batch", no, 0, func(b *attacker) *failure { return b.used(b.fixture.keyspace, "BEGIN BATCH "+bare+" APPLY BATCH") }},
		{"USE and the companion", "MUSIC_REFUSED", 0, func(b *attacker) *failure { return b.used(b.fixture.keyspace, "TRUNCATE $COMPANION") }},
		{"USE music", "MUSIC_REFUSED", 0, func(b *attacker) *failure { return b.used("music", sessions) }},
		{"USE music, named", no, 0, func(b *attacker) *failure {
			return b.used("music", "UPDATE named SET value = 'stolen' WHERE name = 'battery'")
		}},
		in("$KS", no, bare, query), in("$KS", no, bare, execute), in("$KS", no+" MUSIC_REFUSED", bare, batch),
		in("music", "MUSIC_REFUSED", sessions, query), in("music", "MUSIC_REFUSED", sessions, execute), in("music", "MUSIC_REFUSED", sessions, batch),
		in("music", no, stolenRow, query), in("music", no, stolenRow, execute), in("music", no+" MUSIC_REFUSED", stolenRow, batch),
	}
}

// preparedAttempts returns EXECUTEs of statements prepared before the table was critical, on
// another connection, or never.
func preparedAttempts() []attempt {
	const no = "MUSIC_UNLOCKED"
	var all []attempt
	for name := range earlyWrites() {
		all = append(
			all,
			attempt{"prepared before, " + name, no, 0, func(b *attacker) *failure { return b.executeID(b.fixture.early[name], nil) }},
			attempt{"prepared elsewhere, " + name, no, 0, func(b *attacker) *failure { return b.executeID(b.fixture.foreign[name], nil) }},
		)
		if name != "batch" {
			all = append(all, attempt{"prepared before, BATCH of " + name, no + " MUSIC_REFUSED", 0, func(b *attacker) *failure {
				return b.batch(primitive.BatchTypeUnlogged, plainRow, b.fixture.early[name])
			}})
		}
	}
	for _, id := range [][]byte{bytes.Repeat([]byte{7}, 16), {1}, bytes.Repeat([]byte{7}, 15), bytes.Repeat([]byte{7}, 300)} {
		all = append(
			all,
			attempt{fmt.Sprintf("unknown id of %d bytes", len(id)), "UNPREPARED", 0, func(b *attacker) *failure { return b.executeID(id, nil) }},
			attempt{fmt.Sprintf("BATCH of an unknown id of %d bytes", len(id)), "UNPREPARED", 0, func(b *attacker) *failure {
				return b.batch(primitive.BatchTypeLogged, plainRow, id)
			}},
		)
	}
	return append(all, attempt{"id of the backend", "UNPREPARED", 0, func(b *attacker) *failure {
		// Cassandra knows a write of this text since the proxy has prepared a fenced one; the
		// client must not be able to execute it.
		cql := b.fixture.expand("INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'x', 6666)")
		if _, _, f := b.prepare(cql+" USING LOCK 1", ""); f != nil {
			return f
		}
		return b.executeID(md5ID(cql+" "), nil)
	}})
}

// batchFrames returns BATCH messages whose statements contradict each other.
func batchFrames() []attempt {
	const never = "MUSIC_REFUSED MUSIC_UNLOCKED"
	const other = "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('geneva', 'x', 666) USING LOCK $OTHER"
	frame := func(name, want string, children ...any) []attempt {
		var all []attempt
		for _, kind := range []primitive.BatchType{primitive.BatchTypeLogged, primitive.BatchTypeUnlogged, primitive.BatchTypeCounter} {
			all = append(all, attempt{fmt.Sprintf("BATCH of type %d, %s", kind, name), want, 0, func(b *attacker) *failure { return b.batch(kind, children...) }})
		}
		return all
	}
	var all []attempt
	for _, more := range [][]attempt{
		frame("held and plain", never, heldRow, stolenRow), frame("plain and held", never, stolenRow, heldRow),
		frame("a plain table behind", never, heldRow, plainRow), frame("a plain table before", never, plainRow, heldRow),
		frame("two keys", never, heldRow, other), frame("two references", never+" MUSIC_NOT_HELD", heldRow, strings.Replace(heldRow, "$HELD", "$QUEUED", 1)),
		frame("two tables", never+" MUSIC_NOT_HELD", heldRow, "INSERT INTO $KS.vault (branch, id, balance) VALUES ('zurich', 'x', 666) USING LOCK $HELD"),
		frame("a timestamp", never+" MUSIC_SYNTAX", heldRow, heldRow+" AND TIMESTAMP 5"),
		frame("a truncate", never, heldRow, "TRUNCATE $KS.accounts"), frame("a verb", never, heldRow, "LOCK $KS.accounts WHERE branch = 'zurich'"),
		frame("a read", never, heldRow, "SELECT * FROM $KS.accounts WHERE branch = 'zurich' USING LOCK $HELD"),
		frame("a batch inside", never, heldRow, "BEGIN BATCH USING LOCK $HELD "+stolenRow+" APPLY BATCH"),
		frame("a batch alone inside", never, "BEGIN BATCH USING LOCK $HELD "+stolenRow+" APPLY BATCH"),
		frame("the companion", never, heldRow, "DELETE FROM $KS.$COMPANION WHERE k1 = 'zurich'"),
		frame("unreadable", never+" MUSIC_SYNTAX SYNTAX", heldRow, "UPDATE $KS.accounts SET"),
		frame("waiting", "MUSIC_NOT_HELD", strings.Replace(heldRow, "$HELD", "$QUEUED", 1)), frame("an unknown id", "UNPREPARED", heldRow, bytes.Repeat([]byte{9}, 16)),
	} {
		all = append(all, more...)
	}
	return all
}
