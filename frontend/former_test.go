package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// seats publishes a table whose locks are on rows, with a change.
func (r *rig) seats(policy catalog.Policy, change func(*catalog.Critical)) {
	hall, seat := catalog.Column{Name: "hall", Type: "text"}, catalog.Column{Name: "seat", Type: "text", Clustering: true}
	now := &catalog.Critical{
		ID: [16]byte{1}, Key: []catalog.Column{hall, seat}, Primary: []string{"hall", "seat"}, Settings: catalog.Settings{Unlocked: policy, Row: true},
		Columns: map[string]catalog.Column{"hall": hall, "seat": seat, "n": {Name: "n", Type: "int"}},
	}
	change(now)
	r.server.Tables.Set("bank", "seats", now)
}

// What has waited while the columns of its table changed is not sent if it would write another key, or what its lock does not cover, than when it
// was read: three RENAMEs exchange two names. Cassandra reads the text, or what it has prepared anew, by the present columns.
func TestWhatWasReadByFormerColumnsIsNotSent(t *testing.T) {
	exchanged := func(c *catalog.Critical) {
		c.Key[0].Name, c.Key[1].Name, c.Primary = "seat", "hall", []string{"seat", "hall"}
	}
	changes := map[string]struct {
		change func(*catalog.Critical)
		sent   bool
	}{
		"none":                       {func(*catalog.Critical) {}, true},
		"key columns exchanged":      {exchanged, false},
		"a column is static":         {func(c *catalog.Critical) { c.Static = []string{"n"} }, false},
		"another table of that name": {func(c *catalog.Critical) { c.ID = [16]byte{2} }, false},
		"one more column":            {func(c *catalog.Critical) { c.Columns["m"] = catalog.Column{Name: "m", Type: "int"} }, true},
	}
	for text, policy := range map[string]catalog.Policy{
		"UPDATE bank.seats SET n = 1 WHERE hall = 'x' AND seat = 'y'":                                 catalog.Auto,
		"UPDATE bank.seats SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2":                        catalog.Auto,
		"DELETE FROM bank.seats WHERE hall = 'x' AND seat IN ('y', 'z')":                              catalog.Auto,
		"UPDATE bank.seats USING LOCK 9 SET n = 1 WHERE hall = 'x' AND seat = 'y'":                    catalog.Reject,
		"SELECT n FROM bank.seats WHERE hall = 'x' AND seat = 'y' FOR UPDATE":                         catalog.Reject,
		"BEGIN BATCH USING LOCK 9 DELETE FROM bank.seats WHERE hall = 'x' AND seat = 'y' APPLY BATCH": catalog.Reject,
	} {
		for name, tc := range changes {
			core := &untoldLocks{newDelayedLocks(), make(chan musiccore.LockRef, 2)}
			core.holds = true
			r := newRig(t, func(o *Options) { o.Locks, o.MaxWait = core, patience })
			r.seats(policy, func(*catalog.Critical) {})
			client, backend := r.login(dialect{version: v4})
			client.send(1, query(text))
			give := taken(t, core.held)
			r.seats(policy, tc.change)
			core.holds = false
			give()
			if tc.sent {
				backend.answer(1)
				continue
			}
			failure := client.failure(1).GetErrorMessage()
			assert.Regexp(t, `^MUSIC_UNAVAILABLE: bank.seats: its columns have just been changed.*: nothing was (done|written), try again$`, failure, "%s: %s", text, name)
			backend.silent()
			if policy == catalog.Reject && text[0] != 'S' {
				assert.Equal(t, musiccore.OutcomeRefused, taken(t, core.ended), text)
			} else {
				assert.EqualValues(t, 9, taken(t, core.unlocked), text)
			}
		}
	}
}

// A write with IF that has read its row before such a change writes nothing.
func TestAConditionReadByFormerColumns(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.seats(catalog.Auto, func(*catalog.Critical) {})
	client, backend := r.login(dialect{version: v4})
	client.send(1, query("UPDATE bank.seats SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2"))
	assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT")
	r.seats(catalog.Auto, func(c *catalog.Critical) { c.Static = []string{"n"} })
	backend.send(1, numbers(2))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNAVAILABLE: bank.seats: its columns have just been changed")
	backend.silent()
}
