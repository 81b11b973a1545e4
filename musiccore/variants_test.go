package musiccore

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// variantsPage is the table that people read, written anew with UPDATE_DOCS=1.
const variantsPage = "../docs/variants.md"

// variantSeeds is how many seeds the simulation has to find a variant, unless
// its file says otherwise.
const variantSeeds = 2000

// variant is a known-bad change of a source file, kept as
// testdata/variants/<name>.txt: its description, and the lines that it takes
// out (-) and puts in (+), between lines that stay. One of them is built with
// `go test -overlay`, so that nothing of it is in the product.
type variant struct {
	name     string
	what     string // it does wrong
	mark     string // a section of docs/protocol.md, an invariant, or a question of the oracle
	by       string // the test that finds it, where the simulation does not
	harmless string // why nothing finds it
	seeds    int
	hunks    []hunk
}

// hunk is one place of a change.
type hunk struct{ file, old, new string }

// found is how a variant was found.
type found struct {
	by   string // a test, or "simulation"
	seed int    // the first that fails
	said string // the rule that spoke
}

func variants(t *testing.T) []variant {
	t.Helper()
	files, err := filepath.Glob("testdata/variants/*.txt")
	require.NoError(t, err, "no variants")
	require.NotEmpty(t, files, "no variants: %v", err)
	var all []variant
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		v, err := parseVariant(string(text))
		require.NoError(t, err, f)
		v.name = strings.TrimSuffix(filepath.Base(f), ".txt")
		all = append(all, v)
	}
	return all
}

func parseVariant(text string) (variant, error) {
	v := variant{seeds: variantSeeds}
	parts := strings.Split(text, "\nfile: ")
	for line := range strings.Lines(parts[0]) {
		if err := v.head(strings.TrimSpace(line)); err != nil {
			return v, err
		}
	}
	for _, p := range parts[1:] {
		file, lines, _ := strings.Cut(p, "\n")
		v.hunks = append(v.hunks, parseHunk(file, lines))
	}
	if v.what == "" || v.mark == "" || len(v.hunks) == 0 {
		return v, fmt.Errorf("a variant needs what, mark and file")
	}
	return v, nil
}

// head takes one line of a variant's head.
func (v *variant) head(line string) (err error) {
	name, value, _ := strings.Cut(line, ": ")
	switch name {
	case "":
	case "what":
		v.what = value
	case "mark":
		v.mark = value
	case "by":
		v.by = value
	case "harmless":
		v.harmless = value
	case "seeds":
		v.seeds, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("what is %q?", line)
	}
	return err
}

func parseHunk(file, lines string) hunk {
	h := hunk{file: strings.TrimSpace(file), old: "\n", new: "\n"}
	for line := range strings.Lines(strings.TrimRight(lines, "\n") + "\n") {
		switch line[0] {
		case '-':
			h.old += line[1:]
		case '+':
			h.new += line[1:]
		default:
			h.old += line[1:]
			h.new += line[1:]
		}
	}
	return h
}

// patched is the source with the variant in it.
func (v variant) patched() (map[string]string, error) {
	files := map[string]string{}
	for _, h := range v.hunks {
		if files[h.file] == "" {
			text, err := os.ReadFile(h.file)
			if err != nil {
				return nil, err
			}
			files[h.file] = string(text)
		}
		if n := strings.Count(files[h.file], h.old); n != 1 {
			return nil, fmt.Errorf("the lines that it changes are in %s %d times:%s", h.file, n, h.old)
		}
		files[h.file] = strings.Replace(files[h.file], h.old, h.new, 1)
	}
	return files, nil
}

// overlay writes the changed files to a folder and answers what replaces what.
// The simulation needs no other tests, and is built faster without them.
func (v variant) overlay(dir string) (map[string]string, error) {
	here, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	replace := map[string]string{}
	tests, err := filepath.Glob("*_test.go")
	for _, name := range tests {
		if v.by == "" && !strings.HasPrefix(name, "sim") {
			replace[filepath.Join(here, name)] = ""
		}
	}
	if err != nil {
		return nil, err
	}
	files, err := v.patched()
	for name, text := range files {
		to := filepath.Join(dir, name)
		replace[filepath.Join(here, name)] = to
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return replace, err
}

// build makes the package's test binary with the variant in it.
func (v variant) build(dir string) (string, error) {
	replace, err := v.overlay(dir)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "variant.test")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o", binary, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return binary, nil
}

// hunt runs the simulation, or the variant's test, against it.
func (v variant) hunt(binary string) (found, string) {
	args := []string{"-test.timeout=120s", "-sim.brief", "-sim.workers=1", fmt.Sprintf("-sim.seeds=%d", v.seeds)}
	test := "TestSimulation"
	if v.by != "" {
		test = v.by
		args = append(args, "-rapid.nofailfile") // what it finds here is no find
	}
	var out bytes.Buffer
	cmd := exec.Command(binary, append(args, "-test.run=^"+test+"$")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err == nil {
		return found{}, out.String()
	}
	if v.by != "" {
		return found{by: v.by}, out.String()
	}
	seed, said := 0, "a panic or no end"
	if m := regexp.MustCompile(`seed (\d+): ([^:\n]+)`).FindStringSubmatch(out.String()); m != nil {
		seed, _ = strconv.Atoi(m[1])
		said = m[2]
	}
	return found{by: "simulation", seed: seed, said: said}, out.String()
}

var allVariants = flag.Bool("variants.all", false, "look for every known-bad variant, and not only for a sample")

// sampled is how many variants there are for each one that every run looks for: a build and a hunt for all take minutes.
const sampled = 12

// TestVariants: each known-bad variant is found, or there is a written reason why it is harmless. A
// variant that nothing finds means that a test is missing.
func TestVariants(t *testing.T) {
	all := variants(t)
	finds := make([]found, len(all))
	t.Run("all", func(t *testing.T) {
		room := make(chan struct{}, min(2, runtime.GOMAXPROCS(0)))
		for i, v := range all {
			if !*allVariants && i%sampled != 1 {
				continue
			}
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				room <- struct{}{}
				defer func() { <-room }()
				finds[i] = v.find(t)
			})
		}
	})
	if os.Getenv("UPDATE_DOCS") != "" && *allVariants && !t.Failed() {
		require.NoError(t, os.WriteFile(variantsPage, []byte(variantsTable(all, finds)), 0o600))
	}
}

func (v variant) find(t *testing.T) found {
	binary, err := v.build(t.TempDir())
	require.NoError(t, err)
	f, out := v.hunt(binary)
	t.Logf("%+v", f)
	switch {
	case f.by == "" && v.harmless == "":
		assert.Fail(t, "nothing finds it", "%s\n%s", v.what, out)
	case f.by != "" && v.harmless != "":
		assert.Fail(t, "not harmless at all", "%s\n%s", v.harmless, out)
	}
	return f
}

func variantsTable(all []variant, finds []found) string {
	var b strings.Builder
	b.WriteString(variantsHead)
	for i, v := range all {
		f := finds[i]
		by := fmt.Sprintf("simulation, seed %d: %s", f.seed, f.said)
		switch {
		case v.harmless != "":
			by = "harmless: " + v.harmless
		case v.by != "":
			by = "`" + v.by + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.name, v.mark, v.what, by)
	}
	return b.String()
}

const variantsHead = `# Known-bad variants

Each row is a change of musiccore's source that breaks the protocol, kept in ` + "`musiccore/testdata/variants`" + `. ` +
	"`make variants`" + ` builds
each, and fails if nothing finds it; every test run does so with one in twelve. *Mark* is what the variant breaks: a clause of docs/protocol.md 3, by its number or
name, an invariant or known error of its sections 5 and 6, or a rule of the oracle (E1 to E9, ` + "`musiccore/simoracle_test.go`" + `). *Found by* names the first seed of
the simulation that fails, with the rule that was broken, or a test. Seeds are as of the last ` + "`make variants`" + `; any change of the core or of the simulation moves them.

| variant | mark | what is broken | found by |
|---|---|---|---|
`

// TestVariantsStillApply: each variant changes lines that exist, and the test that is to find it
// exists. Only a few of the variants are built in every run.
func TestVariantsStillApply(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var tests strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		tests.Write(text)
	}
	for _, v := range variants(t) {
		_, err := v.patched()
		assert.NoError(t, err, v.name)
		assert.True(t, v.by == "" || strings.Contains(tests.String(), "\nfunc "+v.by+"(t *testing.T)"), "%s: there is no test %s", v.name, v.by)
	}
}

// TestVariantsPageIsCurrent: the page has every variant, as its file describes it.
func TestVariantsPageIsCurrent(t *testing.T) {
	page, err := os.ReadFile(variantsPage)
	require.NoError(t, err)
	all := variants(t)
	for _, v := range all {
		assert.Contains(t, string(page), fmt.Sprintf("\n| %s | %s | %s | ", v.name, v.mark, v.what), "%s does not tell of %s: run make variants", variantsPage, v.name)
	}
	rows := strings.Count(string(page), "\n| ") - 1
	assert.Equal(t, len(all), rows, "%s has %d rows for %d variants", variantsPage, rows, len(all))
}
