package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	file       string // within the checkout
	function   string
	within     [2]int // the function's lines
	line       int
	column     int
	start, end int    // of the bytes that it replaces
	with       string // what stands there instead
	old        string // what stood there, on one line
}

// String names the mutant as the page does.
func (m mutant) String() string { return fmt.Sprintf("%s:%d %s", m.file, m.line, m.what()) }

// what is the change in words.
func (m mutant) what() string {
	if m.with == "" {
		return "without `" + m.old + "`"
	}
	return "`" + m.old + "` is `" + oneLine(m.with) + "`"
}

// oneLine is a text on one line, and not longer than a reader needs to find it.
func oneLine(text string) string {
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "¦")
	if len(text) > 100 {
		text = text[:60] + " … " + text[len(text)-35:]
	}
	return text
}

// breaker collects the mutants of a file.
type breaker struct {
	file     string
	source   []byte
	set      *token.FileSet
	function string
	within   [2]int
	all      []mutant
}

// mutantsOf returns all mutants of a file.
func mutantsOf(root, file string) ([]mutant, error) {
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, fmt.Errorf("read what is to be broken: %w", err)
	}
	b := breaker{file: file, source: source, set: token.NewFileSet()}
	parsed, err := parser.ParseFile(b.set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse what is to be broken: %w", err)
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && f.Name.Name != "String" && f.Name.Name != "Error" {
			b.function, b.within = f.Name.Name, [2]int{b.set.Position(f.Pos()).Line, b.set.Position(f.End()).Line}
			ast.Inspect(f.Body, b.visit)
		}
	}
	return b.all, nil
}

// visit breaks one node in each way that there is for its kind. What says something to people alone is left as it is.
func (b *breaker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		b.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			b.negate(n.Cond)
		}
	case *ast.BinaryExpr:
		b.binary(n)
	case *ast.ExprStmt:
		if b.forPeople(n) {
			return false
		}
		b.replace(n, "")
	case *ast.DeferStmt, *ast.IncDecStmt:
		b.replace(n, "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			b.replace(n, "")
		}
	case *ast.CaseClause:
		b.clause(n)
	case *ast.ReturnStmt:
		b.returns(n)
	case *ast.CallExpr:
		return b.call(n)
	case *ast.Ident:
		b.constant(n, n.Name)
	case *ast.SelectorExpr:
		b.constant(n.Sel, n.Sel.Name)
	case *ast.BasicLit:
		b.literal(n)
	}
	return true
}

// text is the source of a node.
func (b *breaker) text(n ast.Node) string {
	return string(b.source[b.set.Position(n.Pos()).Offset:b.set.Position(n.End()).Offset])
}

// replace has something else stand where a node stands.
func (b *breaker) replace(n ast.Node, with string) {
	at := b.set.Position(n.Pos())
	old := b.text(n)
	b.all = append(b.all, mutant{
		file: b.file, function: b.function, within: b.within, line: at.Line, column: at.Column, start: at.Offset, end: at.Offset + len(old), with: with, old: oneLine(old),
	})
}

// negate turns a condition round; a comparison is turned round by its operator.
func (b *breaker) negate(cond ast.Expr) {
	if x, ok := cond.(*ast.BinaryExpr); ok && opposites()[x.Op] != token.ILLEGAL {
		return
	}
	b.replace(cond, "!("+b.text(cond)+")")
}

// opposites are the comparisons that hold where another does not.
func opposites() map[token.Token]token.Token {
	return map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	}
}

// neighbours are the operators that are easily taken for one another.
func neighbours() map[token.Token]token.Token {
	return map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.LAND: token.LOR, token.LOR: token.LAND,
		token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND,
	}
}

// binary gives an operation another operator, or leaves one of its sides out.
func (b *breaker) binary(n *ast.BinaryExpr) {
	x, y := b.text(n.X), b.text(n.Y)
	for _, ops := range []map[token.Token]token.Token{opposites(), neighbours()} {
		if op, ok := ops[n.Op]; ok {
			b.replace(n, x+" "+op.String()+" "+y)
		}
	}
	if n.Op == token.LAND || n.Op == token.LOR {
		b.replace(n, x)
		b.replace(n, y)
	}
}

// clause takes a case away, or one of the values that it is for.
func (b *breaker) clause(n *ast.CaseClause) {
	if len(n.List) == 0 {
		return
	}
	b.replace(n, "")
	for i := range n.List {
		if len(n.List) == 1 {
			break
		}
		var left []string
		for j, value := range n.List {
			if j != i {
				left = append(left, b.text(value))
			}
		}
		whole := ast.Expr(&ast.BinaryExpr{X: n.List[0], Y: n.List[len(n.List)-1]}) // its place in the source
		b.replace(whole, strings.Join(left, ", "))
	}
}

// returns has an error forgotten, or what holds turned round.
func (b *breaker) returns(n *ast.ReturnStmt) {
	for _, r := range n.Results {
		switch x := r.(type) {
		case *ast.Ident:
			if slices.Contains([]string{"err", "f", "failure"}, x.Name) {
				b.replace(x, "nil")
			}
		case *ast.UnaryExpr:
			if x.Op == token.NOT {
				b.replace(x, b.text(x.X))
			}
		}
	}
}

// call has a function be another one, or what is copied not be copied. What is said to people is left as it is.
func (b *breaker) call(n *ast.CallExpr) bool {
	name := b.text(n.Fun)
	swaps := map[string]string{"max": "min", "min": "max"}
	if other := swaps[name]; other != "" {
		b.replace(n.Fun, other)
	}
	sel, method := n.Fun.(*ast.SelectorExpr)
	switch {
	case strings.HasSuffix(name, ".Clone") && len(n.Args) == 1:
		b.replace(n, b.text(n.Args[0]))
	case method && len(n.Args) == 0 && (sel.Sel.Name == "clone" || sel.Sel.Name == "own"):
		b.replace(n, b.text(sel.X))
	case method && len(n.Args) > 0 && slices.Contains([]string{"Consistency", "SerialConsistency", "WithTimestamp", "RetryPolicy"}, sel.Sel.Name):
		b.replace(n, b.text(sel.X))
	}
	return !slices.Contains([]string{"fmt.Errorf", "errors.New", "invalid", "panic", "fmt.Sprintf"}, name) && !b.forPeople(n)
}

// forPeople reports whether a statement logs, counts or panics.
func (b *breaker) forPeople(n ast.Node) bool {
	text := b.text(n)
	for _, part := range []string{".log.", ".Log.", "log.", ".Msg(", "panic(", ".Stats.", "Stats.", ".Inc()", ".Observe(", "runtime.KeepAlive"} {
		if strings.Contains(text, part) && !strings.Contains(text, "func(") {
			return true
		}
	}
	return false
}

// swapped are names of which one is easily written for the other.
func swapped() map[string][]string {
	return map[string][]string{
		"Quorum": {"One"}, "LocalQuorum": {"LocalOne"}, "quorum": {"serial"}, "ConsistencyLevelQuorum": {"ConsistencyLevelOne"}, "ConsistencyLevelLocalQuorum": {"ConsistencyLevelLocalOne"},
		"OutcomeRefused": {"OutcomeUnknown", "OutcomeAcked"}, "OutcomeUnknown": {"OutcomeRefused"}, "OutcomeAcked": {"OutcomeUnknown"},
		"VerdictLost": {"VerdictTell"}, "VerdictUncertain": {"VerdictTell"}, "VerdictTell": {"VerdictLost"},
		"StatusRefused": {"StatusDone"}, "StatusUnknown": {"StatusRefused"}, "StatusDone": {"StatusRefused"}, "StatusAbove": {"StatusDone"},
		"Put": {"Get"}, "Get": {"Put"}, "modify": {"read"},
		"IfGuardEpoch": {"IfEpoch", "IfGuard"}, "Allow": {"Auto"}, "Reject": {"Allow"}, "Auto": {"Reject"},
		"true": {"false"}, "false": {"true"},
	}
}

// constant has a name be one that it is easily taken for.
func (b *breaker) constant(n ast.Node, name string) {
	for _, other := range swapped()[name] {
		b.replace(n, other)
	}
}

// literal has a number be the next one, and a condition of CQL not be asked.
func (b *breaker) literal(n *ast.BasicLit) {
	if n.Kind == token.INT {
		if v, err := strconv.Atoi(n.Value); err == nil {
			b.replace(n, strconv.Itoa(v+1))
		}
		return
	}
	for _, part := range []string{" IF NOT EXISTS", " AND base = ?", " IF guard = ?", " IF base = ?", " IF settings = ?"} {
		if n.Kind == token.STRING && strings.Contains(n.Value, part) {
			b.replace(n, strings.Replace(n.Value, part, "", 1))
		}
	}
}
