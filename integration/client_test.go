package integration

import (
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
)

// client is one driver's session, whatever the driver.
type client interface {
	// run carries out a statement and tells everything that the driver shows of the answer.
	run(s statement) outcome
	close()
}

// driver is a way to connect; every driver is asked for the same things.
type driver struct {
	name    string
	version int // of the protocol; 0 = the driver's choice
	bound   bool
	open    func(t testing.TB, address, keyspace string) client
}

// statement is one request in words that every driver understands.
type statement struct {
	name    string // of the case, in reports
	cql     string
	values  []any // bound to a prepared statement; unset{} and named{} among them
	page    int   // rows a page; 0 = the driver's choice
	payload map[string][]byte
	trace   bool
	stamp   int64 // write timestamp in the frame; 0 = the driver's choice
	level   string
	batch   batchKind
	parts   []statement // of a batch
	least   int         // protocol version from which on it makes sense
	fails   bool        // Cassandra refuses it
}

// batchKind says whether a statement is a BATCH message, and which.
type batchKind byte

const (
	noBatch batchKind = iota
	logged
	unlogged
	counters
)

// unset is a value that is bound but not set.
type unset struct{}

// named is a value bound by its marker's name.
type named struct {
	name  string
	value any
}

// outcome is what a driver shows of an answer.
type outcome struct {
	columns  []string
	rows     [][]string
	warnings []string
	payload  string
	traced   bool
	pages    int
	failure  *failure
}

// failure is an error as a driver shows it. A code of 0 is an error that did not come from the server.
type failure struct {
	code int
	text string
}

// String is the outcome on a few lines, the same for equal outcomes.
func (o outcome) String() string {
	var b strings.Builder
	if o.failure != nil {
		fmt.Fprintf(&b, "error %#04x %s\n", o.failure.code, o.failure.text)
	}
	if len(o.columns) > 0 {
		fmt.Fprintf(&b, "%s\n", strings.Join(o.columns, " | "))
	}
	for _, row := range o.rows {
		fmt.Fprintf(&b, "  %s\n", strings.Join(row, " | "))
	}
	for _, w := range o.warnings {
		fmt.Fprintf(&b, "warning %s\n", w)
	}
	if o.payload != "" || o.traced || o.pages > 1 {
		fmt.Fprintf(&b, "payload %q traced %v pages %d\n", o.payload, o.traced, o.pages)
	}
	return b.String()
}

// err is the outcome's error, or nil.
func (o outcome) err() error {
	if o.failure == nil {
		return nil
	}
	return fmt.Errorf("%w %#04x: %s", errAnswered, o.failure.code, o.failure.text)
}

// errAnswered marks an error that a driver has shown.
var errAnswered = errors.New("error")

// cell is the value of a column in the only row, "" where there is none.
func (o outcome) cell(column string) string {
	if len(o.rows) != 1 {
		return ""
	}
	for i, name := range o.columns {
		if name == column {
			return o.rows[0][i]
		}
	}
	return ""
}

// show prints a value that a driver has scanned: the same text for equal values, whatever pointers lead to it.
func show(v any) string {
	if v == nil {
		return "null"
	}
	if s, ok := v.(fmt.Stringer); ok && !nilPointer(v) {
		return s.String()
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer, reflect.Interface:
		if r.IsNil() {
			return "null"
		}
		return show(r.Elem().Interface())
	case reflect.Slice:
		if raw, ok := v.([]byte); ok {
			return showBytes(raw)
		}
		return showList(r)
	case reflect.Array:
		return showList(r)
	case reflect.Map:
		return showMap(r)
	case reflect.String:
		return fmt.Sprintf("%q", r.String())
	}
	return fmt.Sprint(v)
}

// nilPointer reports whether a value is a pointer to nothing: its String must not be called.
func nilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// showBytes tells an empty value from none.
func showBytes(raw []byte) string {
	if raw == nil {
		return "null"
	}
	return fmt.Sprintf("0x%x", raw)
}

// showList tells an empty list from none.
func showList(r reflect.Value) string {
	if r.Kind() == reflect.Slice && r.IsNil() {
		return "null"
	}
	var parts []string
	for i := range r.Len() {
		parts = append(parts, show(r.Index(i).Interface()))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// showMap is the same for equal maps, whatever order Go gives.
func showMap(r reflect.Value) string {
	if r.IsNil() {
		return "null"
	}
	var parts []string
	for _, key := range r.MapKeys() {
		parts = append(parts, show(key.Interface())+": "+show(r.MapIndex(key).Interface()))
	}
	sort.Strings(parts)
	return "{" + strings.Join(parts, ", ") + "}"
}
