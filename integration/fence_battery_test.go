package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// matches reports whether a refusal is one of those wanted: MUSIC_… stands for INVALID with that
// prefix, the others are names of codes.
func matches(want string, f *failure) bool {
	codes := map[string]int{"SYNTAX": 0x2000, "UNPREPARED": 0x2500, "INVALID": 0x2200, "PROTOCOL": 0x000a}
	for w := range strings.FieldsSeq(want) {
		if code, ok := codes[w]; ok && f.code == code {
			return true
		}
		if f.code == 0x2200 && strings.HasPrefix(f.text, w+": ") {
			return true
		}
	}
	return false
}

// run makes an attempt and returns everything that is wrong with its outcome. It updates before.
func (b *attacker) run(a attempt, before *[]string) (faults []string) {
	b.fixture.t.Helper()
	b.fixture.keepQueued()
	f := a.try(b)
	switch {
	case f == nil:
		faults = append(faults, "was let in")
	case !matches(a.want, f):
		faults = append(faults, fmt.Sprintf("was answered %#04x %q, not %s", f.code, f.text, a.want))
	}
	after := b.fixture.contents()
	for i, was := range *before {
		if after[i] != was {
			faults = append(faults, fmt.Sprintf("has changed %s\nfrom %sto   %s", b.fixture.watched[i], was, after[i]))
		}
	}
	*before = after
	if f := b.query("SELECT id FROM $KS.accounts WHERE branch = 'zurich'"); f != nil {
		faults = append(faults, fmt.Sprintf("has spoilt the connection: %v", f))
	}
	return faults
}

// attempts returns all attempts: every spelling sent in every way, and those that do not depend on
// spelling.
func attempts() []attempt {
	var all []attempt
	for _, s := range slices.Concat(plainWrites(), spellings(), batchTexts(), reserved(), unreadable(), badReferences(), conditionTexts(), severalTexts()) {
		all = append(all, s.ways()...)
	}
	return slices.Concat(all, boundReferences(), boundKeys(), frameFields(), preparedAttempts(), batchFrames(), conditionFrames(), forgedPages())
}

// Every attempt to write without the lock, in every version with every compression, fails with its
// reason and changes nothing.
func TestNoAttemptGetsPastTheFence(t *testing.T) {
	fx := newFenceFixture(t, "fence")
	total := 0
	for n, c := range frameCases() {
		t.Run(fmt.Sprintf("v%d %s", c.version, strings.ToLower(string(c.compression))), func(t *testing.T) {
			fx.t = t
			b := &attacker{fixture: fx, wire: openWire(t, needProxy(t), c.version, c.compression)}
			before := fx.contents()
			for i, a := range attempts() {
				if a.least > c.version || (i+n)%stride(c.version, c.compression) != 0 {
					continue
				}
				if total++; total%10 == 0 { // wrong references slow their connection down
					_ = b.wire.net.Close()
					b.wire = openWire(t, needProxy(t), c.version, c.compression)
				}
				for _, fault := range b.run(a, &before) {
					assert.Fail(t, "a fault", "%s %s", a.name, fault)
				}
			}
		})
	}
	fx.t = t
	t.Logf("%d attempts", total)
	assert.Greater(t, total, 1000)
	fx.holderStillWrites()
}

// stride returns n if one of n attempts is to be made: how a frame is compressed has little to do
// with how its text is spelled.
func stride(v primitive.ProtocolVersion, c primitive.Compression) int {
	switch {
	case c != primitive.CompressionNone:
		return 8
	case v < primitive.ProtocolVersion5:
		return 3
	}
	return 1
}

// holderStillWrites checks that the holder can write: attempts were refused for lack of a lock, and
// not because nothing works.
func (fx *fenceFixture) holderStillWrites() {
	fx.t.Helper()
	fx.exec(fx.expand("UPDATE $KS.accounts USING LOCK $HELD SET balance = 1 WHERE branch = 'zurich' AND id = 'x'"))
	var balance int64
	require.NoError(fx.t, fx.direct.Query("SELECT balance FROM "+fx.keyspace+".accounts WHERE branch = 'zurich' AND id = 'x'").Scan(&balance))
	assert.EqualValues(fx.t, 1, balance)
}

// The battery notices an attempt that succeeds: here some of the attempts go directly to the node.
func TestBatterySeesABreakIn(t *testing.T) {
	fx := newFenceFixture(t, "fence_open")
	b := &attacker{fixture: fx, wire: openWire(t, needEnvironment(t).direct(), primitive.ProtocolVersion5, primitive.CompressionNone)}
	tried := 0
	for _, a := range attempts() {
		switch a.name {
		case "insert, QUERY", "delete a partition, EXECUTE", "a cell of the companion, QUERY", "unlogged batch, QUERY", "truncate, QUERY", "music.named, BATCH":
			tried++
			before := fx.contents()
			faults := strings.Join(b.run(a, &before), "\n")
			assert.Contains(t, faults, "was let in", a.name)
			assert.Contains(t, faults, "has changed", a.name)
		}
	}
	assert.Equal(t, 6, tried)
	for _, f := range []failure{{0x2200, "MUSIC_LOST: x"}, {0x1100, "MUSIC_UNLOCKED: x"}, {0x2200, "something else"}} {
		assert.False(t, matches("MUSIC_UNLOCKED", &f), "%v", f)
	}
}
