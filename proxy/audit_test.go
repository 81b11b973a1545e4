package proxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

// Every audit line says who, from where, at which proxy, on which key and under which reference, as LIST LOCKS writes them; refusals are
// sampled for each role by itself, and what is fenced off is not.
func TestAuditLines(t *testing.T) {
	var log bytes.Buffer
	table := &dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{ID: [16]byte{1}, Key: []catalog.Column{{Name: "id", Type: "text"}}}}
	tables := critical(table)
	a := newAudit(zerolog.New(&log), "10.0.0.1:9042", tables, prometheus.NewRegistry())
	by, k := musiccore.Client{Role: "anna", Address: "10.0.0.9:1234"}, musiccore.Key{Table: table.ID, PK: "x"}
	for _, what := range []musiccore.NoteKind{musiccore.NoteGranted, musiccore.NoteEnded, musiccore.NotePreempted, musiccore.NoteTakenOver, musiccore.NoteForced, musiccore.NoteOrphaned} {
		a.note(musiccore.Note{Key: k, Kind: what, Ref: 7, Client: by})
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
