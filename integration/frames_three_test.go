package integration

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nodeAddresses returns the addresses of the three nodes.
func nodeAddresses(t testing.TB) (all []string) {
	t.Helper()
	for _, n := range threeNodes(t).Nodes() {
		all = append(all, n.Addr())
	}
	return all
}

// elsewhere executes statements on connections where they have not been prepared, and again after
// they have been prepared there.
func (k *conversation) elsewhere() {
	k.t.Helper()
	for i, text := range []string{
		"SELECT k AS elsewhere, c, v FROM t WHERE k = 1", "INSERT INTO t (k, c, v) VALUES (1, 5, 'elsewhere')", "SELECT n AS elsewhere FROM n",
	} {
		k.wire = k.wires[i%len(k.wires)]
		x := k.prepareHere(text)
		for range k.wires[1:] {
			k.next()
			f := k.say("execute elsewhere "+text, x, k.own(), nil)
			require.IsType(k.t, &message.Unprepared{}, f.Body.Message, text)
			assert.Equal(k.t, x.QueryId, f.Body.Message.(*message.Unprepared).Id, "drivers look for the id that they know")
			assert.Equal(k.t, x, k.prepareHere(text), "and take it amiss to be given another")
			k.say("execute after that "+text, x, exact, nil)
		}
	}
}

// converseBriefly runs the part of the script that is about values, batches and prepared
// statements.
func converseBriefly(t *testing.T, version primitive.ProtocolVersion, compression primitive.Compression, addresses ...string) []roundTrip {
	t.Helper()
	k := converseIn(t, "frames_three", version, compression, addresses...)
	k.query("CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))")
	k.query("CREATE TABLE n (k int PRIMARY KEY, n counter)")
	k.values()
	k.batches()
	k.elsewhere()
	k.pipelined()
	return k.moves
}

// A part of the script; make compat runs the whole of it at three proxies.
func TestFramesOfThreeProxiesAreEqual(t *testing.T) {
	threeProxies(t)
	const version, compression = primitive.ProtocolVersion5, primitive.CompressionNone
	direct := converseBriefly(t, version, compression, nodeAddresses(t)...)
	proxied := converseBriefly(t, version, compression, proxyAddresses()...)
	for _, difference := range differentMoves(direct, proxied) {
		assert.Fail(t, "a difference", "%v", difference)
	}
}

// A statement with a lock clause has an id of the proxies' own: the same at all of them, and
// unknown on connections that have not prepared it.
func TestLocksPreparedAtThreeProxies(t *testing.T) {
	threeProxies(t)
	criticalAtThree(t, "three")
	for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		var at [3]*attacker
		for i, address := range proxyAddresses() {
			at[i] = &attacker{fixture: &fenceFixture{t: t, keyspace: "three"}, wire: openWire(t, address, version, primitive.CompressionNone)}
		}
		for i, cql := range []string{
			"LOCK three.accounts WHERE branch = ? NOWAIT", "SELECT UNLOCK three.accounts WHERE branch = ? USING LOCK ?",
			"UPDATE three.accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?", "SELECT balance FROM three.accounts WHERE branch = ? FOR UPDATE",
		} {
			id, metadata, f := at[i%3].prepare(cql, "")
			require.Nil(t, f, "%s: %v", cql, f)
			for j := range at {
				other := at[(i+j)%3]
				execute := &message.Execute{QueryId: id, ResultMetadataId: metadata, Options: other.options(nil)}
				if j > 0 && version == primitive.ProtocolVersion4 { // the proxies know it by now in version 5
					_, f = other.ask(execute)
					require.NotNil(t, f, cql)
					assert.Equal(t, int(primitive.ErrorCodeUnprepared), f.code, "%s: %v", cql, f)
				}
				again, columns, f := other.prepare(cql, "")
				require.Nil(t, f, "%s: %v", cql, f)
				assert.Equal(t, id, again, cql)
				assert.Equal(t, metadata, columns, cql)
			}
		}
	}
}
