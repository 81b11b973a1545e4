package parser

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"music/rewrite"
)

// verdict is the result of comparing one text.
type verdict struct {
	valid  bool   // Cassandra takes it
	unread bool   // and rewrite does not understand it
	fault  string // what rewrite reads otherwise
}

// judge compares rewrite's result with Cassandra's answer.
func judge(text, answer string) verdict {
	tokens, statement, lexes := strings.Cut(answer, "\t")
	if !lexes {
		return verdict{}
	}
	if f := judgeTokens(text, tokens); f != "" {
		return verdict{fault: f}
	}
	// rewrite takes `expr(` for a function: custom index expressions have a grammar of their own.
	if statement == "PARSEERR" || strings.Contains(text, "expr(") {
		return verdict{}
	}
	head := rewrite.ReadHead([]byte(text), true)
	if !head.Complete || head.Verb == rewrite.Unknown {
		return verdict{valid: true, fault: fmt.Sprintf("head %+v, Cassandra %s", head, statement)}
	}
	if f := judgeFirstParts([]byte(text), head); f != "" {
		return verdict{valid: true, fault: f}
	}
	switch head.Verb {
	case rewrite.Select, rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Batch:
		return judgeStatement([]byte(text), statement)
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks, rewrite.Transaction:
		return verdict{valid: true, fault: "taken for one of the proxy's own, and Cassandra takes it"}
	}
	return verdict{valid: true, fault: judgeNames([]byte(text), head, statement)}
}

// judgeTokens compares the places of the tokens.
func judgeTokens(text, want string) string {
	places, _, invalid := lexed(text)
	if invalid {
		return "rewrite says that it is no CQL"
	}
	var got []string
	for _, p := range places {
		got = append(got, fmt.Sprintf("%d-%d", p.Start, p.End))
	}
	if strings.Join(got, " ") == want || strings.Contains(text, "expr(") {
		return ""
	}
	return fmt.Sprintf("tokens %v, Cassandra %s", got, want)
}

// judgeFirstParts checks that the first parts of a text are classified as the whole, or not at all.
func judgeFirstParts(text []byte, whole rewrite.Head) string {
	for i := range text {
		if part := rewrite.ReadHead(text[:i], false); part.Complete && part != whole {
			return fmt.Sprintf("the first %d bytes say %+v, all of them %+v", i, part, whole)
		}
	}
	return ""
}

// judgeStatement compares a statement that rewrite has parsed.
func judgeStatement(text []byte, want string) verdict {
	s, err := rewrite.Parse(text)
	switch {
	case err != nil && (strings.Contains(err.Error(), "as many values") || strings.Contains(err.Error(), "twice")):
		return verdict{} // Cassandra says so later than its parser
	case err != nil:
		return verdict{valid: true, unread: true}
	case len(s.Cut) > 0:
		return verdict{valid: true, fault: "something of it would be cut, and Cassandra takes it"}
	}
	if got := written(text, s, s.Markers); got != oneLine(want) {
		return verdict{valid: true, fault: fmt.Sprintf("%s\n\tCassandra %s", got, want)}
	}
	return verdict{valid: true}
}

// judgeNames compares the names in the head of a statement of which rewrite reads no more.
func judgeNames(text []byte, h rewrite.Head, answer string) string {
	kind := h.Schema.Kind
	if h.Verb == rewrite.Other || h.Verb == rewrite.Schema && slices.Contains([]rewrite.SchemaKind{rewrite.SchemaOther, rewrite.SchemaFunction, rewrite.SchemaAggregate}, kind) {
		return ""
	}
	want := name(text, h.Keyspace) + "." + name(text, h.Table)
	switch {
	case kind == rewrite.SchemaKeyspace || h.Verb == rewrite.Use:
		want = name(text, h.Keyspace)
	case h.Table.Empty():
		want = name(text, h.Schema.Object)
	case kind == rewrite.SchemaView && h.Schema.Action == rewrite.Create:
		want = "." + name(text, h.Table)
	}
	if names := strings.Split(answer, "|")[1]; !strings.Contains(names, want) {
		return fmt.Sprintf("the head names %q, Cassandra %s", want, answer)
	}
	return ""
}

// written returns a statement in the form of testdata/Oracle.java.
func written(text []byte, s rewrite.Statement, markers int) string {
	var w strings.Builder
	w.WriteString(class(s) + "|")
	if s.Verb != rewrite.Batch {
		w.WriteString("qualifiedName=" + name(text, s.Keyspace) + "." + name(text, s.Table))
	}
	var where []string
	for _, r := range s.Where {
		where = append(where, relation(text, r))
	}
	w.WriteString("|" + strconv.Itoa(markers) + "|" + strings.Join(where, " & ") + "|")
	if s.Verb == rewrite.Insert || s.Verb == rewrite.Update || s.Verb == rewrite.Delete {
		w.WriteString(strconv.FormatBool(s.Conditional))
	}
	if s.Timestamp.Kind != rewrite.NoTerm {
		w.WriteString(" ts")
	}
	if s.TTL.Kind != rewrite.NoTerm {
		w.WriteString(" ttl")
	}
	for _, child := range s.Children {
		w.WriteString(" {" + written(text, child, 0) + "}") // the batch counts the markers
	}
	return w.String()
}

// class returns Cassandra's name for a kind of statement.
func class(s rewrite.Statement) string {
	switch s.Verb {
	case rewrite.Select:
		return "SelectStatement$RawStatement"
	case rewrite.Insert:
		if s.JSON {
			return "UpdateStatement$ParsedInsertJson"
		}
		return "UpdateStatement$ParsedInsert"
	case rewrite.Update:
		return "UpdateStatement$ParsedUpdate"
	case rewrite.Delete:
		return "DeleteStatement$Parsed"
	}
	return "BatchStatement$Parsed"
}

func relation(text []byte, r rewrite.Relation) string {
	switch {
	case r.Op == rewrite.OpEq:
		return name(text, r.Column) + "=" + value(text, r.Value)
	case r.Op == rewrite.OpIn && r.Value.Kind != rewrite.NoTerm:
		return name(text, r.Column) + " IN " + value(text, r.Value)
	case r.Op == rewrite.OpIn:
		in := name(text, r.Column) + " IN "
		for _, v := range r.Values {
			in += value(text, v) + ";"
		}
		return in
	}
	return "~"
}

func value(text []byte, v rewrite.Term) string {
	written := string(v.Of(text))
	switch v.Kind {
	case rewrite.TermMarker:
		return "?"
	case rewrite.TermNull, rewrite.TermOther:
		return "*"
	case rewrite.TermString:
		s, _ := rewrite.String(text, v)
		return oneLine("'" + s + "'")
	case rewrite.TermFloat:
		switch strings.ToLower(written) {
		case "nan", "-nan":
			return "NaN"
		case "infinity":
			return "Infinity"
		case "-infinity":
			return "-Infinity"
		}
	}
	return written
}

func name(text []byte, n rewrite.Name) string { return oneLine(string(n.AppendTo(nil, text))) }

// oneLine returns a text as the oracle writes it.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(s) }
