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
	// run executes a statement and returns everything that the driver shows of the answer.
	run(s statement) outcome
	close()
}

// driver connects clients of one driver; all drivers get the same statements.
type driver struct {
	name    string
	version int // of the protocol; 0 = the driver's choice
	bound   bool
	open    func(t testing.TB, address, keyspace string) client
}

// statement is one request, independent of the driver.
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

// String returns the outcome on a few lines; equal outcomes give equal texts.
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

// err returns the outcome's error, or nil.
func (o outcome) err() error {
	if o.failure == nil {
		return nil
	}
	return fmt.Errorf("%w %#04x: %s", errAnswered, o.failure.code, o.failure.text)
}

// errAnswered is wrapped by errors that a driver returned.
var errAnswered = errors.New("error")

// cell returns the value of a column of the only row, or "" if there is none.
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

// show returns a value that a driver has scanned as text: equal texts for equal values, whatever
// pointers lead to them.
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

// nilPointer reports whether a value is a nil pointer, whose String must not be called.
func nilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// showBytes distinguishes an empty value from null.
func showBytes(raw []byte) string {
	if raw == nil {
		return "null"
	}
	return fmt.Sprintf("0x%x", raw)
}

// showList distinguishes an empty list from null.
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

// showMap returns the same text for equal maps, whatever the order of iteration.
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
