package frontend

import (
	"strings"
	"sync"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// A value bound to a column of the key that is null, not set, empty or none of its type names no key: the core is not asked, and nothing
// is sent.
func TestBoundValuesThatAreNoKey(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, core := holdingRig(t)
		r.server.Tables.Set("bank", "numbered", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "int"}}, Primary: []string{"id"}})
		client, backend := r.login(d)
		core.holds = true
		none := []*primitive.Value{primitive.NewNullValue(), primitive.NewValue([]byte{})}
		if d.version >= v4 {
			none = append(none, primitive.NewUnsetValue())
		}
		for table, values := range map[string][]*primitive.Value{
			"accounts": none, "auto": none, "numbered": append(none, primitive.NewValue([]byte{1, 2, 3}), primitive.NewValue(bigint(1))),
		} {
			for _, text := range []string{
				"LOCK bank.T WHERE id = ?", "UNLOCK bank.T WHERE id = ? USING LOCK 1", "UPDATE bank.T USING LOCK 1 SET n = 0x WHERE id = ?",
				"SELECT n FROM bank.T WHERE id = ? USING LOCK 1", "SELECT n FROM bank.T WHERE id = ? FOR UPDATE", "LOCK bank.T WHERE id IN ('1', ?)",
			} {
				for _, value := range values {
					q := query(strings.Replace(text, "bank.T", "bank."+table, 1))
					q.Options.PositionalValues = []*primitive.Value{value}
					client.send(1, q)
					assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_KEY", "%s: %v", q.Query, value)
				}
			}
		}
		relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil)) // so nothing was sent
		assert.Empty(t, core.held)
	})
}

// perKeyLocks answer LOCK by key.
type perKeyLocks struct {
	*grantingLocks
	answers map[string]musiccore.Answer
}

func (c *perKeyLocks) Lock(k musiccore.Key, q musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	c.locked <- k
	if a, ok := c.answers[k.PK]; ok && q.Ref == 0 {
		return a, nil
	}
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 9, State: musiccore.StateHeld}}, nil
}

// A LOCK of several keys has all or none: where one is another's, or its LOCK fails, what it has is given back, and its place behind
// that one, too.
func TestSeveralKeysOfWhichOneIsHeld(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		core := &perKeyLocks{grantingLocks: g, answers: map[string]musiccore.Answer{}}
		r := newRig(t, func(o *Options) { o.Locks = core })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		client, _ := r.login(d)
		core.answers["b"] = musiccore.Answer{Grant: musiccore.Grant{Ref: 6, State: musiccore.StateQueued, Holder: "who"}}
		client.send(1, query("LOCK bank.accounts WHERE id IN ('a', 'b', 'c')"))
		got := client.answer(1).(*message.RowsResult)
		assert.EqualValues(t, 6, taken(t, g.unlocked))
		assert.EqualValues(t, 9, taken(t, g.unlocked))
		assert.Empty(t, g.unlocked)
		var states []string
		for _, row := range got.Data {
			states = append(states, string(row[7])+" "+string(row[2]))
		}
		assert.Equal(t, []string{"a RELEASED", "b BUSY", "c BUSY"}, states)
		for len(g.locked) > 0 {
			<-g.locked
		}

		core.answers["b"] = musiccore.Answer{Err: musiccore.ErrPoisoned}
		client.send(1, query("LOCK bank.accounts WHERE id IN ('a', 'b', 'c')"))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED")
		assert.EqualValues(t, 9, taken(t, g.unlocked))
		assert.Empty(t, g.unlocked)
	})
}

// meetingLocks grant a key, but for those that are another's, when so many LOCKs wait at once.
type meetingLocks struct {
	*grantingLocks
	busy  string
	fails string
	meet  chan int // how many are to wait at once, next

	mu     sync.Mutex
	asked  []string
	answer []func()
	most   int
}

func (m *meetingLocks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	a := musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 9, State: musiccore.StateHeld}}
	if q.Ref != 0 {
		return a, nil
	}
	switch {
	case strings.Contains(m.busy, k.PK):
		a = musiccore.Answer{Grant: musiccore.Grant{State: musiccore.StateBusy}}
	case strings.Contains(m.fails, k.PK):
		a = musiccore.Answer{Err: musiccore.ErrPoisoned}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, k.PK)
	m.answer = append(m.answer, func() { done(a) })
	if m.most == 0 {
		m.most = <-m.meet
	}
	if len(m.answer) == m.most {
		for _, answer := range m.answer {
			go answer()
		}
		m.answer, m.most = nil, 0
	}
	return musiccore.Answer{}, func() {}
}

// SKIP LOCKED asks for as many keys at once as are still lacking: never for more, so it has none to give back; the rows are in the
// order of the text. Where a LOCK fails, what was granted beside it is given back.
func TestSkipLockedAsksAtOnce(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		core := &meetingLocks{grantingLocks: g, busy: "bd", meet: make(chan int, 9)}
		r := newRig(t, func(o *Options) { o.Locks, o.MaxWait = core, patience })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		client, _ := r.login(d)
		states := func() (all []string) {
			for _, row := range client.answer(1).(*message.RowsResult).Data {
				all = append(all, string(row[7])+" "+string(row[2]))
			}
			return all
		}
		for _, c := range []struct {
			text  string
			waves []int
			want  []string
		}{
			{"('a', 'b', 'c', 'e')", []int{4}, []string{"a HELD", "b BUSY", "c HELD", "e HELD"}},
			{"('a', 'b', 'c', 'd', 'e', 'f') LIMIT 3", []int{3, 1, 1}, []string{"a HELD", "b BUSY", "c HELD", "d BUSY", "e HELD"}},
			{"('b', 'd') LIMIT 1", []int{1, 1}, []string{"b BUSY", "d BUSY"}},
		} {
			for _, n := range c.waves {
				core.meet <- n
			}
			in, limit, _ := strings.Cut(c.text, " LIMIT")
			if limit != "" {
				limit = " LIMIT" + limit
			}
			client.send(1, query("LOCK bank.accounts WHERE id IN "+in+" SKIP LOCKED"+limit))
			assert.Equal(t, c.want, states(), c.text)
			assert.Empty(t, core.meet)
			assert.Empty(t, g.unlocked)
		}
		core.fails = "e"
		core.meet <- 3
		client.send(1, query("LOCK bank.accounts WHERE id IN ('a', 'e', 'c', 'g') SKIP LOCKED LIMIT 3"))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED")
		assert.EqualValues(t, 9, taken(t, g.unlocked))
		assert.EqualValues(t, 9, taken(t, g.unlocked))
		assert.NotContains(t, core.asked, "g")
	})
}

// A condition on static columns alone needs no row, and no other does without: nor one that only asks whether something is there.
func TestConditionsThatNameNoRow(t *testing.T) {
	client, backend := rowsRig(t, dialect{version: v4})
	for text, served := range map[string]bool{
		"UPDATE bank.accounts USING LOCK 9 SET st = 1 WHERE id = 'x' IF st = 5":                true,
		"UPDATE bank.accounts USING LOCK 9 SET st = 1 WHERE id = 'x' IF EXISTS":                true,
		"DELETE st FROM bank.accounts USING LOCK 9 WHERE id = 'x' IF st = 5":                   true,
		"UPDATE bank.accounts USING LOCK 9 SET st = 1 WHERE id = 'x' IF v = 5":                 false,
		"UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' IF st = 5":                 false,
		"UPDATE bank.accounts USING LOCK 9 SET st = 1, v = 1 WHERE id = 'x' IF st = 5":         false,
		"UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' IF EXISTS":                 false,
		"DELETE FROM bank.accounts USING LOCK 9 WHERE id = 'x' IF EXISTS":                      false,
		"UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c > 1 IF v = 5":        false,
		"UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c IN (1, 2) IF v = 5":  false,
		"UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c = 1 IF c = 1":        false,
		"UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c = 1 IF nope = 1":     false,
		"UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c = 1 IF v = token(1)": false,
	} {
		client.send(1, query(text))
		if !served {
			assert.Equal(t, primitive.ErrorCodeInvalid, client.failure(1).GetErrorCode(), text)
			continue
		}
		assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT", text)
		backend.send(1, found([]string{"id", "st", "c", "v"}))
		client.answer(1)
	}
	backend.silent()
}
