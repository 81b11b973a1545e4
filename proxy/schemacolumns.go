package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"music/frontend/catalog"
	"music/musiccore"
	"music/proxy/synchronise"
	"music/rewrite"
)

// perStatement is how many tables one statement asks about at most. Operators can have Cassandra
// refuse longer lists (its guardrails partition_keys_in_select and in_select_cartesian_product).
const perStatement = 20

// family is some tables, by keyspace and name, that one statement can ask about: it asks for all that
// have one of these keyspaces and one of these names.
type family struct {
	keyspaces, names []string
	tables           map[[2]string]*dataTable
}

// families puts tables into families with at most perStatement keyspaces and names each.
func families(tables []*dataTable) (all []*family) {
	var f *family
	for _, t := range slices.SortedFunc(slices.Values(tables), func(a, b *dataTable) int { return strings.Compare(a.String(), b.String()) }) {
		if f == nil || !f.add(t) {
			f = &family{tables: map[[2]string]*dataTable{}}
			f.add(t)
			all = append(all, f)
		}
	}
	return all
}

// add reports whether there is room for a table.
func (f *family) add(t *dataTable) bool {
	keyspaces, names := with(f.keyspaces, t.keyspace), with(f.names, t.name)
	if max(len(keyspaces), len(names)) > perStatement {
		return false
	}
	f.keyspaces, f.names = keyspaces, names
	f.tables[[2]string{t.keyspace, t.name}] = t
	return true
}

// with returns a set with a member.
func with(set []string, member string) []string {
	if slices.Contains(set, member) {
		return set
	}
	return append(set, member)
}

// readColumns reads the columns of tables, and sets Refused where a column keeps a table from being
// locked.
func (r *schemaReader) readColumns(ctx context.Context, tables ...*dataTable) error {
	for _, f := range families(tables) {
		if err := r.readPresent(ctx, f); err != nil {
			return err
		}
		if err := r.readDropped(ctx, f); err != nil {
			return err
		}
		if err := r.readMasks(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// columnRow is a row of system_schema.columns.
type columnRow struct {
	name, cqlType, kind string
	position            int
	written             int64
}

// readPresent reads the columns that tables have.
func (r *schemaReader) readPresent(ctx context.Context, f *family) error {
	iter := r.ask("SELECT keyspace_name, table_name, column_name, type, kind, position, WRITETIME(type) FROM system_schema.columns WHERE keyspace_name IN ? AND table_name IN ?",
		f.keyspaces, f.names).IterContext(ctx)
	read := map[[2]string][]columnRow{}
	var table [2]string
	for c := (columnRow{}); iter.Scan(&table[0], &table[1], &c.name, &c.cqlType, &c.kind, &c.position, &c.written); {
		read[table] = append(read[table], c)
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read columns: %w", err)
	}
	for name, t := range f.tables {
		t.setColumns(read[name], r.release)
	}
	return nil
}

// setColumns sets what follows from the rows of a table's columns.
func (t *dataTable) setColumns(rows []columnRow, release string) {
	partition, clustering := map[int]catalog.Column{}, map[int]catalog.Column{}
	t.Columns = map[string]catalog.Column{}
	var text strings.Builder
	for _, c := range rows {
		fmt.Fprintf(&text, "%q %s %s;", c.name, c.cqlType, c.kind)
		column := catalog.Column{Name: c.name, Type: c.cqlType, Static: c.kind == "static", Clustering: c.kind == "clustering"}
		t.Columns[c.name] = column
		switch c.kind {
		case "partition_key":
			partition[c.position] = column
		case "clustering":
			clustering[c.position] = column
		case "static":
			t.Static = append(t.Static, c.name)
		}
		switch {
		case synchronise.Foreign(c.cqlType):
			t.Refused = fmt.Sprintf("its column %s is of type %s, a class that the proxy does not know and cannot read: move it to another table", c.name, c.cqlType)
		case !releaseTellsElements(release) && manyCells(c.cqlType, c.kind):
			t.Refused = fmt.Sprintf("its column %s is not frozen: Cassandra %s does not show the times to live in it: make it frozen, or run Cassandra 5.0 and restart the proxies then", c.name, release)
		}
	}
	t.definition = text.String()
	t.born = t.commentSince(rows)
	t.cover(partition, clustering)
}

// commentSince reports whether the comment marks the table, and is as old as all of its columns and as the
// table's id, if that tells. A CREATE makes them at once; an ALTER writes the properties anew, and no column that it leaves
// alone: a RENAME may leave none.
func (t *dataTable) commentSince(rows []columnRow) bool {
	later := func(c columnRow) bool { return c.written != t.written }
	renamed := t.created() != 0 && t.written-t.created() >= musiccore.ClockGap.Microseconds()
	return t.Marked && !t.named && t.written != 0 && !renamed && len(rows) > 0 && !slices.ContainsFunc(rows, later)
}

// manyCells reports whether a column has a cell for each of its elements or fields.
func manyCells(cqlType, kind string) bool {
	if kind != "regular" && kind != "static" {
		return false
	}
	return synchronise.MultiCell(cqlType)
}

// readDropped adds the dropped columns with their times to the definitions of tables. A column that
// was dropped and added again looks as before, but hides values that were stamped before the drop.
func (r *schemaReader) readDropped(ctx context.Context, f *family) error {
	iter := r.ask("SELECT keyspace_name, table_name, column_name, dropped_time FROM system_schema.dropped_columns WHERE keyspace_name IN ? AND table_name IN ?",
		f.keyspaces, f.names).IterContext(ctx)
	var table [2]string
	var column string
	var at time.Time
	for iter.Scan(&table[0], &table[1], &column, &at) {
		if t := f.tables[table]; t != nil {
			t.checkDropped(column, at)
			t.definition += fmt.Sprintf("%q dropped %d;", column, at.UnixMilli())
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read dropped columns: %w", err)
	}
	return nil
}

// readMasks sets Refused where a column of a table is masked. A client without the right to see the
// value gets the mask in its place when the proxy reads for an IF or an addition, which Cassandra
// evaluates on the value; and a Synch cannot write such a column back.
func (r *schemaReader) readMasks(ctx context.Context, f *family) error {
	if !releaseHasMasks(r.releaseOfNode()) {
		return nil
	}
	iter := r.ask("SELECT keyspace_name, table_name, column_name FROM system_schema.column_masks WHERE keyspace_name IN ? AND table_name IN ?",
		f.keyspaces, f.names).IterContext(ctx)
	var table [2]string
	for column := ""; iter.Scan(&table[0], &table[1], &column); {
		if t := f.tables[table]; t != nil {
			t.Refused = fmt.Sprintf("its column %s is masked, and the proxy would take the mask for the value: ALTER TABLE %s ALTER %s DROP MASKED", column, t, rewrite.Quote(column))
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read masks: %w", err)
	}
	return nil
}

// checkDropped looks at a column that was dropped, at a time that Cassandra shows in milliseconds. If
// it is back, what is stamped before that time Cassandra takes, and shows nobody: locks write above.
// Clocks may differ; a time of the future refuses the table.
func (t *dataTable) checkDropped(column string, at time.Time) {
	_, back := t.Columns[column]
	switch {
	case !back:
	case time.Until(at) <= musiccore.ClockGap:
		t.hidden = max(t.hidden, musiccore.Stamp(at.UnixMicro()+int64(time.Millisecond/time.Microsecond)-1))
	default:
		t.Refused = fmt.Sprintf("its column %s was dropped USING TIMESTAMP of the future, and what is written to it until %s is hidden: DROP it without a timestamp, and ADD it again",
			column, at.UTC().Format(time.DateTime))
	}
}

// cover sets the columns of the primary key and those that one lock covers, by position. Two
// spellings of one key would be two locks, so each key column must have a type for which
// rewrite.Canonical knows when two values are equal: Cassandra sorts sets and maps and fills up
// tuples before it looks for a partition, and compares clustering columns by value. Decimals of
// clustering columns are refused, since 1.00 would be written as 1.
func (t *dataTable) cover(partition, clustering map[int]catalog.Column) {
	for i := range len(partition) {
		c := partition[i]
		t.Key = append(t.Key, c)
		t.Primary = append(t.Primary, c.Name)
		if _, known := rewrite.Canonical(c.Type, nil); !known {
			t.Refused = fmt.Sprintf("its key column %s is of type %s, whose values may be spelt in several ways: use a key of another type", c.Name, c.Type)
		}
	}
	for i := range len(clustering) {
		t.Primary = append(t.Primary, clustering[i].Name)
	}
	for i := 0; t.Settings.Row && i < len(clustering); i++ {
		c := clustering[i]
		t.Key = append(t.Key, c)
		if _, known := rewrite.Canonical(c.Type, nil); !known || c.Type == "decimal" {
			t.Refused = fmt.Sprintf("key=row, and its clustering column %s is of type %s, whose values may be spelt in several ways: lock partitions (without key=row)", c.Name, c.Type)
		}
	}
	t.prepareTexts()
}
