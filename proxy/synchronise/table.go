package synchronise

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"music/rewrite"
)

// errNotSynchronisable says that a table can never be synchronised, whatever is in it.
var errNotSynchronisable = errors.New("table cannot be synchronised")

// storage says how a column's value is stored and asked for.
type storage uint8

// One cell: plainStorage. A cell for each element: the others.
const (
	plainStorage storage = iota
	listStorage
	setStorage
	mapStorage
	udtStorage
)

// columnLayout is a column as synchronise needs to know it. Names are quoted.
type columnLayout struct {
	name       string
	typeName   string // as system_schema has it
	storage    storage
	fields     []string // of udtStorage
	shape      tupleShape
	descending bool // a clustering column, the largest value first
}

// tableLayout is a table as synchronise needs to know it. Names are quoted; the columns of the key
// are in its order.
type tableLayout struct {
	name                  string
	partition, clustering []columnLayout
	static, regular       []columnLayout
	forgotten             int  // what has a TTL and was written before this second leaves no trace at farFuture
	repaired              bool // a read at QUORUM repairs the replicas that answered it
	staticAlone           bool // of columns outside the key it has static ones alone: who reads rows reads those, too
}

// columnDescription is a row of system_schema.columns.
type columnDescription struct {
	name, kind, typeName string
	position             int
	order                string // asc, desc or none
}

// tableDescription is what system_schema says of a table. Types has the fields of the UDTs of its
// columns.
type tableDescription struct {
	keyspace, name string
	flags          []string
	grace          int // gc_grace_seconds
	compaction     map[string]string
	readRepair     string
	columns        []columnDescription
	types          map[string][]string
	masked         bool
}

// newTableLayout makes a table out of its description, or answers errNotSynchronisable.
func newTableLayout(d tableDescription) (tableLayout, error) {
	t := tableLayout{name: rewrite.Quote(d.keyspace) + "." + rewrite.Quote(d.name), forgotten: d.forgotten(), repaired: d.readRepair == "BLOCKING"}
	if err := d.refusal(); err != nil {
		return t, fmt.Errorf("%w: %s: %w", errNotSynchronisable, t.name, err)
	}
	columns := slices.SortedFunc(slices.Values(d.columns), func(a, b columnDescription) int {
		return cmp.Or(cmp.Compare(a.position, b.position), strings.Compare(a.name, b.name))
	})
	for _, c := range columns {
		column := d.column(c)
		switch c.kind {
		case "partition_key":
			t.partition = append(t.partition, column)
		case "clustering":
			t.clustering = append(t.clustering, column)
		case "static":
			t.static = append(t.static, column)
		case "regular":
			t.regular = append(t.regular, column)
		default:
			return t, fmt.Errorf("%w: %s: column %s is of kind %s", errNotSynchronisable, t.name, column.name, c.kind)
		}
	}
	t.staticAlone = t.static != nil && t.regular == nil
	return t, nil
}

// refusal is why the table can never be synchronised.
func (d tableDescription) refusal() error {
	counter := func(c columnDescription) bool { return c.typeName == "counter" }
	switch {
	case slices.Contains(d.flags, "counter"), slices.ContainsFunc(d.columns, counter):
		return errors.New("counters take no timestamp")
	case !slices.Equal(d.flags, []string{"compound"}):
		return fmt.Errorf("compact storage: flags %v", d.flags)
	case d.masked:
		return errors.New("it has masked columns: a mask would be written back as if it were the value")
	}
	return nil
}

// forgotten is the second before which a value with a TTL must have been written, for a read at
// farFuture to be harmless. Replicas drop what has expired by then, unless gc_grace_seconds reaches
// back to when it was written, or it is to be repaired first: then they answer it as a tombstone,
// and read repair writes that over a value which still lives (AbstractCell.purge and PurgeFunction
// in Cassandra's source; seen on 5.0.8 with each of the two).
func (d tableDescription) forgotten() int {
	if d.compaction["only_purge_repaired_tombstones"] == "true" {
		return 0
	}
	return farFuture - d.grace
}

// column is a row of system_schema as synchronise needs to know it.
func (d tableDescription) column(c columnDescription) columnLayout {
	column := columnLayout{name: rewrite.Quote(c.name), typeName: c.typeName, shape: shapeOf(c.typeName), descending: c.order == "desc"}
	if name, ok := udtName(c.typeName); ok && d.types[name] != nil {
		column.storage = udtStorage
		for _, field := range d.types[name] {
			column.fields = append(column.fields, rewrite.Quote(field))
		}
		return column
	}
	column.storage = collectionStorage(c.typeName)
	return column
}

// collectionStorage is how a collection is stored; plainStorage where it is frozen, or the type is
// none.
func collectionStorage(typeName string) storage {
	kind, elements, _ := strings.Cut(typeName, "<")
	if elements == "" {
		return plainStorage
	}
	return map[string]storage{"list": listStorage, "set": setStorage, "map": mapStorage}[kind]
}

// MultiCell reports whether a column of this type that is not of the key has a stamp and a time to
// live for each of its elements or fields.
func MultiCell(typeName string) bool {
	_, udt := udtName(typeName)
	return udt || collectionStorage(typeName) != plainStorage
}

// udtName is the name of the UDT that a column of this type may hold without being frozen.
func udtName(typeName string) (string, bool) {
	if quoted, ok := strings.CutPrefix(typeName, `"`); ok {
		return strings.ReplaceAll(strings.TrimSuffix(quoted, `"`), `""`, `"`), true
	}
	native := []string{
		"ascii", "bigint", "blob", "boolean", "counter", "date", "decimal", "double", "duration", "float", "inet", "int",
		"smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint",
	}
	return typeName, !strings.ContainsAny(typeName, "<'") && !slices.Contains(native, typeName)
}

// multiCell reports that elements have stamps and TTLs of their own.
func (c columnLayout) multiCell() bool { return c.storage >= listStorage }

// columns are those outside the key, in the order of selection.
func (t tableLayout) columns() []columnLayout { return slices.Concat(t.static, t.regular) }

// withoutStatic is the table as if it had no static columns: they are read and written once.
func (t tableLayout) withoutStatic() tableLayout {
	t.static = nil
	return t
}

// rowAlone is the table as if each row were a partition: its key is the whole primary key, and the
// static columns are nobody's.
func (t tableLayout) rowAlone() tableLayout {
	t.partition, t.clustering, t.static = slices.Concat(t.partition, t.clustering), nil, nil
	return t
}

// selection is the SELECT of a partition's rows: the clustering columns, then of every other column
// its value, its TTL and its stamp.
func (t tableLayout) selection(pk []cqlTerm, rows clause) statement {
	var what []string
	for _, c := range t.clustering {
		what = append(what, c.selector())
	}
	for _, c := range t.columns() {
		stamp := "WRITETIME"
		if c.multiCell() {
			stamp = "MAXWRITETIME"
		}
		what = append(what, c.selector(), "TTL("+c.name+")", stamp+"("+c.name+")")
	}
	if len(what) == 0 {
		what = []string{"[" + t.partition[0].name + "]"}
	}
	return statement{
		text:   "SELECT " + strings.Join(what, ", ") + " FROM " + t.name + " WHERE " + equations(t.partition, pk, " AND ") + rows.text,
		values: append(valuesOf(pk), rows.values...),
	}
}

// selector asks for a tuple as the only element of a list: the driver takes a bare one apart, and
// what was null and what was a tuple of nulls would be the same.
func (c columnLayout) selector() string {
	if c.shape != nil {
		return "[" + c.name + "]"
	}
	return c.name
}

// key is a routing key as terms, one for each column of the partition key.
func (t tableLayout) key(pk string) ([]cqlTerm, error) {
	values, ok := rewrite.SplitRoutingKey(pk, len(t.partition))
	if !ok {
		return nil, fmt.Errorf("%w: routing key of %d bytes for %d columns", errMalformed, len(pk), len(t.partition))
	}
	terms := make([]cqlTerm, len(values))
	for i, v := range values {
		shape := t.partition[i].shape
		var err error
		if terms[i], err = shape.term(RawValue(v)); err == nil && shape != nil && v == "" {
			err = fmt.Errorf("%w: an empty tuple in a partition key", errMalformed)
		}
		if err != nil {
			return nil, err
		}
	}
	return terms, nil
}
