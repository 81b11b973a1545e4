package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// told returns a history of operations on one key, one after another, each a second long.
func told(ops ...op) *history {
	h := new(history)
	for i, o := range ops {
		o.key = "k"
		if o.called == 0 {
			o.called, o.returned = time.Duration(2*i+1)*time.Second, time.Duration(2*i+2)*time.Second
		}
		h.add(o)
	}
	return h
}

// The checker finds every kind of violation, and nothing in a correct history.
func TestCheckerFinds(t *testing.T) {
	put := func(ref int64, v int, x outcome) op { return op{ref: ref, put: true, value: v, outcome: x} }
	get := func(ref int64, v int) op { return op{ref: ref, value: v, outcome: done} }
	for name, c := range map[string]struct {
		history *history
		want    string
	}{
		"a section":                        {told(put(1, 1, done), get(1, 1), put(2, 2, done), get(2, 2)), ""},
		"nothing there":                    {told(get(1, 0)), ""},
		"an unknown put shows":             {told(put(1, 1, done), put(1, 2, unknown), get(2, 2)), ""},
		"an unknown put does not show":     {told(put(1, 1, done), put(1, 2, unknown), get(2, 1)), ""},
		"a refused put does not show":      {told(put(1, 1, done), put(1, 2, refused), get(2, 1)), ""},
		"a refused put shows":              {told(put(1, 1, done), put(1, 2, refused), get(2, 2)), "does not follow"},
		"an acknowledged put is lost":      {told(put(1, 1, done), put(1, 2, done), get(2, 1)), "does not follow"},
		"an old value comes back":          {told(put(1, 1, done), put(2, 2, done), get(2, 2), get(2, 1)), "does not follow"},
		"an unknown put shows late":        {told(put(1, 1, done), put(1, 2, unknown), get(2, 1), get(2, 2)), "does not follow"},
		"an unknown put shows under it":    {told(put(1, 1, done), put(1, 2, unknown), get(1, 1), get(1, 2)), ""},
		"one that is over shows under it":  {told(put(1, 1, done), op{ref: 1, put: true, value: 2, over: true}, get(1, 1), get(1, 2)), "does not follow"},
		"a late put of the holder before":  {told(put(1, 1, done), put(2, 2, done), put(1, 3, done)), "two holders"},
		"a late get of the holder before":  {told(put(1, 1, done), put(2, 2, done), get(1, 2)), "two holders"},
		"a put that is shadowed by an old": {told(put(2, 2, done), put(3, 3, done), get(3, 2)), "does not follow"},
	} {
		got := strings.Join(c.history.check(), "\n")
		assert.True(t, c.want != "" || got == "", "%s: %q", name, got)
		assert.Contains(t, got, c.want, name)
	}
}

// A section that is entered after one of a later reference is found.
func TestInversionsAreFound(t *testing.T) {
	entered := func(refs ...int64) (all []section) {
		for i, ref := range refs {
			all = append(all, section{ref: ref, entered: time.Duration(i)})
		}
		return all
	}
	for n, sections := range [][]section{entered(1, 2, 3, 7), entered(1, 3, 2, 4), entered(3, 1, 2)} {
		assert.Equal(t, n, inversions(sections), "%v", sections)
	}
}
