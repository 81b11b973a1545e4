package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// scene tells one of everything.
func scene(s *screen) {
	s.title("1. Money moves")
	s.say("A teller takes the lock of the branch and moves money.")
	l := line{prompt: "proxy>", look: cyan, screen: s}
	s.beside(l.look, l.prompt, shown(takeLock, []any{branch}))
	l.answer(dim, "HELD, lock_ref %d", 7)
	s.say("Nothing stands beside this.")
	s.change("%d of %d", 3, 40)
	s.verdict("The audit balances.")
	s.note("demo: ok")
	s.rest()
}

func TestPlainLines(t *testing.T) {
	var out strings.Builder
	scene(&screen{out: &out})
	assert.Equal(t, `
1. Money moves
   A teller takes the lock of the branch and moves money.
     proxy> SELECT LOCK bank.accounts WHERE branch = 'zurich' WAIT 5s;
         => HELD, lock_ref 7
   Nothing stands beside this.
   The audit balances.
demo: ok
`, out.String())
}

func TestTwoColumns(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.split(80)
	scene(s)
	assert.Equal(t, `
1. Money moves
A teller takes the lock of   proxy> SELECT LOCK bank.accounts WHERE branch =
the branch and moves money.         'zurich' WAIT 5s;
                                 => HELD, lock_ref 7
Nothing stands beside this.
   The audit balances.
demo: ok
`, out.String())
}

func TestWordsGoOnBesideNothing(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.split(80)
	s.say("These words need more than one line of their column, and little is sent.")
	s.beside(plain, "node>", "SELECT 1")
	s.note("end")
	assert.Equal(t, `These words need more than   node> SELECT 1
one line of their column,
and little is sent.
end
`, out.String())
}

func TestColumnsFitAnyWidth(t *testing.T) {
	for width := 1; width <= 200; width++ {
		var out strings.Builder
		s := &screen{out: &out}
		s.split(width)
		scene(s)
		if width < narrowest {
			assert.Zero(t, s.right, "%d columns are one", width)
			continue
		}
		for line := range strings.Lines(out.String()) {
			assert.Less(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width)
		}
	}
}

func TestTheChangingLine(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, live: true}
	s.split(narrowest)
	s.change("1 of 2")
	s.change("%s", strings.Repeat("ü", 100))
	s.note("done")
	assert.Equal(t, "\r\x1b[K   1 of 2"+"\r\x1b[K   "+strings.Repeat("ü", narrowest-4)+"\r\x1b[Kdone\n", out.String())
}

func TestColours(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, colour: true}
	s.split(80)
	s.beside(red, "=>", "MUSIC_LOST")
	assert.Equal(t, strings.Repeat(" ", s.left+gap)+"\x1b[31m=>\x1b[0m MUSIC_LOST\n", out.String())
}

func TestProgressOfOthers(t *testing.T) {
	var out strings.Builder
	n, err := (&screen{out: &out}).Write([]byte("starting\nready\n"))
	assert.NoError(t, err)
	assert.Equal(t, 15, n)
	assert.Equal(t, "starting\nready\n", out.String())
}

func TestWrap(t *testing.T) {
	cases := []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{" one two three", 8, []string{" one two", " three"}},
		{"a music_lock_0123", 8, []string{"a", "music_lo", "ck_0123"}},
		{"äöü äöü", 3, []string{"äöü", "äöü"}},
	}
	for _, tc := range cases {
		assert.Equal(t, tc.want, wrap(tc.text, tc.width), "%q", tc.text)
	}
}
