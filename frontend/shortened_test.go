package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// A WAIT or a LEASE that asks for more than there is is cut, and the answer says so; in protocol 3 there is no room for it.
func TestClausesThatAreCutAreTold(t *testing.T) {
	const wait, lease = "MUSIC: WAIT 1m0s is longer than an answer may take: it is reduced to 1.5s", "MUSIC: LEASE 1h0m0s is longer than that of bank.accounts: it is reduced to 30s"
	everyDialect(t, func(t *testing.T, d dialect) {
		g := &scriptedLocks{grantingLocks: newGrantingLocks()}
		g.locked = nil
		r := newRig(t, func(o *Options) { o.Locks, o.MaxWait = quietLocks{g}, 1500*time.Millisecond })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, MaxLease: 30 * time.Second})
		client, backend := r.login(d)
		for clauses, warnings := range map[string][]string{
			" WAIT 1m": {wait}, " WAIT 1m LEASE 1h": {wait, lease}, " LEASE 1h": {lease}, " WAIT 1s LEASE 30s": nil, "": nil, " NOWAIT": nil,
		} {
			if d.version < v4 {
				warnings = nil
			}
			for _, state := range []musiccore.State{musiccore.StateHeld, musiccore.StateBusy} {
				g.answer = musiccore.Answer{Grant: musiccore.Grant{Ref: 9, State: state, Applied: state == musiccore.StateHeld}}
				for _, verb := range []string{"LOCK bank.accounts WHERE id = 'x'", "LOCK bank.accounts WHERE id IN ('x', 'y')"} {
					client.send(1, query(verb+clauses))
					assert.Equal(t, warnings, client.next().Body.Warnings, verb+clauses)
				}
				client.send(1, query("SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE"+clauses))
				switch backend.answer(1).(type) {
				case *message.Query:
					backend.send(1, page(nil, "1"))
				case *message.Prepare:
					backend.send(1, preparedAs(idOf("x")))
				}
				assert.Equal(t, warnings, client.next().Body.Warnings, clauses)
			}
		}
	})
}

// quietLocks answers as giving does, without noting who asks.
type quietLocks struct{ *scriptedLocks }

func (c quietLocks) Lock(_ musiccore.Key, _ musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	return c.answer, nil
}
