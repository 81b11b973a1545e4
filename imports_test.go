// Package music_test holds the rules of the module that no compiler knows.
package music_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// modulePath is the name of the module, and so the first part of its packages' import paths.
const modulePath = "music"

// layer is a folder with all below it, and what its code may import. "*" stands for everything.
type layer struct {
	folder string
	ours   []string // packages of this module, with all below them; its own layer is always allowed
	others []string // of other modules, with all below them
	never  []string // of other modules, whatever others says
}

// layers returns the import rules. The first layer that a package lies in is its own.
func layers() []layer {
	const zerolog = "github.com/rs/zerolog"
	gocql := []string{"github.com/apache/cassandra-gocql-driver", "github.com/gocql"}
	return []layer{
		{folder: "musiccore"},
		{folder: "rewrite"},
		{folder: "config", others: []string{"*"}, never: append(gocql, zerolog)},
		{folder: "frontend/catalog", ours: []string{"rewrite", "musiccore"}},
		{folder: "frontend/wire", others: []string{"github.com/datastax/go-cassandra-native-protocol", "github.com/golang/snappy", "github.com/pierrec/lz4"}},
		{folder: "frontend/relay", ours: []string{"frontend/wire"}, others: []string{"github.com/datastax/go-cassandra-native-protocol"}},
		{folder: "frontend/condition", ours: []string{"frontend/wire", "frontend/catalog", "rewrite"}, others: []string{"github.com/datastax/go-cassandra-native-protocol"}},
		{folder: "frontend/refusal", ours: []string{"frontend/wire", "frontend/catalog", "musiccore"}, others: []string{"github.com/datastax/go-cassandra-native-protocol"}},
		{folder: "frontend/grant", ours: []string{"frontend/wire", "frontend/catalog", "musiccore"}, others: []string{"github.com/datastax/go-cassandra-native-protocol"}},
		{folder: "frontend/traffic", ours: []string{"frontend/wire"}, others: []string{"github.com/datastax/go-cassandra-native-protocol"}},
		{folder: "frontend/classify", ours: []string{"frontend/wire", "frontend/catalog", "rewrite"}},
		{folder: "frontend/statement", ours: []string{"frontend/wire", "frontend/catalog", "frontend/condition", "rewrite", "musiccore"}, others: []string{"github.com/google/uuid"}},
		{folder: "frontend/topology", ours: []string{"frontend/wire", "rewrite"}, others: []string{"github.com/datastax/go-cassandra-native-protocol"}},
		{folder: "frontend", ours: []string{"rewrite", "musiccore"}, others: []string{"*"}, never: gocql},
		{folder: "proxy/certs", ours: []string{"config"}, others: []string{"*"}, never: gocql},
		{folder: "proxy/connlimit"},
		{folder: "proxy/peer", ours: []string{"frontend", "musiccore", "config", "proxy/certs", "proxy/connlimit"}, others: []string{"*"}, never: gocql},
		{folder: "proxy/synchronise", ours: []string{"frontend/refusal", "frontend/catalog", "musiccore", "rewrite"}, others: []string{"*"}},
		{folder: "proxy", ours: []string{"frontend", "musiccore", "rewrite", "config"}, others: []string{"*"}},
		{folder: "clients", others: []string{"*"}},
		{folder: "client", others: []string{"*"}, never: []string{zerolog}},
		{folder: "check", ours: []string{"client"}, others: []string{"*"}, never: append(gocql, zerolog)},
		{folder: "integration", ours: []string{"*"}, others: []string{"*"}},
		{folder: "cmd/music-demo", ours: []string{"proxy", "config", "integration/cassandra", "integration/child"}, others: []string{"*"}},
		{folder: "cmd", ours: []string{"proxy", "config", "client", "check"}, others: []string{"*"}, never: gocql},
		{folder: ".", ours: []string{}, others: []string{"*"}, never: gocql},
	}
}

// within reports whether a path is one of the folders or lies below one.
func within(name string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return folder == "*" || folder == "." || name == folder || strings.HasPrefix(name, folder+"/")
	})
}

// allows reports whether code in a layer may import a package.
func (l layer) allows(imported string) bool {
	if own, ours := strings.CutPrefix(imported, modulePath+"/"); ours {
		return within(own, l.ours...) || l.folder != "." && within(own, l.folder)
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true
	}
	return within(imported, l.others...) && !within(imported, l.never...)
}

// layerOf returns the layer that a package lies in.
func layerOf(folder string) layer {
	rules := layers()
	return rules[slices.IndexFunc(rules, func(l layer) bool { return within(folder, l.folder) })]
}

// productFiles returns the Go files of the checkout that are not tests. It reads the files itself, and
// does not ask `go list`: that sees one platform only, and the test's cached result would outlive a change.
func productFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
		if err == nil && entry.IsDir() && (hidden || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, filepath.ToSlash(name))
		}
		return err
	})
	require.NoError(t, err)
	return files
}

// importsOf returns the import paths of a file.
func importsOf(t *testing.T, name string) []string {
	t.Helper()
	source, err := os.ReadFile(name)
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
	require.NoError(t, err)
	var imports []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		imports = append(imports, imported)
	}
	return imports
}

func TestImportsKeepToTheRules(t *testing.T) {
	files := productFiles(t)
	require.NotEmpty(t, files)
	for _, name := range files {
		for _, imported := range importsOf(t, name) {
			assert.True(t, layerOf(path.Dir(name)).allows(imported), "%s must not import %s", name, imported)
		}
	}
}

// arrow is an import in the picture of ARCHITECTURE.md.
var arrow = regexp.MustCompile(`(?m)^ +(\S+) --> (\S+)$`)

// drawn returns the imports that the picture has: for each package those that it points to.
func drawn(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("ARCHITECTURE.md")
	require.NoError(t, err)
	found := map[string][]string{}
	for _, m := range arrow.FindAllStringSubmatch(string(page), -1) {
		found[m[1]] = append(found[m[1]], m[2])
	}
	return found
}

// leads reports whether the arrows lead from one package to another.
func leads(arrows map[string][]string, from, to string) bool {
	return slices.ContainsFunc(arrows[from], func(next string) bool { return next == to || leads(arrows, next, to) })
}

// The picture in ARCHITECTURE.md has each import of the product, or arrows that lead there, and no arrow that is none.
func TestThePictureIsTrue(t *testing.T) {
	arrows, imports := drawn(t), map[string][]string{}
	require.NotEmpty(t, arrows)
	for _, name := range productFiles(t) {
		from := path.Dir(name)
		if within(from, "integration", "model", "cmd/music-demo", "clients") || strings.HasSuffix(from, "test") {
			continue
		}
		for _, imported := range importsOf(t, name) {
			if to, ours := strings.CutPrefix(imported, modulePath+"/"); ours {
				imports[from] = append(imports[from], to)
				assert.True(t, leads(arrows, from, to), "%s imports %s: no arrow of ARCHITECTURE.md leads there", name, to)
			}
		}
	}
	for from, all := range arrows {
		for _, to := range all {
			assert.Contains(t, imports[from], to, "ARCHITECTURE.md has an arrow from %s that is no import", from)
		}
	}
}

// Each Go file that ARCHITECTURE.md names is there; a name without a folder is that of some file.
func TestTheFilesOfThePageExist(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	require.NoError(t, err)
	known := map[string]bool{}
	for _, pattern := range []string{"*.go", "*/*.go", "*/*/*.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			known[filepath.ToSlash(name)], known[path.Base(filepath.ToSlash(name))] = true, true
			known[path.Base(path.Dir(filepath.ToSlash(name)))+"/"+path.Base(filepath.ToSlash(name))] = true
		}
	}
	named := regexp.MustCompile("`([a-z_/]+\\.go)`").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 50)
	for _, m := range named {
		assert.True(t, known[m[1]], "ARCHITECTURE.md names %s", m[1])
	}
}

// Each function, method or type that ARCHITECTURE.md names is in the product's code.
func TestTheNamesOfThePageExist(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	require.NoError(t, err)
	code := map[string]bool{}
	words := regexp.MustCompile(`[A-Za-z]+`)
	for _, name := range productFiles(t) {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, word := range words.FindAllString(string(source), -1) {
			code[word] = true
		}
	}
	named := regexp.MustCompile("`(?:[A-Za-z]+\\.)?([a-z]+[A-Z][A-Za-z]+|[A-Z][a-z][A-Za-z]+)`").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 30)
	for _, m := range named {
		assert.True(t, code[m[1]], "ARCHITECTURE.md names %s", m[1])
	}
}

func TestImportRules(t *testing.T) {
	const driver = "github.com/apache/cassandra-gocql-driver/v2"
	cases := []struct {
		folder, imported string
		want             bool
	}{
		{"musiccore", "errors", true},
		{"musiccore", "encoding/binary", true},
		{"musiccore", "music/rewrite", false},
		{"musiccore", "golang.org/x/sys/unix", false},
		{"musiccore", "github.com/rs/zerolog", false},
		{"rewrite", "music/musiccore", false},
		{"rewrite", "github.com/rs/zerolog", false},
		{"config", "github.com/knadh/koanf/v2", true},
		{"config", "github.com/rs/zerolog", false},
		{"config", driver, false},
		{"config", "music/proxy", false},
		{"config", "music/rewrite", false},
		{"frontend", "music/rewrite", true},
		{"frontend", "music/musiccore", true},
		{"frontend", "github.com/rs/zerolog", true},
		{"frontend", "github.com/datastax/go-cassandra-native-protocol/frame", true},
		{"frontend", "music/proxy", false},
		{"frontend", "music/config", false},
		{"frontend", driver, false},
		{"frontend", "music/frontend/wire", true},
		{"frontend/wire", "github.com/pierrec/lz4/v4", true},
		{"frontend/wire", "music/frontend", false},
		{"frontend/relay", "music/frontend/wire", true},
		{"frontend/topology", "music/rewrite", true},
		{"frontend/topology", "music/frontend", false},
		{"frontend/relay", "music/frontend", false},
		{"frontend/relay", "music/frontend/catalog", false},
		{"frontend/relay", "github.com/rs/zerolog", false},
		{"frontend/wire", "music/rewrite", false},
		{"frontend/wire", "github.com/rs/zerolog", false},
		{"frontend/inner", "music/frontend", true},
		{"frontend", "music/frontend/catalog", true},
		{"frontend/catalog", "music/musiccore", true},
		{"frontend/condition", "music/frontend/catalog", true},
		{"frontend/condition", "music/frontend", false},
		{"frontend/condition", "music/frontend/relay", false},
		{"frontend/condition", "music/musiccore", false},
		{"frontend/refusal", "music/musiccore", true},
		{"frontend/refusal", "music/frontend", false},
		{"frontend/grant", "music/musiccore", true},
		{"frontend/grant", "music/frontend", false},
		{"frontend/traffic", "music/frontend/wire", true},
		{"frontend/traffic", "music/musiccore", false},
		{"frontend/statement", "music/musiccore", true},
		{"frontend/statement", "music/frontend", false},
		{"frontend/statement", "music/frontend/relay", false},
		{"frontend/statement", "github.com/rs/zerolog", false},
		{"frontend/catalog", "music/frontend", false},
		{"frontend/catalog", "github.com/rs/zerolog", false},
		{"proxy", "music/frontend/catalog", true},
		{"frontend/inner", "music/proxy", false},
		{"proxy", "music/frontend", true},
		{"proxy", "music/config", true},
		{"proxy", driver, true},
		{"proxy/connlimit", "music/proxy/peer", false},
		{"proxy/certs", "music/musiccore", false},
		{"proxy/peer", "music/proxy/certs", true},
		{"proxy/peer", "music/proxy", false},
		{"proxy/peer", driver, false},
		{"proxy/synchronise", driver, true},
		{"proxy/synchronise", "music/frontend/refusal", true},
		{"proxy/synchronise", "music/frontend", false},
		{"proxy/synchronise", "music/config", false},
		{"proxy/synchronise", "music/proxy", false},
		{"proxy", "music/integration", false},
		{"proxy", "music/cmd/music", false},
		{"cmd/music", "music/proxy", true},
		{"cmd/music", "music/config", true},
		{"cmd/music", "music/frontend", false},
		{"cmd/music", "music/integration/cassandra", false},
		{"cmd/music", driver, false},
		{"cmd/music", "music/check", true},
		{"client", driver, true},
		{"client", "music/proxy", false},
		{"clients/go", driver, true},
		{"clients/go", "music/client", false},
		{"check", "music/client", true},
		{"check", driver, false},
		{"cmd/music-demo", "music/integration/cassandra", true},
		{"cmd/music-demo", "music/integration", false},
		{"cmd/music-demo", "github.com/gocql/gocql", true},
		{"integration", "music/frontend", true},
		{"integration/cassandra", "github.com/gocql/gocql", true},
		{"somewhere", "music/proxy", false},
		{"somewhere", "github.com/gocql/gocql", false},
		{"proxyfoo", "music/frontend", false},
	}
	for _, tc := range cases {
		assert.Equal(t, tc.want, layerOf(tc.folder).allows(tc.imported), "%s imports %s", tc.folder, tc.imported)
	}
}
