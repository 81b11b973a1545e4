package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/catalog"
	"music/musiccore"
)

// storedTable is a table's row in music.tables: what its locks rest on, whatever the comment says
// meanwhile. The zero value is no row.
type storedTable struct {
	closed musiccore.Stamp
	text   string // settings as storedText writes them
	err    error  // why it could not be read

	unlocked catalog.Policy // of the settings
}

// storedCentre stands before the data centre in the settings of a table with scope=local. Nobody
// writes it in a comment: it is where the proxy stands that made the table critical.
const storedCentre = ", dc="

// storedText returns what stands in music.tables for a table: the settings as its locks rest on
// them.
func (t *dataTable) storedText() string {
	if !t.Settings.Local {
		return t.Settings.String()
	}
	return t.Settings.String() + storedCentre + t.centre
}

// readStored reads the table's row at QUORUM. An error is kept for settle: a table whose row cannot
// be read gets no locks, and is critical all the same.
func (r *schemaReader) readStored(ctx context.Context, t *dataTable) {
	var closed int64
	err := r.session.Query("SELECT closed, settings FROM music.tables WHERE id = ?", gocql.UUID(t.ID)).Consistency(gocql.Quorum).
		ScanContext(ctx, &closed, &t.stored.text)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		t.stored.err = fmt.Errorf("read music.tables of %s: %w", t, err)
		return
	}
	t.stored.closed = musiccore.Stamp(closed)
	t.stored.err = t.keepStored()
}

// keepStored gives a table the settings that its lock rows rest on: all where its comment is lost,
// else key and scope, in which they were made. The data centre is the one that was written first,
// lock rows or not: two would decide separately (docs/protocol.md 6, M3).
func (t *dataTable) keepStored() error {
	if t.stored.text == "" || t.stored.text == plainSettings && t.Marked {
		return nil
	}
	text, dc, _ := strings.Cut(t.stored.text, storedCentre)
	old, _, err := catalog.ReadSettings("@critical(" + text + ")")
	if err != nil && t.Made {
		return fmt.Errorf("settings of %s in music.tables: %w", t, err)
	}
	t.centre, t.stored.unlocked = dc, old.Unlocked
	switch {
	case !t.Made:
	case !t.Marked:
		t.Settings = old
	case t.Settings.Row != old.Row || t.Settings.Local != old.Local:
		t.ignored = fmt.Sprintf("its comment asks for %s, and key and scope stay while there are lock rows: %s", t.Settings, old)
		t.Settings.Row, t.Settings.Local = old.Row, old.Local
	}
	return nil
}
