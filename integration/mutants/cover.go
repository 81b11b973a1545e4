package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// block is a range of a file that a test ran through.
type block struct{ fromLine, fromColumn, toLine, toColumn int }

// holds reports whether a place lies in the block.
func (b block) holds(line, column int) bool {
	after := line > b.fromLine || line == b.fromLine && column >= b.fromColumn
	return after && (line < b.toLine || line == b.toLine && column <= b.toColumn)
}

// in reports whether the block lies within lines.
func (b block) in(lines [2]int) bool { return lines[0] <= b.fromLine && b.toLine <= lines[1] }

// reaching returns the tests that run through the changed place. The value of a case is in no
// block: the tests that run through its function reach it.
func (b *bench) reaching(m mutant) (all []test) {
	outside := !slices.ContainsFunc(b.known[m.file], func(x block) bool { return x.holds(m.line, m.column) })
	for _, t := range b.tests {
		if slices.ContainsFunc(t.blocks[m.file], func(x block) bool { return x.holds(m.line, m.column) || outside && x.in(m.within) }) {
			all = append(all, t)
		}
	}
	return all
}

// measure finds out how long each test takes and which lines it reaches. A test that fails without
// a mutant is left out.
func (b *bench) measure(ctx context.Context, workers int) error {
	b.known = map[string][]block{}
	for _, folder := range b.folders {
		if err := b.measureFolder(ctx, folder, workers); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// measureFolder measures the tests of one package.
func (b *bench) measureFolder(ctx context.Context, folder string, workers int) error {
	binary := b.binary(folder, ".cover.test")
	err := b.compile(ctx, folder, binary, "-cover", "-coverpkg=./"+strings.Join(b.folders, ",./"))
	if err != nil {
		return err
	}
	names, err := b.listTests(ctx, folder, binary)
	if err != nil {
		return err
	}
	found := make([]*test, len(names))
	var measuring sync.WaitGroup
	for worker := range workers {
		measuring.Go(func() {
			for i := worker; i < len(names); i += workers {
				var err error
				if found[i], err = b.measured(ctx, runOf{binary: binary, folder: folder, silence: time.Minute}, names[i], i == 0); err != nil {
					fmt.Printf("%s does not pass and judges nothing: %v\n", names[i], err)
				}
			}
		})
	}
	measuring.Wait()
	for _, t := range found {
		if t != nil {
			b.tests = append(b.tests, *t)
		}
	}
	return nil
}

// listTests returns the tests of a package that may judge.
func (b *bench) listTests(ctx context.Context, folder, binary string) (names []string, err error) {
	list := exec.CommandContext(ctx, binary, "-test.list=^Test") //nolint:gosec // our own
	list.Dir = filepath.Join(b.root, folder)
	list.Env = append(os.Environ(), "MUSIC_TEST_CASSANDRA=none") // nothing is to be started for a list
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", folder, err)
	}
	skip := regexp.MustCompile(b.skip)
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Test") && (b.skip == "" || !skip.MatchString(name)) {
			names = append(names, name)
		}
	}
	return names, nil
}

// measured runs one test alone. With all, blocks that it does not reach are returned, too.
func (b *bench) measured(ctx context.Context, r runOf, name string, all bool) (*test, error) {
	profile := filepath.Join(b.dir, "profile-"+name)
	start := time.Now()
	args := []string{"-test.v", "-test.run=^" + name + "$", "-test.coverprofile=" + profile}
	out, err := b.runTests(ctx, r, args...)
	r.node = b.address != "" && bytes.Contains(out, []byte("\n--- SKIP: "+name+" "))
	if r.node {
		start = time.Now()
		_, err = b.runTests(ctx, r, args...)
	}
	if err != nil {
		return nil, err
	}
	t := &test{folder: r.folder, name: name, took: time.Since(start), node: r.node, blocks: map[string][]block{}}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, fmt.Errorf("read what %s reaches: %w", name, err)
	}
	for line := range strings.Lines(string(text)) {
		at, blk, reached := readBlock(line)
		if all {
			b.known[at] = append(b.known[at], blk)
		}
		if reached {
			t.blocks[at] = append(t.blocks[at], blk)
			t.size++
		}
	}
	return t, nil
}

// blockText matches a line of a profile: file:line.column,line.column statements count.
var blockText = regexp.MustCompile(`^music/(\S+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)\n$`)

// readBlock parses a line of a profile; reached reports whether the test ran through its block.
func readBlock(line string) (file string, b block, reached bool) {
	m := blockText.FindStringSubmatch(line)
	if m == nil {
		return "", b, false
	}
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[2+i])
	}
	return m[1], block{n[0], n[1], n[2], n[3]}, m[6] != "0"
}
