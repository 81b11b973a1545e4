package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// forceLocks note who took a lock from its holder, and why.
type forceLocks struct {
	Locks
	forced chan Force
}

func (f forceLocks) Force(_ musiccore.Key, by Force, done func(musiccore.Answer)) {
	f.forced <- by
	done(musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 3, State: musiccore.StateReleased}})
}

// FORCE takes the right AUTHORIZE: Cassandra is asked to take that right from a role that does not exist, and only its word that there is
// no such role says that the client has the right. Any other error is the client's answer.
func TestForceNeedsAuthorize(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		core := forceLocks{forced: make(chan Force, 9)}
		r := newRig(t, func(o *Options) { o.Locks = core })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		client, backend := r.loginAs(d, "anna")

		force := query("UNLOCK bank.accounts WHERE id = 'x' FORCE REASON 'stuck'")
		probed := func(stream int16) (nobody string) {
			client.send(stream, force)
			asked := backend.answer(stream).(*message.Query).Query
			before, quoted, ok := strings.Cut(asked, ` FROM "`)
			require.True(t, ok, asked)
			assert.Equal(t, `REVOKE AUTHORIZE ON TABLE "bank"."accounts"`, before)
			return strings.TrimSuffix(quoted, `"`)
		}
		for _, refusal := range []message.Message{
			&message.Unauthorized{ErrorMessage: "User anna has no AUTHORIZE permission"},
			&message.Invalid{ErrorMessage: "table accounts doesn't exist"},
			&message.SyntaxError{ErrorMessage: "no viable alternative"},
			&message.Overloaded{ErrorMessage: "too much"},
		} {
			probed(1)
			backend.send(1, refusal)
			assert.Equal(t, refusal.(message.Error).GetErrorMessage(), client.failure(1).GetErrorMessage())
		}
		nobody := probed(1)
		assert.NotEqual(t, nobody, probed(2), "a name that nobody can have")
		backend.send(1, &message.Invalid{ErrorMessage: "Role " + nobody + " doesn't exist"})
		assert.IsType(t, &message.RowsResult{}, client.answer(1))
		by := <-core.forced
		assert.Regexp(t, `^anna at 127\.0\.0\.1:\d+: stuck$`, by.String())
		assert.Equal(t, "stuck", by.Reason)
		assert.Empty(t, core.forced, "nothing was forced without the right")
		backend.send(2, &message.Unauthorized{ErrorMessage: "no"})
		client.failure(2)

		client.send(1, force)
		assert.IsType(t, &message.RowsResult{}, client.answer(1), "the right is believed for a while")
		assert.Len(t, core.forced, 1)
	})
}
