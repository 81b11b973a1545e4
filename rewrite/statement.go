package rewrite

import (
	"fmt"
	"slices"
)

// Statement is one statement read whole. All spans are offsets into the text
// that Parse was given, also those of Children; nothing refers to its memory.
type Statement struct {
	Verb Verb
	// AfterSelect says that SELECT is written before LOCK, UNLOCK or LIST LOCKS.
	AfterSelect     bool
	Keyspace, Table Name
	// Where holds the restrictions of WHERE; of INSERT its columns with their
	// values, as OpEq.
	Where []Relation
	// Selectors are what SELECT asks for.
	Selectors []Selector

	Assigned   // what SET assigns, or DELETE names
	JSONParts  // of INSERT JSON and SELECT JSON
	BatchParts // of a batch, and of its children
	Using      // what stands in USING
	Condition  // the IF
	Clauses    // those of LOCK, UNLOCK and FOR UPDATE

	// Cut is what plain Cassandra does not understand, in order and disjoint:
	// to remove it is all that a fenced statement needs. That of a batch holds
	// those of its children too. Empty for LOCK, UNLOCK and LIST LOCKS, which
	// are answered and not forwarded.
	Cut []Span

	BindMarkers
}

// Assigned is what SET assigns, or DELETE names.
type Assigned struct {
	// Sets are the columns, as often as they stand there.
	Sets []Name
	// ReadsOld says that what is assigned may rest on what is there: an element of
	// a list, arithmetic; of a batch, of a child. Where it is false Cassandra reads
	// nothing to carry the statement out, but for an IF.
	ReadsOld bool
	// Additions are those assignments that add to a column at its end.
	Additions []Addition
}

// Addition is column = column + value, column = column -1, or column += value, in SET.
type Addition struct {
	Column Name
	Span   // of all of it
	Value  Term
}

// JSONParts are what INSERT JSON is made of.
type JSONParts struct {
	// JSON says that the statement is INSERT JSON or SELECT JSON.
	JSON bool
	// JSONClause is all that stands in the place of columns and VALUES, from the
	// word JSON on, and JSONText the object: a string, or a marker.
	JSONClause Span
	JSONText   Term
	// Unset says that columns that are not named keep what they have: DEFAULT UNSET.
	Unset bool
}

// BatchParts are what a batch is made of.
type BatchParts struct {
	// Children are the statements between BEGIN BATCH and APPLY BATCH.
	Children []Statement
	// Kind is what kind of batch it is.
	Kind BatchKind
	// Whole is where a child stands.
	Whole Span
}

// BatchKind is the kind of a batch, by its number in the native protocol.
type BatchKind byte

// The kinds.
const (
	LoggedBatch BatchKind = iota
	UnloggedBatch
	CounterBatch
)

// BindMarkers are the places of a statement that take a bound value.
type BindMarkers struct {
	// Markers counts the bind markers of the statement, those of the proxy's own
	// clauses included; of a batch, those of its children too.
	Markers int
	// MarkerNames are the names of the first of these markers, up to the last
	// that has one; an absent name stands for ?.
	MarkerNames []Name
	// MarkersAt are the offsets at which the markers begin.
	MarkersAt []int
}

// OwnMarkers returns the bind markers in what Cut takes out of a statement, in
// the order of the text, without those of a batch's children.
func (s *Statement) OwnMarkers() []Term {
	var own []Term
	for _, t := range []Term{s.Lock, s.Wait, s.Lease} {
		if t.Kind == TermMarker {
			own = append(own, t)
		}
	}
	slices.SortFunc(own, func(a, b Term) int { return a.Marker - b.Marker })
	return own
}

// OwnMarker reports whether OwnMarkers has the bind marker of an index.
func (s *Statement) OwnMarker(marker int) bool {
	return s.Lock.isMarker(marker) || s.Wait.isMarker(marker) || s.Lease.isMarker(marker)
}

// Using is what a USING clause holds. An absent term has Kind NoTerm.
type Using struct {
	// Lock is the lock reference: an integer of any sign, or a marker.
	Lock Term
	TTL  Term
	// Timestamp is the value of the client's own TIMESTAMP: an integer, or a marker.
	Timestamp Term
	// UsingClause is where the whole clause stands with its keyword; of a write
	// without one it is empty, and lies where one may stand.
	UsingClause Span
}

// Condition is the IF of a statement.
type Condition struct {
	// Conditional says that there is an IF, and If is where it stands, with its
	// keyword.
	Conditional bool
	If          Span
	// Exists says that it is IF EXISTS or IF NOT EXISTS; Conditions are what it
	// compares otherwise.
	Exists     bool
	Conditions []Relation
}

// Clauses are what LOCK, UNLOCK and FOR UPDATE take beside the key. Durations
// and integers are literals of that kind or markers.
type Clauses struct {
	// ForUpdate says that SELECT ends in FOR UPDATE.
	ForUpdate bool

	Wait, Lease               Term
	Owner, Token              Term // AS 'who', TOKEN uuid
	Limit, Reason             Term
	NoWait, SkipLocked, Force bool
}

// TermKind is what a value is.
type TermKind byte

// Term kinds. TermOther is a value that Cassandra has to evaluate: a function,
// a collection, arithmetic, a cast.
const (
	NoTerm TermKind = iota
	TermString
	TermInteger
	TermFloat
	TermBoolean
	TermUUID
	TermBlob
	TermDuration
	TermNull
	TermMarker
	TermOther
)

// Term is a value as written. The zero value is an absent one.
type Term struct {
	Kind TermKind
	Span
	// Marker is the index of the bind marker in the whole text, from 0; -1 if
	// the term is none.
	Marker int
	// Name is that of a named marker, without its colon.
	Name Name
}

// isMarker reports whether the term is the bind marker of an index.
func (t *Term) isMarker(marker int) bool { return t.Kind == TermMarker && t.Marker == marker }

// Op is how a relation restricts its column.
type Op byte

// Ops. Only OpEq and OpIn say what the key is; of OpOther nothing but Column
// may be relied on, and that may be absent.
const (
	OpOther       Op = iota
	OpEq             // column = term
	OpIn             // column IN (terms) | column IN marker
	OpCompare        // column < term, and <= > >= !=
	OpToken          // TOKEN (columns) = term, or another comparison
	OpTuple          // (columns) = term, another comparison, or IN
	OpContains       // column CONTAINS term, in IF alone
	OpContainsKey    // column CONTAINS KEY term, likewise
)

// Relation is one restriction.
type Relation struct {
	Column Name
	// Element is what stands in brackets behind the column, and Field what
	// stands behind it after a dot: of a condition alone, where only a part of
	// the column is compared.
	Element Term
	Field   Name
	Op      Op
	// Sign is the comparison of OpCompare: < <= > >= or !=.
	Sign Span
	// Behind is what stands behind the column of OpIn, from the word IN on.
	Behind Span
	// Value is what stands on the right; Values the terms of an IN list.
	Value  Term
	Values []Term
}

// Terms returns the values of a relation, with that of its element.
func (r *Relation) Terms() []Term {
	all := slices.Clone(r.Values)
	for _, t := range []Term{r.Element, r.Value} {
		if t.Kind != NoTerm {
			all = append(all, t)
		}
	}
	return all
}

// SelectorKind is what a SELECT asks for in one place.
type SelectorKind byte

// Selector kinds.
const (
	OtherSelector  SelectorKind = iota
	StarSelector                // *
	ColumnSelector              // a column, without field or element
	CountSelector               // count(*) or count(1)
)

// Selector is one thing that SELECT asks for. Span is what stands before AS.
type Selector struct {
	Kind SelectorKind
	Span
	Column Name
	Alias  Name
}

// SyntaxError says what is wrong with a text and where.
type SyntaxError struct {
	Span
	// Message is for the person who wrote the statement.
	Message string
}

// Error returns the message with the place as a byte offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s (at byte %d)", e.Message, e.Start)
}
