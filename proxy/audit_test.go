package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

// audited is an audit of one table, with what it has written.
type audited struct {
	*audit
	log *bytes.Buffer
	key musiccore.Key
}

// note hands the audit what happened to a lock, as a shard does.
func (a audited) note(n musiccore.Note, by musiccore.Client) {
	if !a.takes(&n, &by) {
		a.tell(n, by)
	}
}

// newAudited returns an audit that tells what a setting says.
func newAudited(setting string) audited {
	log := new(bytes.Buffer)
	table := &dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{ID: [16]byte{1}, Key: []catalog.Column{{Name: "id", Type: "text"}}}}
	a := newAudit(zerolog.New(log).With().Timestamp().Logger(), setting, "10.0.0.1:9042", critical(table))
	return audited{a, log, musiccore.Key{Table: table.ID, PK: "x"}}
}

// everything has all kinds of lines written, as far as the setting lets them.
func (a audited) everything() {
	by := musiccore.Client{Role: "anna", Address: "10.0.0.9:1234"}
	for kind := musiccore.NoteGranted; kind <= musiccore.NoteOrphaned; kind++ {
		a.note(musiccore.Note{Key: a.key, Kind: kind, Ref: 7, Client: by, State: musiccore.StateReleased}, musiccore.Client{})
	}
	a.note(musiccore.Note{Key: a.key, Kind: musiccore.NoteEnded, Client: by, State: musiccore.StateReleased, InBlock: true}, musiccore.Client{})
	a.note(musiccore.Note{Key: a.key, Kind: musiccore.NoteEnded, Client: by, State: musiccore.StateReleased, InBlock: true}, musiccore.Client{Role: "ben"})
	a.refused(frontend.Refusal{By: by, Key: a.key, Ref: 7, Why: "no right to MODIFY"})
	a.refused(frontend.Refusal{By: by, Key: a.key, Ref: 7, Lost: true})
	a.flush()
}

// lines returns what was written since it was asked last.
func (a audited) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(a.log.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		all = append(all, fields)
	}
	a.log.Reset()
	return all
}

// A command that fails at Cassandra is logged with the table's name, and its key as LIST LOCKS shows it.
func TestAFailedCommandIsLoggedWithItsKey(t *testing.T) {
	s, log := startStation(t, newCluster()), new(jsonLog)
	a := newAudited("none")
	s.tables.set(a.tables.all())
	shard := s.of(a.key)
	shard.failures = zerolog.New(log)
	shard.do = func(musiccore.Command) musiccore.Result { return musiccore.Result{Cause: errors.New("no quorum")} }
	s.lock(a.key, musiccore.Request{NoWait: true})
	lines := log.of("a command of the lock protocol failed at Cassandra (at most one such line every ten seconds)")
	require.NotEmpty(t, lines)
	assert.Equal(t, []any{"bank.accounts", "'x'", "no quorum"}, []any{lines[0]["table"], lines[0]["key"], lines[0]["error"]})
}

// documented is the table of lines in docs/audit.md: the level and the fields of each message.
func documented(t *testing.T) map[string][2]string {
	t.Helper()
	page, err := os.ReadFile("../docs/audit.md")
	require.NoError(t, err)
	rows := map[string][2]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^|]+)` \\| (all|ends|refused) \\| (.+) \\|$").FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = [2]string{row[2], row[3]}
	}
	return rows
}

// At each setting there are the lines that docs/audit.md says, with the fields that it says, and no others.
func TestAuditLinesAreAsDocumented(t *testing.T) {
	rows := documented(t)
	for level, setting := range auditLevels() {
		var want []string
		for message, row := range rows {
			if slices.Index(auditLevels(), row[0]) <= level && (setting != "all" || message != "short sections ended") {
				want = append(want, message)
			}
		}
		a, got := newAudited(setting), map[string]bool{}
		a.everything()
		optional := map[string]bool{}
		for _, line := range a.lines(t) {
			message := line["message"].(string)
			got[message] = true
			fields := []string{"level", "time", "message", "audit", "proxy"}
			for _, field := range strings.Fields(strings.ReplaceAll(rows[message][1], "`", "")) {
				name := strings.Trim(field, "()")
				if _, here := line[name]; here || name == field {
					fields = append(fields, name)
				}
				if _, here := line[name]; !here {
					optional[message] = true
				}
			}
			assert.ElementsMatch(t, fields, slices.Collect(maps.Keys(line)), message)
			assert.Equal(t, "bank.accounts", line["table"])
			if _, one := line["key"]; one {
				assert.Equal(t, "'x'", line["key"])
			}
		}
		assert.ElementsMatch(t, want, slices.Collect(maps.Keys(got)), setting)
		assert.Equal(t, got["lock ended"], optional["lock ended"], "nobody ended one of them")
	}
}

// Refusals are sampled for each role by itself, and what is fenced off is not.
func TestAuditSamplesRefusals(t *testing.T) {
	a := newAudited("refused")
	for range 10 * refusals {
		a.refused(frontend.Refusal{By: musiccore.Client{Role: "anna"}, Key: a.key})
		a.refused(frontend.Refusal{By: musiccore.Client{Role: "ben"}, Key: a.key})
		a.refused(frontend.Refusal{By: musiccore.Client{Role: "anna"}, Key: a.key, Lost: true})
	}
	log := a.log.String()
	assert.Equal(t, 2*refusals, strings.Count(log, "attempt refused"))
	assert.Equal(t, 10*refusals, strings.Count(log, "operation fenced off"))
}

// Of short sections there is one line a minute, table and role with their number; one that was lost has its own, and so has a section
// that a client held for itself.
func TestAuditSumsShortSections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited("ends")
		aMinute := func() {
			ctx, cancel := context.WithTimeout(t.Context(), sumPeriod+time.Second)
			defer cancel()
			a.run(ctx)
		}
		ended := func(by musiccore.Client, how musiccore.State, inBlock bool) {
			a.note(musiccore.Note{Key: a.key, Kind: musiccore.NoteGranted, Client: by, InBlock: inBlock}, by)
			a.note(musiccore.Note{Key: a.key, Kind: musiccore.NoteEnded, Client: by, State: how, InBlock: inBlock, Duration: time.Millisecond}, by)
		}
		for range 100 {
			ended(musiccore.Client{Role: "anna", OneWrite: true}, musiccore.StateReleased, false)
			ended(musiccore.Client{Role: "anna"}, musiccore.StateReleased, true)
			ended(musiccore.Client{Role: "ben", OneWrite: true}, musiccore.StateReleased, true)
		}
		assert.Empty(t, a.lines(t))
		ended(musiccore.Client{Role: "anna", OneWrite: true}, musiccore.StateLost, true)
		ended(musiccore.Client{Role: "anna"}, musiccore.StateReleased, false)
		assert.Len(t, a.lines(t), 2)

		aMinute()
		var sums []string
		for _, line := range a.lines(t) {
			assert.InDelta(t, 100, line["sections"], 0)
			assert.InDelta(t, 100, line["held_ms"], 0)
			sums = append(sums, line["role"].(string)+" "+line["sections_of"].(string))
		}
		assert.ElementsMatch(t, []string{"anna one write", "anna handed over", "ben one write"}, sums)
		aMinute()
		assert.Empty(t, a.lines(t), "nothing has ended since")
	})
}

// The end of a lock names whose lock it was, and also who ended it where somebody did: by
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

// Sums of roles that have nothing to do with locks any more, as where each program gets a new role each hour, are not
// kept; nothing is lost of those that go on.
func TestAuditForgetsSumsThatEnd(t *testing.T) {
	a := newAudited("ends")
	ends := func(role string) {
		a.note(musiccore.Note{Key: a.key, Kind: musiccore.NoteEnded, Client: musiccore.Client{Role: role}, State: musiccore.StateReleased, InBlock: true}, musiccore.Client{})
	}
	for minute := range 100 {
		ends(strings.Repeat("v", minute))
		a.flush()
	}
	assert.LessOrEqual(t, len(*a.sums.Load()), 2)

	const each, clients = 200, 4
	var done, flushing sync.WaitGroup
	stop := make(chan struct{})
	flushing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				a.flush()
				runtime.Gosched()
			}
		}
	})
	for range clients {
		done.Go(func() {
			for range each {
				ends("anna")
				runtime.Gosched()
			}
		})
	}
	done.Wait()
	close(stop)
	flushing.Wait()
	a.flush()
	told := 0
	for line := range strings.Lines(a.log.String()) {
		var sum struct {
			Role     string `json:"role"`
			Sections int    `json:"sections"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &sum))
		if sum.Role == "anna" {
			told += sum.Sections
		}
	}
	assert.Equal(t, each*clients, told)
}
