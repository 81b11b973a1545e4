package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chosenMutant is the environment variable that chooses the mutant of a bundle.
const chosenMutant = "MUSIC_MUTANT"

// bundle is a set of mutants in one test binary: each function has a copy for each of its mutants
// and one without, and calls the chosen copy. Building each mutant alone would take most of a run's
// time.
type bundle struct {
	*bench
	mutants []mutant
	broken  []bool   // by mutant: it does not build
	unfit   []string // tests that do not pass with copies of functions
}

// tries is how often a bundle is built again without the mutants that did not compile.
const tries = 8

// build makes the test binaries, with those mutants that compile.
func (b *bundle) build(ctx context.Context) (err error) {
	b.broken = make([]bool, len(b.mutants))
	for range tries {
		var places []place
		if places, err = b.write(); err != nil {
			return err
		}
		err = b.compileAll(ctx)
		var told *buildError
		if !errors.As(err, &told) || !b.exclude(told.out, places) {
			break
		}
	}
	return err
}

// compileAll makes the test binary of each package, and returns all errors.
func (b *bundle) compileAll(ctx context.Context) error {
	for _, folder := range b.folders {
		err := b.compile(ctx, folder, b.binary(folder, ".test"), "-ldflags=-s -w", "-gcflags=music/"+b.folders[0]+"/...=-e", "-overlay", filepath.Join(b.dir, "overlay.json"))
		if err != nil {
			return err
		}
	}
	return nil
}

// place is a mutant's lines in a file.
type place struct {
	file     string
	from, to int
	mutant   int
}

// complaint matches an error of the compiler.
var complaint = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `)

// exclude marks the mutants that the compiler reports as broken, and reports whether there are any.
func (b *bundle) exclude(out []byte, places []place) (any bool) {
	for _, m := range complaint.FindAllSubmatch(out, -1) {
		line, _ := strconv.Atoi(string(m[2]))
		for _, p := range places {
			if strings.HasSuffix(string(m[1]), p.file) && p.from <= line && line <= p.to {
				any = any || !b.broken[p.mutant]
				b.broken[p.mutant] = true
			}
		}
	}
	return any
}

// write writes the mutated files, and the overlay that replaces the product's by them.
func (b *bundle) write() (places []place, err error) {
	overlay := map[string]string{}
	put := func(file string, text []byte) error {
		to := filepath.Join(b.dir, file)
		overlay[filepath.Join(b.root, file)] = to
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o750), os.WriteFile(to, text, 0o600))
	}
	const chooser = "package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar chosenMutant, _ = strconv.Atoi(os.Getenv(%q))\n"
	var faults []error
	for _, folder := range b.folders {
		faults = append(faults, put(filepath.Join(folder, "mutants_chosen.go"), fmt.Appendf(nil, chooser, filepath.Base(folder), chosenMutant)))
	}
	for _, file := range b.files() {
		text, of, err := b.source(file)
		if err != nil {
			return nil, err
		}
		places = append(places, of...)
		faults = append(faults, put(file, text))
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	faults = append(faults, err, os.WriteFile(filepath.Join(b.dir, "overlay.json"), list, 0o600))
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("write mutants: %w", err)
	}
	return places, nil
}

// files returns the files that have mutants.
func (b *bundle) files() (all []string) {
	for _, m := range b.mutants {
		if !slices.Contains(all, m.file) {
			all = append(all, m.file)
		}
	}
	return all
}

// source returns a file with all its mutants, and where they are.
func (b *bundle) source(file string) (text []byte, places []place, err error) {
	original, err := os.ReadFile(filepath.Join(b.root, file))
	if err != nil {
		return nil, nil, fmt.Errorf("read what is to be broken: %w", err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, original, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, fmt.Errorf("parse what is to be broken: %w", err)
	}
	var out, copies bytes.Buffer
	at := 0
	type copied struct{ from, to, mutant int } // lines of copies
	var made []copied
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		sig := signatureOf(original, set, f)
		var calls strings.Builder
		for id, m := range b.mutants {
			if m.file != file || b.broken[id] || m.start < sig.bodyStart || m.end > sig.bodyEnd {
				continue
			}
			calls.WriteString(sig.call(f.Name.Name, id+1))
			from := bytes.Count(copies.Bytes(), []byte("\n"))
			fmt.Fprintf(&copies, "\n%s%s%s%s}\n", sig.head(fmt.Sprint(f.Name.Name, "_mutant", id+1)), original[sig.bodyStart:m.start], m.with, original[m.end:sig.bodyEnd])
			made = append(made, copied{from + 1, bytes.Count(copies.Bytes(), []byte("\n")), id})
		}
		if calls.Len() == 0 {
			continue
		}
		out.Write(original[at:sig.start])
		out.WriteString(sig.head(f.Name.Name) + calls.String())
		at = sig.bodyStart
	}
	out.Write(original[at:])
	before := bytes.Count(out.Bytes(), []byte("\n"))
	for _, c := range made {
		places = append(places, place{file, before + c.from, before + c.to + 1, c.mutant})
	}
	out.Write(copies.Bytes())
	return out.Bytes(), places, nil
}

// signature is what is needed to declare and call a function's copies.
type signature struct {
	start, bodyStart, bodyEnd int // in the source; the body without its braces

	receiver, receiverName string
	types, typeNames       string
	parameters, arguments  string
	results                string
}

// signatureOf returns the signature of a declaration. Unnamed parameters get names.
func signatureOf(source []byte, set *token.FileSet, f *ast.FuncDecl) signature {
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	text := func(n ast.Node) string { return string(source[offset(n.Pos()):offset(n.End())]) }
	s := signature{start: offset(f.Pos()), bodyStart: offset(f.Body.Lbrace) + 1, bodyEnd: offset(f.Body.Rbrace)}
	if f.Doc != nil {
		s.start = offset(f.Type.Func)
	}
	unnamed := 0
	named := func(list *ast.FieldList) (declared, names []string) {
		for _, field := range list.List {
			var own []string
			for _, n := range field.Names {
				own = append(own, n.Name)
			}
			if len(own) == 0 {
				own = []string{"_"}
			}
			for i, n := range own {
				if n == "_" {
					unnamed++
					own[i] = fmt.Sprint("unnamed", unnamed)
				}
			}
			declared = append(declared, strings.Join(own, ", ")+" "+text(field.Type))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				own[len(own)-1] += "..."
			}
			names = append(names, own...)
		}
		return declared, names
	}
	if f.Recv != nil {
		declared, names := named(f.Recv)
		s.receiver, s.receiverName = "("+declared[0]+") ", names[0]+"."
	}
	if f.Type.TypeParams != nil {
		declared, names := named(f.Type.TypeParams)
		s.types, s.typeNames = "["+strings.Join(declared, ", ")+"]", "["+strings.Join(names, ", ")+"]"
	}
	declared, names := named(f.Type.Params)
	s.parameters, s.arguments = strings.Join(declared, ", "), strings.Join(names, ", ")
	if f.Type.Results != nil {
		s.results = text(f.Type.Results) + " "
	}
	return s
}

// head returns the declaration of the function under a name.
func (s *signature) head(name string) string {
	return "func " + s.receiver + name + s.types + "(" + s.parameters + ") " + s.results + "{"
}

// call returns the statement that calls a mutant's copy if it is the chosen one.
func (s *signature) call(name string, id int) string {
	call := fmt.Sprintf("%s%s_mutant%d%s(%s)", s.receiverName, name, id, s.typeNames, s.arguments)
	if s.results == "" {
		return fmt.Sprintf(" if chosenMutant == %d { %s; return };", id, call)
	}
	return fmt.Sprintf(" if chosenMutant == %d { return %s };", id, call)
}

// failed is a test that did not pass.
var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+) `)

// checkTests removes the tests that fail in the bundle without a mutant: those that count
// allocations, since a function with copies makes more.
func (b *bundle) checkTests(ctx context.Context) {
	for _, folder := range b.folders {
		var names []string
		for _, t := range b.tests {
			if t.folder == folder && !t.node {
				names = append(names, t.name)
			}
		}
		plain := runOf{binary: b.binary(folder, ".test"), folder: folder, silence: 2 * time.Minute}
		out, _ := b.runTests(ctx, plain, "-test.v", "-test.run=^("+strings.Join(names, "|")+")$")
		for _, m := range failed.FindAllSubmatch(out, -1) {
			fmt.Printf("%s does not pass where functions have copies, and judges nothing here\n", m[1])
			b.unfit = append(b.unfit, folder+" "+string(m[1]))
		}
	}
}
