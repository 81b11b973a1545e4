package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

// A key that Cassandra would never take is refused for what it is, and not looked for until the client's patience ends.
func TestKeyThatIsNoneOfItsType(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	r.server.Tables.Set("bank", "accounts", &Critical{Key: []Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	client, _ := r.login(dialect{version: v4})
	for i, c := range []struct {
		cql   string
		value string
		says  string
	}{
		{"SELECT LOCK bank.accounts WHERE id = ?", "z\xfcrich", "MUSIC_KEY: the 6 bytes bound to id are no text"},
		{"UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = ?", "z\xfcrich", "MUSIC_KEY: the 6 bytes bound to id are no text"},
		{"SELECT LOCK bank.accounts WHERE id IN ?", "\x00\x00\x00\x01\x00\x00\x00\x01\xff", "MUSIC_KEY: the value bound to id IN ? must be a list of keys of its type"},
		{"UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = ?", "zürich", "MUSIC_NOT_HELD"},
	} {
		client.send(int16(i), &message.Query{Query: c.cql, Options: &message.QueryOptions{
			PositionalValues: []*primitive.Value{primitive.NewValue([]byte(c.value))},
		}})
		assert.Contains(t, client.failure(int16(i)).GetErrorMessage(), c.says)
	}
}
