package rewrite

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewriteGolden = flag.Bool("rewrite", false, "write what comes out into testdata")

// TestGolden reads the statements of testdata: a line that starts with "> " is
// (part of) a statement, what follows up to an empty line is what Parse tells of
// it, "#" starts a remark. Change a verdict with -rewrite, then read the diff.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			got := replay(string(raw))
			if *rewriteGolden {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			require.Equal(t, string(raw), got)
		})
	}
}

// replay returns the file as it should be.
func replay(file string) string {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(file), "\n\n") {
		var statement []string
		for line := range strings.SplitSeq(block, "\n") {
			if strings.HasPrefix(line, "#") {
				fmt.Fprintln(&out, line)
			}
			if text, ok := strings.CutPrefix(line, ">"); ok {
				fmt.Fprintln(&out, line)
				statement = append(statement, strings.TrimPrefix(text, " "))
			}
		}
		if len(statement) > 0 {
			out.WriteString(tell([]byte(strings.Join(statement, "\n"))))
		}
		fmt.Fprintln(&out)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// tell returns what Parse says of text, one line a fact.
func tell(text []byte) string {
	s, err := Parse(text)
	if err != nil {
		return fmt.Sprintln("error:", err)
	}
	b := teller{text: text}
	b.statement(s)
	if s.Markers > 0 {
		b.line("markers", fmt.Sprint(s.Markers))
	}
	for i, at := range s.MarkersAt {
		if c := text[at]; len(s.MarkersAt) != s.Markers || c != '?' && c != ':' {
			b.line("marker", fmt.Sprintf("%d of %d at %d, which is %q", i, s.Markers, at, c))
		}
	}
	if len(s.Cut) > 0 {
		b.line("sent", strings.ReplaceAll(string(Apply(nil, text, s.Cut)), "\n", `\n`))
	}
	return b.out.String()
}

type teller struct {
	text   []byte
	indent string
	out    bytes.Buffer
}

func (b *teller) line(what, value string) {
	if value != "" {
		fmt.Fprintf(&b.out, "%s%s %s\n", b.indent, what, value)
	}
}

func (b *teller) flag(what string, set bool) {
	if set {
		fmt.Fprintf(&b.out, "%s%s\n", b.indent, what)
	}
}

func (b *teller) statement(s Statement) {
	front := ""
	if s.AfterSelect {
		front = "SELECT "
	}
	b.out.WriteString(strings.TrimRight(b.indent+front+s.Verb.String()+" "+b.table(s), " ") + "\n")
	for _, sel := range s.Selectors {
		b.selector(sel)
	}
	for _, r := range s.Where {
		b.relation("where", r)
	}
	var sets []string
	for _, n := range s.Sets {
		sets = append(sets, b.name(n))
	}
	b.line("sets", strings.Join(sets, " "))
	b.flag("reads old", s.ReadsOld)
	for _, a := range s.Additions {
		b.line("adds", b.name(a.Column)+" "+b.term(a.Value)+" "+string(a.Of(b.text)))
	}
	b.flag("json", s.JSON)
	b.line("json", b.term(s.JSONText))
	b.flag("unset", s.Unset)
	b.flag("conditional", s.Conditional)
	for _, r := range s.Conditions {
		b.relation("if", r)
	}
	b.flag("for update", s.ForUpdate)
	b.line("lock", b.term(s.Lock))
	b.line("ttl", b.term(s.TTL))
	b.line("timestamp", b.term(s.Timestamp))
	b.clauses(s.Clauses)
	for _, c := range s.Children {
		b.indent += "  "
		b.statement(c)
		if c.Markers > 0 {
			b.line("markers", fmt.Sprint(c.Markers))
		}
		b.indent = b.indent[2:]
	}
}

func (b *teller) table(s Statement) string {
	if s.Keyspace.Empty() || s.Table.Empty() {
		return b.name(s.Keyspace) + b.name(s.Table)
	}
	return b.name(s.Keyspace) + " . " + b.name(s.Table)
}

func (b *teller) clauses(c Clauses) {
	b.line("wait", b.term(c.Wait))
	b.flag("nowait", c.NoWait)
	b.flag("skip locked", c.SkipLocked)
	b.line("lease", b.term(c.Lease))
	b.line("owner", b.term(c.Owner))
	b.line("token", b.term(c.Token))
	b.line("limit", b.term(c.Limit))
	b.flag("force", c.Force)
	b.line("reason", b.term(c.Reason))
}

func (b *teller) name(n Name) string {
	if n.Empty() {
		return ""
	}
	return string(n.AppendTo(nil, b.text))
}

func (b *teller) term(t Term) string {
	kinds := []string{"", "string", "integer", "float", "boolean", "uuid", "blob", "duration", "null", "marker", "other"}
	switch t.Kind {
	case NoTerm:
		return ""
	case TermMarker:
		return fmt.Sprintf("%s #%d", t.Of(b.text), t.Marker)
	}
	return fmt.Sprintf("%s %s", kinds[t.Kind], t.Of(b.text))
}

func (b *teller) relation(kind string, r Relation) {
	ops := []string{"other", "=", "in", "<>", "token", "tuple", "contains", "contains key"}
	values := []string{}
	for _, v := range r.Values {
		values = append(values, b.term(v))
	}
	all := strings.Join(values, ", ")
	if r.Value.Kind != NoTerm {
		all = b.term(r.Value)
	}
	column := b.name(r.Column)
	if r.Element.Kind != NoTerm {
		column += "[" + b.term(r.Element) + "]"
	}
	if !r.Field.Empty() {
		column += "." + b.name(r.Field)
	}
	b.line(kind, strings.TrimSpace(column+" "+ops[r.Op]+" "+all))
	if kind == "where" && r.Op == OpIn {
		b.line("behind", string(r.Behind.Of(b.text)))
	}
}

func (b *teller) selector(s Selector) {
	kinds := []string{"other", "star", "column"}
	b.line("select", fmt.Sprintf("%s %s", kinds[s.Kind], s.Of(b.text)))
}
