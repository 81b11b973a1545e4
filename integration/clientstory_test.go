package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/clients"
)

// The helpers for Go play the story; those for other languages do in TestClientsTellTheSame.
func TestClientsTellTheirStory(t *testing.T) { tellStory(t, "go", "gocql1") }

// tellStory has the helpers of some languages play one story at a real proxy and a real node.
func tellStory(t *testing.T, languages ...string) {
	s := readyTable(t, "clients_story")
	for _, language := range languages {
		t.Run(language, func(t *testing.T) {
			runDir, err := filepath.Abs(needEnvironment(t).runDir)
			require.NoError(t, err)
			start, err := clients.Command(t.Context(), language, "../clients", runDir)
			require.NoError(t, err)
			p, err := clients.Start(start())
			require.NoError(t, err)
			defer p.Close()
			n := &narrator{t: t, player: p}
			n.section(s)
			n.lost(s)
			n.once(language)
			if strings.HasPrefix(language, "go") {
				n.does("1 a locker", "a locked 2")
			}
			n.direct(s)
		})
	}
}

// narrator sends commands to the player of one language, and reads its results.
type narrator struct {
	t      *testing.T
	player *clients.Player
}

// does sends a command and returns its result, without the token of a lock.
func (n *narrator) does(command, want string) {
	n.t.Helper()
	n.tell(command)
	n.hears(want)
}

func (n *narrator) tell(command string) {
	n.t.Helper()
	id, rest, _ := strings.Cut(command, " ")
	require.NoError(n.t, n.player.Tell(id, rest))
}

func (n *narrator) hears(want string) {
	n.t.Helper()
	got, err := n.player.Hear("1")
	require.NoError(n.t, err, want)
	require.True(n.t, strings.HasPrefix(got, want), "%q, not %q", got, want)
}

// hearsBoth waits for the results of two clients in either order: b may hold the lock before a has
// its answer.
func (n *narrator) hearsBoth(a, b string) {
	n.t.Helper()
	first, err := n.player.Hear("1")
	require.NoError(n.t, err, a)
	if strings.HasPrefix(first, b) {
		a, b = b, a
	}
	require.True(n.t, strings.HasPrefix(first, a), "%q, not %q", first, a)
	n.hears(b)
}

// section plays a lock under which a client writes, for which another waits, and which is released.
func (n *narrator) section(s *tableFixture) {
	n.does("1 a open "+s.address+" "+s.keyspace+".accounts", "a open")
	n.does("1 a hold lease=3000 as=anna", "a held")
	n.does("1 a write 70", "a written")
	n.does("1 b try", "b not acquired")
	n.does("1 b hold wait=100", "b not acquired")
	n.does("1 a plain 5", "a no marker")
	n.tell("1 b hold wait=20000")
	n.does("1 a settle 60", "a landed")
	n.does("1 a batch 61", "a written")
	n.does("1 a read 0", "a reads 61")
	n.tell("1 a release")
	n.hearsBoth("a released", "b held")
	n.does("1 b read 0", "b reads 61")
	n.does("1 b fail", "b failed")
	n.hears("b released")
	o := s.works(s.client, "SELECT balance FROM ACCOUNTS WHERE branch = 'zurich' AND id = 'x'")
	assert.Equal(n.t, "61", o.cell("balance"))
}

// lost plays a lock that is renewed and then ended by force.
func (n *narrator) lost(s *tableFixture) {
	n.does("1 a hold lease=2000", "a held")
	n.tell("1 a lost")
	s.works(s.client, "UNLOCK ACCOUNTS WHERE branch = 'zurich' FORCE REASON 'the story'")
	n.hears("a lost")
	n.does("1 a write 1", "a lost")
	n.does("1 a release", "a lost")
}

// once plays a run of a name, and the same run again.
func (n *narrator) once(name string) {
	n.tell("1 a once story_" + name + " 22")
	n.hears("a works")
	n.hears("a ran")
	n.does("1 a once story_"+name+" 22", "a not run")
}

// direct plays a helper whose address is not a proxy's.
func (n *narrator) direct(s *tableFixture) {
	n.does("1 a open "+needEnvironment(n.t).direct()+" "+s.keyspace+".accounts", "a open")
	n.does("1 a hold", "a no proxy")
	n.does("1 a try", "a no proxy")
}
