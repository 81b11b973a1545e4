package frontend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// A key that Cassandra would never take is refused for what it is, and not looked for until the client's patience ends.
func TestKeyThatIsNoneOfItsType(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	client, _ := r.login(dialect{version: v4})
	for i, c := range []struct {
		cql   string
		value string
		says  string
	}{
		{"SELECT LOCK bank.accounts WHERE id = ?", "z\xfcrich", "MUSIC_KEY: the 6 bytes bound to id are not a valid text"},
		{"UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = ?", "z\xfcrich", "MUSIC_KEY: the 6 bytes bound to id are not a valid text"},
		{"SELECT LOCK bank.accounts WHERE id IN ?", "\x00\x00\x00\x01\x00\x00\x00\x01\xff", "MUSIC_KEY: the value bound to id IN ? must be a list of keys of its type"},
		{"UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = ?", "zürich", "MUSIC_NOT_HELD"},
	} {
		client.send(int16(i), &message.Query{Query: c.cql, Options: &message.QueryOptions{
			PositionalValues: []*primitive.Value{primitive.NewValue([]byte(c.value))},
		}})
		assert.Contains(t, client.failure(int16(i)).GetErrorMessage(), c.says)
	}
}

// Nothing in the WHERE of a verb of ours is overlooked: it names each column of the key once, and no other.
func TestNothingBesideTheKeyOfAVerb(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	r.server.Tables.Set("bank", "pairs", &catalog.Critical{Key: []catalog.Column{{Name: "a", Type: "text"}, {Name: "B", Type: "int"}}, Primary: []string{"a", "B", "c"}})
	client, _ := r.login(dialect{version: v4})
	const key = `a = 'x' AND "B" = 7`
	for _, verb := range []string{"LOCK bank.pairs WHERE %s NOWAIT", "SELECT LOCK bank.pairs WHERE %s USING LOCK 5", "UNLOCK bank.pairs WHERE %s USING LOCK 5", "UNLOCK bank.pairs WHERE %s FORCE", "LIST LOCKS ON bank.pairs WHERE %s"} {
		for where, says := range map[string]string{
			key + " AND v = 5":        "v is not a column of the key: one lock covers one partition of bank.pairs",
			key + " AND c = 5":        "c is not a column of the key",
			key + " AND b = 7":        "b is not a column of the key",
			"nope = 'x' AND " + key:   "nope is not a column of the key",
			key + " AND a > 'x'":      "MUSIC_KEY: ",
			key + " AND a = 'y'":      "a stands twice",
			key + " AND a IN ('x')":   "a stands twice",
			key + " AND (a) = ('x')":  "as column = value",
			key + " AND TOKEN(a) = 5": "as column = value",
			key + " AND a CONTAINS 5": "MUSIC_",
			"a = 'x' AND \"B\" >= 7":  "as column = value",
			"a = 'x' AND c = 7":       "the statement must give B = <value>",
		} {
			for _, m := range []message.Message{query(fmt.Sprintf(verb, where)), &message.Prepare{Query: fmt.Sprintf(verb, where)}} {
				client.send(1, m)
				says := strings.Replace(says, "MUSIC_KEY: ", "", 1)
				assert.Contains(t, client.failure(1).GetErrorMessage(), says, "%v", m)
			}
		}
	}
	client.send(1, query("LOCK bank.pairs WHERE "+key))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_NOT_HELD", "the core is asked")
}

// The row of a condition is read and written: what names it means the same both times.
func TestRowsOfConditionsAreNamedByConstants(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.server.Tables.Set("bank", "events", &catalog.Critical{
		Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id", "at"},
		Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "at": {Name: "at", Type: "timestamp"}, "n": {Name: "n", Type: "int"}},
	})
	client, backend := r.login(dialect{version: v4})
	const write = "UPDATE bank.events USING LOCK 9 SET n = 1 WHERE id = 'x' AND "
	for row, says := range map[string]string{
		"at = 'now'": "MUSIC_KEY: at is of type timestamp, and 'now' is not a constant of that type", "at = '2020-01-01'": "MUSIC_KEY: at", "at = '2020-01-01Z'": "", "at = 5": "",
	} {
		client.send(1, query(write+row+" IF n = 5"))
		if says != "" {
			assert.Contains(t, client.failure(1).GetErrorMessage(), says, row)
			continue
		}
		assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT", row)
		backend.send(1, &message.Unavailable{ErrorMessage: "no quorum"})
		client.failure(1)
	}
	client.send(1, query("DELETE FROM bank.events USING LOCK 9 WHERE id = 'x' AND id = 'y'"))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_KEY: id stands twice")
}
