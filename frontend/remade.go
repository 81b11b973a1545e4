package frontend

import (
	"slices"

	"music/frontend/catalog"
)

// preparedTable is a table of a prepared statement as it was then.
type preparedTable struct {
	*catalog.Table
	id [16]byte // zero if it was not critical
}

// preparedTables returns the tables that a statement names as they are now: its table or, of a BATCH
// text, those of its statements.
func (c *conn) preparedTables(s *lockStatement) (all []preparedTable) {
	seen := map[*catalog.Table]bool{nil: true} // which has never been critical
	add := func(t *catalog.Table) {
		if seen[t] {
			return
		}
		seen[t] = true
		p := preparedTable{Table: t}
		if now := t.Critical(); now != nil {
			p.id = now.ID
		}
		all = append(all, p)
	}
	add(s.Table)
	for _, name := range s.Names {
		add(c.classifier.Named(name))
	}
	return all
}

// remade reports whether a critical table has the name of a table of the statement and is another one,
// made after a DROP. What the client binds is of the columns of the table that is gone. Cassandra has
// forgotten its statements, but is not asked about this one where others are sent in its place.
func (p *preparedLockStatement) remade() bool {
	return slices.ContainsFunc(p.of, func(t preparedTable) bool {
		now := t.Critical()
		return now != nil && now.ID != t.id
	})
}
