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

// String returns the name of the mutant on the page.
func (m mutant) String() string { return fmt.Sprintf("%s:%d %s", m.file, m.line, m.what()) }

// what returns the change in words.
func (m mutant) what() string {
	if m.with == "" {
		return "without `" + m.old + "`"
	}
	return "`" + m.old + "` is `" + oneLine(m.with) + "`"
}

// oneLine returns a text on one line, shortened.
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

// visit adds a mutant of a node for each change that there is for its kind. Log lines and other
// texts for people are left as they are.
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

// text returns the source of a node.
func (b *breaker) text(n ast.Node) string {
	return string(b.source[b.set.Position(n.Pos()).Offset:b.set.Position(n.End()).Offset])
}

// replace adds a mutant with another text in place of a node.
func (b *breaker) replace(n ast.Node, with string) {
	at := b.set.Position(n.Pos())
	old := b.text(n)
	b.all = append(b.all, mutant{
		file: b.file, function: b.function, within: b.within, line: at.Line, column: at.Column, start: at.Offset, end: at.Offset + len(old), with: with, old: oneLine(old),
	})
}

// negate negates a condition; a comparison by its operator.
func (b *breaker) negate(cond ast.Expr) {
	if x, ok := cond.(*ast.BinaryExpr); ok && opposites()[x.Op] != token.ILLEGAL {
		return
	}
	b.replace(cond, "!("+b.text(cond)+")")
}

// opposites returns the comparisons that hold where another does not.
func opposites() map[token.Token]token.Token {
	return map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	}
}

// neighbours returns operators that are easily confused.
func neighbours() map[token.Token]token.Token {
	return map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.LAND: token.LOR, token.LOR: token.LAND,
		token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND,
	}
}

// binary replaces an operator, or leaves out one of the operands.
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

// clause removes a case, or one of its values.
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

// returns drops a returned error, or negates a returned bool.
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

// call replaces the called function, or leaves out a copy. Texts for people are left as they are.
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

// swapped returns names that are easily confused.
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

// constant replaces a name by one that it is easily confused with.
func (b *breaker) constant(n ast.Node, name string) {
	for _, other := range swapped()[name] {
		b.replace(n, other)
	}
}

// literal replaces a number by the next one, and leaves out a condition of CQL.
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
