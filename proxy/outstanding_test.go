package proxy

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// A proxy has followed the schema once Cassandra has answered what was on its way when a table was
// closed to plain writes.
func TestSchemaIsFollowedOnceCassandraHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := 0
		var owed atomic.Bool
		s := &schema{tables: catalog.NewTables(), critical: newCriticalTables(), heartbeat: &heartbeat{}, cores: func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {}}
		s.outstanding = func() func() bool {
			looked++
			return owed.Load
		}
		show := func(settings catalog.Settings, made bool) {
			s.show(&dataTable{keyspace: "bank", name: "accounts", stored: storedTable{unlocked: settings.Unlocked}, Critical: catalog.Critical{Settings: settings, Made: made}}, "")
		}
		assert.True(t, s.answered(t.Context()), "nothing was closed")
		show(catalog.Settings{Unlocked: catalog.Allow}, false)
		assert.True(t, s.answered(t.Context()))
		assert.Zero(t, looked)

		owed.Store(true)
		show(catalog.Settings{}, false)
		assert.False(t, s.answered(t.Context()), "not followed")
		late, err := s.barrier(t.Context(), &dataTable{Critical: catalog.Critical{Marked: true}}, [16]byte{})
		assert.NoError(t, err)
		assert.Equal(t, []string{thisOne}, late, "closed is not raised")
		before := looked
		show(catalog.Settings{Lease: time.Minute}, true)
		assert.Equal(t, before, looked, "it was closed to them before")
		time.AfterFunc(answerLimit/2, func() { owed.Store(false) })
		assert.True(t, s.answered(t.Context()), "a little patience")
		assert.Nil(t, s.owed)

		owed.Store(true)
		show(catalog.Settings{Unlocked: catalog.Allow}, true)
		show(catalog.Settings{}, true)
		assert.Greater(t, looked, before, "closed again")
		before = looked
		for _, name := range []string{"id", "k"} { // the first is as before
			renamed := catalog.Critical{Made: true, Key: []catalog.Column{{Name: name}}}
			s.tables.Set("bank", "accounts", &catalog.Critical{Made: true, Key: []catalog.Column{{Name: "id"}}})
			owed.Store(true)
			s.owed = nil
			s.show(&dataTable{keyspace: "bank", name: "accounts", Critical: renamed}, "")
			assert.Equal(t, name == "id", s.answered(t.Context()), name)
		}
		assert.Equal(t, before+1, looked, "what was read by the former names")
		end := s.critical.keyed.begin()
		owed.Store(false)
		s.tables.Set("bank", "accounts", &catalog.Critical{Made: true, Key: []catalog.Column{{Name: "id"}}})
		s.show(&dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{Made: true, Key: []catalog.Column{{Name: "k"}}}}, "")
		assert.False(t, s.answered(t.Context()), "a key is being synchronised")
		later := s.critical.keyed.begin()
		end()
		assert.True(t, s.answered(t.Context()), "what began later has read the present names")
		later()
		owed.Store(true)
		s.owed = owed.Load
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, s.answered(ended))
	})
}

// Whatever else a reading of the schema finds, and the next one: this proxy has not followed other names of keys before
// nothing is under way that was read by the former ones.
func TestOtherKeysAreFollowedWhateverElseHasChanged(t *testing.T) {
	id, k := []catalog.Column{{Name: "id"}}, []catalog.Column{{Name: "k"}}
	for name, now := range map[string]catalog.Critical{
		"its settings, too": {Key: k, Made: true, Settings: catalog.Settings{Lease: time.Minute}},
		"it is made anew":   {Key: id, ID: [16]byte{2}},
	} {
		for _, other := range []bool{false, true} { // another table is closed to plain writes then
			synctest.Test(t, func(t *testing.T) {
				s := &schema{tables: catalog.NewTables(), critical: newCriticalTables(), heartbeat: &heartbeat{}, cores: func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {}}
				s.outstanding = func() func() bool { return func() bool { return false } }
				s.tables.Set("bank", "accounts", &catalog.Critical{Made: true, Key: id})
				end := s.critical.keyed.begin()
				s.show(&dataTable{keyspace: "bank", name: "accounts", Critical: now}, "")
				if other {
					s.show(&dataTable{keyspace: "bank", name: "tellers", Critical: catalog.Critical{Key: id}}, "")
				}
				assert.False(t, s.answered(t.Context()), name)
				end()
				assert.True(t, s.answered(t.Context()), name)
				defer s.critical.keyed.begin()()
				s.show(&dataTable{keyspace: "bank", name: "limits", Critical: catalog.Critical{Key: id}}, "")
				assert.True(t, s.answered(t.Context()), "what is closed to plain writes does not wait for that")
			})
		}
	}
}
