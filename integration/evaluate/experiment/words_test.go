package experiment

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The page explains each name in it, and tells of its figures what they tell themselves, not what the last run was.
func TestThePageExplainsItself(t *testing.T) {
	known := map[string]bool{}
	for _, w := range rows() {
		assert.False(t, known[w.name], w.name)
		known[w.name] = true
	}
	for _, e := range All() {
		for _, s := range e.Systems {
			name, _, _ := strings.Cut(s, ", lease ")
			assert.True(t, known[name], s)
		}
	}
	late := &Figure{Name: "fig4a", When: "2026-03-03", Version: "late", Rows: []Row{{System: MSCP}}}
	early := &Figure{Name: "fig9", When: "2026-01-01", Version: "early"}
	text := (&Report{When: "2026-02-02", Versions: map[string]string{"the product": "of the last run", "Go": "go1"}, Figures: []*Figure{late, early}}).Markdown(nil, nil)
	assert.Contains(t, text, "from\n2026-01-01 to 2026-03-03")
	assert.Contains(t, text, "| Go | go1 |\n| the product | early, late |\n")
	assert.Contains(t, text, "| MSCP | the paper's")
	assert.NotContains(t, text, "| ShedLock |", "it is in no figure")
}
