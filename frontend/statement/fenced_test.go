package statement

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A write that also deletes what is older is a batch: the values of its key come first.
func TestFenced(t *testing.T) {
	for text, want := range map[string]string{
		"INSERT INTO t (a, b, c, v) VALUES (?, 2, 3, ?) IF NOT EXISTS ;": `BEGIN UNLOGGED BATCH DELETE FROM "ks"."t" USING TIMESTAMP ? WHERE "a" = ? AND "b" = 2; INSERT INTO "ks".t (a, b, c, v) VALUES (?, 2, 3, ?); APPLY BATCH`,
		"INSERT INTO t (a, b, c, v) VALUES (?, 2, 3, ?) -- new":          "",
		"INSERT INTO t (a, b, c, v) VALUES (?, 2, 3, ?) /* new */ ;":     "",
	} {
		s := autoStatement(t, false, text, "k", one(4))
		q, ok := s.Fenced(s.Write(RequestStamps))
		assert.Equal(t, want != "", ok, text)
		if ok {
			assert.Equal(t, want, string(q.Text))
			assert.Equal(t, [][]byte{nil, bound("k"), bound("k"), bound(one(4))}, q.Values)
		}
	}
	s := autoStatement(t, true, "INSERT INTO t (a, b, c, v) VALUES ('k', 2, 3, 4) IF NOT EXISTS")
	q, _ := s.Fenced(s.Write(RequestStamps))
	assert.Contains(t, string(q.Text), `WHERE "a" = 'k' AND "b" = 2 AND "c" = 3; INSERT`, "the key is a row")
}
