package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/catalog"
	"music/musiccore"
)

// storedTable is a table's row in music.tables: the settings with which its lock rows were made,
// whatever its comment says now. The zero value means that there is no row.
type storedTable struct {
	closed musiccore.Stamp
	text   string // the settings, as Settings.String writes them
	err    error  // why it could not be read

	unlocked catalog.Policy // in text
}

// storedCentre precedes the data centre in the stored settings of a table with scope=local, whose
// name may have characters that no comment can have there.
const storedCentre = ", dc="

// readStored reads the rows of tables at QUORUM. An error is stored for settle: a table whose row
// cannot be read is critical, but gets no locks. It does not keep other tables from getting theirs.
func (r *schemaReader) readStored(ctx context.Context, tables ...*dataTable) {
	for some := range slices.Chunk(tables, perStatement) {
		rows, err := r.storedRows(ctx, some)
		if err != nil && len(some) > 1 {
			for _, t := range some {
				r.readStored(ctx, t)
			}
			continue
		}
		for _, t := range some {
			if err != nil {
				t.stored.err = fmt.Errorf("read music.tables of %s: %w", t, err)
				continue
			}
			t.stored = rows[t.ID]
			t.stored.err = t.keepStored()
		}
	}
}

// storedRows returns the rows of some tables, by id.
func (r *schemaReader) storedRows(ctx context.Context, tables []*dataTable) (map[[16]byte]storedTable, error) {
	var ids []gocql.UUID
	for _, t := range tables {
		ids = append(ids, t.ID)
	}
	iter := r.session.Query("SELECT id, closed, settings FROM music.tables WHERE id IN ?", ids).Consistency(gocql.Quorum).IterContext(ctx)
	rows := map[[16]byte]storedTable{}
	var id gocql.UUID
	var closed int64
	var text string
	for iter.Scan(&id, &closed, &text) {
		rows[id] = storedTable{closed: musiccore.Stamp(closed), text: text}
	}
	return rows, iter.Close()
}

// storedSettings reads settings as music.tables has them. If they cannot be read, it returns the
// defaults, which refuse plain writes, beside the error.
func storedSettings(text string) (catalog.Settings, error) {
	text, dc, _ := strings.Cut(text, storedCentre)
	s, _, err := catalog.ReadSettings("@critical(" + text + ")")
	s.Centre = dc
	return s, err
}

// keepStored replaces settings of a table by those with which its lock rows were made: all of them
// if its comment no longer marks it as critical, else key, scope and data centre. The data centre
// stays that which was stored first, since two would decide separately (docs/protocol.md 6, M3),
// unless there are no lock rows and the comment names another.
func (t *dataTable) keepStored() error {
	if t.stored.text == "" || t.stored.text == plainSettings && t.Marked {
		return nil
	}
	old, err := storedSettings(t.stored.text)
	if err != nil && t.Made {
		return fmt.Errorf("settings of %s in music.tables: %w", t, err)
	}
	t.stored.unlocked = old.Unlocked
	asked := catalog.Critical{Made: t.Made, Settings: old}
	switch {
	case !t.Made:
		if t.Settings.Local && t.Settings.Centre == "" {
			t.Settings.Centre = old.Centre
		}
		return nil
	case !t.Marked:
		t.Settings = old
	case !asked.CanChangeTo(t.Settings):
		t.ignored = fmt.Sprintf("its comment asks for %s, and key and scope stay while there are lock rows: %s", t.Settings, old)
	}
	t.Settings.Row, t.Settings.Local, t.Settings.Centre = old.Row, old.Local, old.Centre
	return nil
}
