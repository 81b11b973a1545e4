package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// docPlayer executes the examples of one page, in order, with keyspaces and names that no other
// page uses.
type docPlayer struct {
	t     *testing.T
	page  *docPage
	proxy string // its address
	shell *shell
	fresh map[string]string // word of the page → what stands for it in this run
	refs  map[string]string // reference of the page → the one of this run
	last  string            // the reference that a setup was given last
	write bool              // what was printed is to be written into the page
	edits []docEdit
}

// The examples of every document are executed as they stand. With UPDATE_DOCS=1, what was printed
// is written into the page where it differs.
func TestDocsExamples(t *testing.T) {
	node := needDisposableNode(t).Addr()
	// The examples show references without gaps, as people see them, who type more slowly than a
	// proxy keeps a key.
	proxy := startProxy(t, func(c *config.Config) { c.Cassandra.ContactPoints, c.Music.Retain = []string{node}, 0 })
	for i, p := range docPages(t) {
		if len(p.of(kindSession, kindMarkers, kindPython, kindLines)) == 0 {
			continue
		}
		t.Run(p.path, func(t *testing.T) {
			t.Parallel() // much of it is waiting
			newPlayer(t, p, i, proxy.address).play()
		})
	}
}

// newPlayer returns the player of a page; number distinguishes it from other pages'.
func newPlayer(t *testing.T, p *docPage, number int, proxy string) *docPlayer {
	t.Helper()
	pl := &docPlayer{t: t, page: p, proxy: proxy, fresh: map[string]string{}, refs: map[string]string{}, write: os.Getenv("UPDATE_DOCS") != ""}
	for _, set := range p.of(kindSetup) {
		for _, line := range set.lines {
			if words, ok := strings.CutPrefix(line, "fresh:"); ok {
				pl.freshen(strings.Fields(words), number)
			}
		}
	}
	return pl
}

// freshen replaces each word by one of the same length, so that tables stay aligned, and with
// digits, so that it is not a keyword of CQL.
func (p *docPlayer) freshen(words []string, number int) {
	for _, word := range words {
		digits := fmt.Sprintf("%d%019d", number, time.Now().UnixNano())
		p.fresh[word] = word[:1] + digits[:1] + digits[len(digits)-len(word)+2:]
	}
}

// play executes the page.
func (p *docPlayer) play() {
	p.shell = openShell(p.t, p.proxy, "")
	for _, part := range p.page.parts {
		switch part.kind {
		case kindSetup:
			p.setUp(part)
		case kindSession:
			p.session(part)
		case kindMarkers:
			p.markers(part)
		case kindPython:
			p.python(part)
		case kindLines:
			p.commands(part)
		}
	}
	if len(p.edits) > 0 {
		p.save()
	}
	for _, word := range p.fresh {
		p.shell.ask("DROP KEYSPACE IF EXISTS " + word + ";")
	}
}

// say returns a text of the page with this run's words.
func (p *docPlayer) say(text string) string {
	for word, own := range p.fresh {
		text = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllString(text, own)
	}
	return references.ReplaceAllStringFunc(text, func(ref string) string {
		if own, ok := p.refs[ref]; ok {
			return own
		}
		return ref
	})
}

// references matches references with a tag; other numbers on a page are smaller.
var references = regexp.MustCompile(`\b[1-9]\d{6,18}\b`)

// learn maps the page's references to those that were printed, in the order in which they first
// appear.
func (p *docPlayer) learn(shown, got string) {
	page, own := references.FindAllString(shown, -1), references.FindAllString(got, -1)
	if len(page) != len(own) {
		return
	}
	taken := map[string]bool{}
	for _, ref := range p.refs {
		taken[ref] = true
	}
	for i, ref := range page {
		if _, known := p.refs[ref]; !known && !taken[own[i]] {
			p.refs[ref] = own[i]
		}
	}
}

// unsay returns a text of this run with the page's words.
func (p *docPlayer) unsay(text string) string {
	for word, own := range p.fresh {
		text = strings.ReplaceAll(text, own, word)
	}
	for ref, own := range p.refs {
		text = strings.ReplaceAll(text, own, ref)
	}
	return text
}

// setUp executes the statements of a comment.
func (p *docPlayer) setUp(part docPart) {
	p.t.Helper()
	for i, line := range part.lines {
		if !strings.HasSuffix(line, ";") {
			continue
		}
		o := readTable(p.shell.ask(strings.ReplaceAll(p.say(line), "$ref", p.last)))
		require.Nil(p.t, o.failure, "%s:%d", p.page.path, part.first+i+1)
		if len(o.rows) > 0 && slices.Contains(o.columns, "lock_ref") {
			p.last = told(o, "lock_ref")
		}
	}
}

// session types what follows the prompts and compares what is printed.
func (p *docPlayer) session(part docPart) {
	p.t.Helper()
	all := part.exchanges()
	require.NotEmpty(p.t, all, "%s:%d has no prompt", p.page.path, part.first+1)
	for _, x := range all {
		got := p.ask(x.typed)
		p.learn(strings.Join(x.printed, "\n"), got)
		want := p.say(strings.Join(x.printed, "\n"))
		switch {
		case tidy(want) == tidy(got):
		case p.write:
			p.edits = append(p.edits, docEdit{from: part.first + x.from, lines: len(x.printed), text: p.written(got)})
		default:
			assert.Fail(p.t, "the page says something else", "%s:%d: %s\nthe page says:\n%s\ncqlsh printed:\n%s", p.page.path, x.line, x.typed, want, got)
		}
	}
}

// ask types a statement. Of a list of all locks, only the page's are kept. An incomplete list is
// requested again: another test's proxy may have died just now, or the machine may be busy.
func (p *docPlayer) ask(typed string) string {
	p.t.Helper()
	got := p.shell.ask(p.say(typed))
	for end := time.Now().Add(time.Minute); strings.Contains(got, " not shown") && time.Now().Before(end); {
		got = p.shell.ask(p.say(typed))
	}
	if !regexp.MustCompile(`(?i)^(SELECT )?LIST LOCKS;`).MatchString(typed) {
		return got
	}
	var kept []string
	rows := 0
	for line := range strings.SplitSeq(got, "\n") {
		table, _, isRow := strings.Cut(strings.TrimSpace(line), " | ")
		ours := p.unsay(table) != table
		if isRow && !strings.HasPrefix(table, "table_name") && !ours {
			continue
		}
		if ours {
			rows++
		}
		kept = append(kept, regexp.MustCompile(`^\(\d+ rows\)`).ReplaceAllString(line, fmt.Sprintf("(%d rows)", rows)))
	}
	return strings.Join(kept, "\n")
}

// docEdit replaces some lines of a page.
type docEdit struct {
	from, lines int
	text        []string
}

// written returns what was printed as lines of the page.
func (p *docPlayer) written(got string) []string {
	got = strings.TrimRight(p.unsay(got), "\n")
	if got == "" {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(got, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	if lines[0] == "" {
		lines = append(lines, "") // there are empty lines before and after a table
	}
	return lines
}

// save writes the edits into the page.
func (p *docPlayer) save() {
	lines := p.page.lines
	for _, e := range slices.Backward(p.edits) {
		lines = slices.Replace(lines, e.from, e.from+e.lines, e.text...)
	}
	require.NoError(p.t, os.WriteFile(filepath.Join(docRoot, p.page.path), []byte(strings.Join(lines, "\n")), 0o600))
}
