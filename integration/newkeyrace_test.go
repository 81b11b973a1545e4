package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two proxies write one new key at the same time, each with IF NOT EXISTS: at most one write is
// applied, and its row stays.
func TestANewKeyAtTwoProxies(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "new_key_race")
	p.create("@critical(unlocked=auto)") // after an ALTER new keys would be locked in the ordinary way for 20 s
	p.here = p.client
	insert := func(branch string, by int) string {
		return fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('%s', 'x', %d) IF NOT EXISTS", branch, by)
	}
	for i, c := range []client{p.here, p.there} {
		p.works(c, insert(fmt.Sprint("ready", i), 0))
	}
	unknown := 0
	for i := range 50 {
		branch := fmt.Sprint("b", i)
		answers := [2]outcome{}
		var both taskGroup
		for by, c := range []client{p.here, p.there} {
			both.Go(func() error {
				answers[by] = p.do(c, insert(branch, by+1))
				return nil
			})
		}
		require.NoError(t, both.Wait())
		var stored int
		require.NoError(t, p.direct.Query("SELECT balance FROM "+p.keyspace+".accounts WHERE branch = ? AND id = 'x'", branch).Scan(&stored))
		applied := 0
		for by, o := range answers {
			switch {
			case o.err() != nil:
				unknown++
			case told(o, "[applied]") == "true":
				applied++
				assert.Equal(t, by+1, stored, "the row of the write that was applied")
			}
		}
		assert.LessOrEqual(t, applied, 1, "%v", answers)
	}
	assert.EqualValues(t, 1, p.costs(func() { p.works(p.there, insert("last", 0)) }), "LWTs of a new key")
	t.Logf("50 new keys at two proxies: the outcome of %d writes was unknown", unknown)
}
