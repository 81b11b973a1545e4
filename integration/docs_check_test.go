package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onPage returns the page of that path.
func onPage(t *testing.T, path string) *docPage {
	t.Helper()
	all := docPages(t)
	i := slices.IndexFunc(all, func(p *docPage) bool { return p.path == path })
	require.GreaterOrEqual(t, i, 0, "no %s", path)
	return all[i]
}

// sortedOnce returns the first groups of all matches, sorted and without repetition.
func sortedOnce(pattern, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// anchors returns the names under which a page's headings can be linked to.
func (p *docPage) anchors() []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(p.prose(), -1) {
		kept := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// Each link between the documents leads to a file and, where it names one, to a heading.
func TestDocsLinksLeadSomewhere(t *testing.T) {
	byPath := map[string]*docPage{}
	for _, p := range docPages(t) {
		byPath[p.path] = p
	}
	links := 0
	for _, p := range byPath {
		for _, link := range sortedOnce(`\]\(([^)\s]+)\)`, p.prose()) {
			if strings.Contains(link, "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(link, "#")
			target := p.path
			if file != "" {
				target = filepath.Join(filepath.Dir(p.path), file)
			}
			_, err := os.Stat(filepath.Join(docRoot, target))
			assert.NoError(t, err, "%s links to %s", p.path, link)
			if anchor != "" && assert.NotNil(t, byPath[target], "%s links to %s", p.path, link) {
				assert.Contains(t, byPath[target].anchors(), anchor, "%s links to %s", p.path, link)
			}
		}
	}
	assert.Greater(t, links, 10)
}

// The README fits on one page.
func TestDocsReadmeIsShort(t *testing.T) {
	assert.LessOrEqual(t, len(onPage(t, "README.md").lines), 101, "lines, with the one after the last")
}

// Each flag and each target of make that the pages for newcomers name exists.
func TestDocsCommandsExist(t *testing.T) {
	var text string
	for _, page := range []string{"README.md", "docs/start.md", "docs/performance.md", "docs/proof.md"} {
		text += strings.Join(onPage(t, page).lines, "\n") + "\n"
	}
	makefile, err := os.ReadFile(filepath.Join(docRoot, "Makefile"))
	require.NoError(t, err)
	targets := sortedOnce(`(?m)(?:^|\x60)make ([a-z]+)`, text)
	assert.NotEmpty(t, targets)
	for _, target := range targets {
		assert.Contains(t, "\n"+string(makefile), "\n"+target+":", "make %s", target)
	}
	path, err := needEnvironment(t).binary()
	require.NoError(t, err)
	help, err := exec.Command(path, "proxy", "--help").CombinedOutput()
	require.NoError(t, err)
	flags := sortedOnce(`(--[a-z][a-z-]+)`, text)
	assert.Contains(t, flags, "--contact-points")
	for _, flag := range flags {
		assert.Regexp(t, `(?m)^ +(-\w, )?`+flag+` `, string(help))
	}
}

// The reference names each kind of error that the proxy tells clients, and no other.
func TestDocsErrorsAreThoseOfTheCode(t *testing.T) {
	var source strings.Builder
	for _, pattern := range []string{"frontend/*.go", "frontend/*/*.go", "proxy/*.go", "proxy/*/*.go"} {
		paths, err := filepath.Glob(filepath.Join(docRoot, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			source.Write(raw)
		}
	}
	told := sortedOnce(`"(MUSIC_[A-Z_]+): `, source.String())
	assert.Contains(t, told, "MUSIC_LOST")
	assert.Equal(t, told, sortedOnce(`(?m)^\| \x60(MUSIC_[A-Z_]+)\x60 \|`, onPage(t, "docs/cql.md").prose()))
}
