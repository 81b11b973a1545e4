package proxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

// Every audit line says who, from where, at which proxy, on which key and under which reference, as
// LIST LOCKS writes them; refusals are sampled for each role by itself, and what is fenced off is
// not.
func TestAuditLines(t *testing.T) {
	var log bytes.Buffer
	table := &dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{ID: [16]byte{1}, Key: []catalog.Column{{Name: "id", Type: "text"}}}}
	tables := critical(table)
	a := newAudit(zerolog.New(&log), "10.0.0.1:9042", tables, prometheus.NewRegistry())
	by, k := musiccore.Client{Role: "anna", Address: "10.0.0.9:1234"}, musiccore.Key{Table: table.ID, PK: "x"}
	for _, what := range []musiccore.NoteKind{musiccore.NoteGranted, musiccore.NoteEnded, musiccore.NotePreempted, musiccore.NoteTakenOver, musiccore.NoteForced, musiccore.NoteOrphaned} {
		a.note(musiccore.Note{Key: k, Kind: what, Ref: 7, Client: by}, musiccore.Client{})
	}
	a.refused(frontend.Refusal{By: by, Key: k, Ref: 7, Why: "no right to MODIFY"})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 7)
	for _, line := range lines {
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		for field, want := range map[string]any{
			"audit": true, "role": "anna", "client": "10.0.0.9:1234", "proxy": "10.0.0.1:9042", "table": "bank.accounts", "key": "'x'", "lock_ref": 7.0,
		} {
			assert.Equal(t, want, got[field], line)
		}
	}
	log.Reset()
	for range 10 * refusals {
		a.refused(frontend.Refusal{By: by, Key: k})
		a.refused(frontend.Refusal{By: musiccore.Client{Role: "ben"}, Key: k})
		a.refused(frontend.Refusal{By: by, Key: k, Lost: true})
	}
	assert.Equal(t, 2*refusals-1, strings.Count(log.String(), "attempt refused"), "anna had one before")
	assert.Equal(t, 10*refusals, strings.Count(log.String(), "operation fenced off"))
}

// The end of a lock names whose lock it was, and beside that who ended it where somebody did: by
// UNLOCK or FORCE, at this proxy or at another one.
func TestAuditSaysWhoEndedALock(t *testing.T) {
	a, b := two(t)
	k, ben := keyOf("x"), musiccore.Client{Role: "ben", Address: "10.0.0.8:4321"}
	held := func(lease time.Duration) musiccore.LockRef {
		answer := a.lock(k, musiccore.Request{By: ben, Lease: lease})
		require.Equal(t, musiccore.StateHeld, answer.Grant.State, answer.Err)
		return answer.Grant.Ref
	}
	force := func(s *station) {
		forced := answered(t, func(done func(musiccore.Answer)) { s.Force(k, frontend.Force{By: anna()}, done) })
		require.NoError(t, forced.Err)
	}
	for i, tc := range []struct {
		end func()
		how string
		by  any
	}{
		{func() { a.unlock(k, held(0)) }, "RELEASED", "anna"},
		{func() { b.unlock(k, held(0)) }, "RELEASED", "anna"},
		{func() { held(0); force(a) }, "LOST", "anna"},
		{func() { held(0); force(b) }, "LOST", "anna"},
		{func() { held(time.Millisecond) }, "LOST", nil}, // its lease is over
	} {
		tc.end()
		var ended []map[string]any
		require.Eventually(t, func() bool { ended = a.audited.of("lock ended"); return len(ended) == i+1 }, 20*time.Second, time.Millisecond)
		line := ended[i]
		assert.Equal(t, tc.how, line["how"])
		assert.Equal(t, []any{"ben", ben.Address}, []any{line["role"], line["client"]}, "whose it was")
		assert.Equal(t, tc.by, line["ended_by_role"])
		if tc.by != nil {
			assert.Equal(t, anna().Address, line["ended_by_client"])
		}
	}
}
