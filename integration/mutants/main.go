// Command mutants breaks the product, one line at a time, and reports which breakages no test finds.
//
// Each mutant is one change of one expression or statement. They are built together with `go test -overlay`, so that nothing of them is in
// the product, and one of them is chosen where the tests are run. It is
// judged by the tests that reach its line, of those that need no Cassandra. What none of them finds is a survivor: a missing test, or a
// change that is harmless. docs/mutants.md lists them with the reason of each, and is written anew by every run.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"music/integration/cassandra"
)

// target is packages that are mutated together, and judged by the tests of all of them.
type target struct {
	folders []string // of the packages
	files   []string // patterns, each of which must find one; one that begins with ! takes away what those before it took
	share   int      // of a hundred mutants of a sample
	skip    string   // tests that judge nothing here
	args    []string // of its test binaries
	node    bool     // some of its tests need a Cassandra: they judge what no other test finds
}

// targets returns the packages that locks rely on.
func targets() []target {
	return []target{
		{
			folders: []string{"frontend", "frontend/catalog", "frontend/classify", "frontend/condition", "frontend/relay", "frontend/topology", "frontend/wire"},
			files:   []string{"frontend/*.go", "frontend/catalog/*.go", "frontend/classify/*.go", "frontend/condition/*.go", "frontend/relay/*.go", "frontend/topology/*.go", "frontend/wire/*.go"}, share: 50,
			skip: "^(TestClientThatNeverReads|TestAnswersDoNotPileUp|TestNoWriteSlipsPastOutstanding)$", // they need seconds each, and others see the same lines
		},
		{
			folders: []string{"proxy", "proxy/peer", "proxy/synchronise"}, files: proxyFiles(), share: 25, node: true,
		},
		{
			// The variants change the same lines, so they would notice every mutant.
			folders: []string{"musiccore"}, files: []string{"musiccore/*.go", "!musiccore/doc.go"}, share: 25, skip: "^TestVariants",
			args: []string{"-sim.brief", "-sim.seeds=300", "-sim.workers=1"},
		},
	}
}

// proxyFiles are the files of proxy that locks rely on.
func proxyFiles() []string {
	files := []string{"proxy/synchronise/*.go", "proxy/peer/*.go"}
	for _, name := range []string{
		"heartbeat", "sessions", "beat", "clock", "executor", "generation", "locks", "shard", "remote", "barrier", "agreement", "stored", "schema", "schemachange", "schemareader", "scope", "datatable",
		"secret",
	} {
		files = append(files, "proxy/"+name+".go")
	}
	return files
}

// options are the values of the flags.
type options struct {
	root    string
	n       int
	seed    uint64
	only    string
	workers int
	limit   time.Duration
	page    string
	journal string
	node    bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the checkout")
	flag.IntVar(&o.n, "n", 320, "how many mutants to try; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "which ones")
	flag.StringVar(&o.only, "only", "", "mutants of files that contain this alone")
	flag.IntVar(&o.workers, "workers", 2, "how many to try at once")
	flag.DurationVar(&o.limit, "for", 0, "begin no mutant after this time; 0: until all have been tried")
	flag.StringVar(&o.page, "page", "docs/mutants.md", "the page of survivors; empty: none is written")
	flag.StringVar(&o.journal, "journal", ".run/mutants.jsonl", "where verdicts are kept, so that a run goes on where one was ended; empty: nowhere")
	flag.BoolVar(&o.node, "node", true, "start a Cassandra, for what only tests with one can judge")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run judges a sample of mutants of each target and writes the page. It fails if more survive
// unexplained than the goal allows.
func run(ctx context.Context, o options) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return fmt.Errorf("find the checkout: %w", err)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kept, err := openJournal(root, o.journal)
	if err != nil {
		return err
	}
	defer func() { _ = kept.Close() }()
	var all []tried
	start := time.Now()
	for _, t := range targets() {
		b := bench{target: t, root: root, dir: dir, journal: kept}
		results, err := b.run(ctx, o, start)
		if err != nil {
			return err
		}
		all = append(all, results...)
	}
	if o.page != "" && !filepath.IsAbs(o.page) {
		o.page = filepath.Join(root, o.page)
	}
	p, err := readPage(o.page)
	if err != nil {
		return err
	}
	return p.report(all, o)
}

// run judges a sample of mutants of the target, with a Cassandra if its tests need one.
func (b *bench) run(ctx context.Context, o options, start time.Time) ([]tried, error) {
	if files, err := b.chosenFiles(o.only); err != nil || len(files) == 0 {
		return nil, err
	}
	if b.node && o.node {
		cluster, err := cassandra.Start(ctx, cassandra.Options{
			Dir: filepath.Join(b.root, ".run", "mutants"), Address: func(int) string { return "127.0.13.1" }, FastJIT: true, Properties: cassandra.Once(), Log: os.Stderr,
		})
		if err != nil {
			return nil, fmt.Errorf("start a Cassandra: %w", err)
		}
		defer func() { _ = cluster.Close() }()
		b.address = cluster.ContactPoints()[0]
	}
	all, err := b.choose(ctx, o)
	if err != nil {
		return nil, err
	}
	return b.try(ctx, all, o, start)
}

// choose returns the mutants of the target in the order of the seed.
func (b *bench) choose(ctx context.Context, o options) ([]mutant, error) {
	files, err := b.chosenFiles(o.only)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, f := range files {
		found, err := mutantsOf(b.root, f)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	fmt.Printf("%s: %d mutants of %d files; which tests reach which line?\n", b.folders[0], len(all), len(files))
	if err := b.measure(ctx, o.workers); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(o.seed, 0)) //nolint:gosec // a choice that can be repeated is meant
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// chosenFiles are the target's files, by their paths within the checkout.
func (b *bench) chosenFiles(only string) (chosen []string, err error) {
	taken := map[string]bool{}
	for _, pattern := range b.files {
		pattern, without := strings.CutPrefix(pattern, "!")
		found, err := filepath.Glob(filepath.Join(b.root, pattern))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("files of %s: %s finds %d: %w", b.folders[0], pattern, len(found), cmp.Or(err, fs.ErrNotExist))
		}
		for _, name := range found {
			file := filepath.Join(filepath.Dir(pattern), filepath.Base(name))
			if strings.HasSuffix(name, "_test.go") || taken[file] || without || !strings.Contains(file, only) {
				taken[file] = taken[file] || without
				continue
			}
			taken[file] = true
			chosen = append(chosen, file)
		}
	}
	return chosen, nil
}

// together is how many mutants are built into one binary.
const together = 400

// try judges mutants until there are enough.
func (b *bench) try(ctx context.Context, all []mutant, o options, start time.Time) ([]tried, error) {
	wanted := len(all)
	switch {
	case o.n > 0 && o.only != "":
		wanted = min(wanted, o.n)
	case o.n > 0:
		wanted = min(wanted, max(1, o.n*b.share/100))
	}
	t := trial{wanted: wanted, end: func() bool { return ctx.Err() != nil || o.limit > 0 && time.Since(start) > o.limit }}
	for first := 0; first < len(all) && !t.enough(); {
		// Some of them will not compile.
		n := min(together, len(all)-first, (wanted-len(t.results))*5/4+8)
		if err := b.tryBundle(ctx, &bundle{bench: b, mutants: all[first : first+n]}, &t, o.workers); err != nil {
			return nil, err
		}
		first += n
	}
	return t.results, nil
}

// trial is the result for one target so far.
type trial struct {
	wanted int
	end    func() bool

	mu      sync.Mutex
	results []tried
}

// enough reports whether enough mutants were judged.
func (t *trial) enough() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.results) >= t.wanted || t.end()
}

// add records a verdict.
func (t *trial) add(r tried) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results = append(t.results, r)
	fmt.Printf("%4d/%d %-9s %s\n", len(t.results), t.wanted, r.fate, r.mutant)
}

// tryBundle builds a bundle, and judges its mutants until there are enough.
func (b *bench) tryBundle(ctx context.Context, all *bundle, t *trial, workers int) error {
	if err := all.build(ctx); err != nil {
		return err
	}
	all.checkTests(ctx)
	var next atomic.Int32
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for !t.enough() {
				id := int(next.Add(1)) - 1
				if id >= len(all.mutants) {
					return
				}
				all.tryOne(ctx, id, t)
			}
		})
	}
	working.Wait()
	return nil
}

// tryOne judges one mutant, unless an earlier run has.
func (b *bundle) tryOne(ctx context.Context, id int, t *trial) {
	r, before := b.journal.verdict(b.mutants[id])
	if !before {
		r = b.judge(ctx, id)
	}
	if r.fate == unjudged || ctx.Err() != nil {
		return
	}
	if !before {
		b.journal.note(r)
	}
	if r.fate != broken {
		t.add(r)
	}
}
