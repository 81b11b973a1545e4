package cassandra

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The version of Java is read from what java -version prints, whatever stands before it.
func TestParseJavaVersion(t *testing.T) {
	for out, want := range map[string]int{
		"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment": 17,
		"Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"11.0.2\"":     11,
		"java version \"1.8.0_292\"":                                          8,
		"openjdk version \"25\" 2025-09-16":                                   25,
		"no such thing":                                                       0,
		"":                                                                    0,
	} {
		assert.Equal(t, want, parseJavaVersion(out), "%q", out)
	}
}

// The names of a distribution, and of those it is like, are read from os-release.
func TestReleaseIDs(t *testing.T) {
	for release, want := range map[string][]string{
		"PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n": {"debian"},
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n":              {"linuxmint", "ubuntu", "debian"},
		"ID='fedora'": {"fedora"},
		"":            nil,
	} {
		assert.Equal(t, want, releaseIDs(release), "%q", release)
	}
}

// Packages are installed by root on Debian or Ubuntu with apt-get, and nowhere else.
func TestCanInstall(t *testing.T) {
	for _, c := range []struct {
		why  string
		h    host
		want bool
	}{
		{"Debian", host{ids: []string{"debian"}, root: true, apt: true}, true},
		{"like Ubuntu", host{ids: []string{"mint", "ubuntu"}, root: true, apt: true}, true},
		{"not root", host{ids: []string{"debian"}, apt: true}, false},
		{"no apt-get", host{ids: []string{"debian"}, root: true}, false},
		{"apt-get on Fedora", host{ids: []string{"fedora"}, root: true, apt: true}, false},
		{"unknown", host{root: true, apt: true}, false},
	} {
		assert.Equal(t, c.want, c.h.canInstall(), c.why)
	}
}

// The first java of a version that Cassandra runs on is taken; the others are told.
func TestChooseJava(t *testing.T) {
	versions := map[string]int{"/25": 25, "/17": 17, "/11": 11, "/8": 8}
	for _, c := range []struct{ candidates, path, note string }{
		{"/17", "/17", ""},
		{"/11", "/11", ""},
		{"/25 /17", "/17", ""}, // a JAVA_HOME for other work
		{"/broken /11 /17", "/11", ""},
		{"/25 /broken /8", "", "/25 is Java 25; /8 is Java 8; JAVA_HOME may name one too"},
		{"", "", "JAVA_HOME may name one too"},
	} {
		got := chooseJava(strings.Fields(c.candidates), func(path string) int { return versions[path] })
		assert.Equal(t, c.path, got.path, "%q", c.candidates)
		assert.Equal(t, c.note, got.note, "%q", c.candidates)
		assert.Equal(t, "openjdk-17-jdk-headless", got.pkg, "%q", c.candidates)
	}
}

// The machine that runs this has what it takes, or its real tests could not.
func TestLookUps(t *testing.T) {
	_ = slow(t)
	for _, lookUp := range []func(context.Context) tool{lookUpJava, lookUpMaven, lookUpPython} {
		got := lookUp(t.Context())
		assert.NotEmpty(t, got.path)
		assert.NotEmpty(t, got.pkg)
	}
	assert.NotEmpty(t, lookUpHost().ids)
}

// javaVersion asks; what is no java has no version.
func TestJavaVersionOfOthers(t *testing.T) {
	for _, path := range []string{"/nowhere/java", "/bin/false", "/bin/true"} {
		assert.Zero(t, javaVersion(t.Context(), path), path)
	}
}

// machine is a pretended machine: what is installed, and what apt-get was asked to do.
type machine struct {
	host
	has      map[string]bool // by package
	apt      []string        // commands
	broken   error           // what apt-get says
	unhelped bool            // apt-get succeeds but brings nothing
}

// lookUp looks for the program of a package.
func (m *machine) lookUp(pkg string) func(context.Context) tool {
	return func(context.Context) tool {
		t := tool{name: "the " + pkg, pkg: pkg}
		if m.has[pkg] {
			t.path = "/bin/" + pkg
		}
		return t
	}
}

// run is apt-get.
func (m *machine) run(_ context.Context, name string, args ...string) error {
	m.apt = append(m.apt, strings.Join(append([]string{name}, args...), " "))
	for _, arg := range args {
		if !m.unhelped && m.broken == nil {
			m.has[arg] = true
		}
	}
	return m.broken
}

// ensure looks for the programs of the packages java and mvn.
func (m *machine) ensure(t *testing.T, log io.Writer) ([]tool, error) {
	t.Helper()
	in := installer{runDir: t.TempDir(), log: log, host: m.host, run: m.run}
	return in.ensure(t.Context(), m.lookUp("java"), m.lookUp("mvn"))
}

// debianRoot can install.
func debianRoot() host { return host{ids: []string{"debian"}, root: true, apt: true} }

// Where all tools are there, nothing is installed.
func TestEnsureNeedsNothing(t *testing.T) {
	m := &machine{has: map[string]bool{"java": true, "mvn": true}} // on a host where nothing can be installed
	tools, err := m.ensure(t, nil)
	must(t, err)
	assert.True(t, len(m.apt) == 0 && tools[0].path == "/bin/java" && tools[1].path == "/bin/mvn", "apt %q, tools %+v", m.apt, tools)
}

// What is missing is installed by apt-get, once, and the log tells.
func TestEnsureInstalls(t *testing.T) {
	m := &machine{host: debianRoot(), has: map[string]bool{"java": true}}
	var log bytes.Buffer
	tools, err := m.ensure(t, &log)
	must(t, err)
	const apt = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "
	want := []string{apt + "update", apt + "install -y --no-install-recommends mvn"}
	assert.Equal(t, want, m.apt)
	assert.Equal(t, "/bin/mvn", tools[1].path, "tools %+v, log %q", tools, log.String())
	assert.Equal(t, "installing mvn with apt-get\n", log.String(), "tools %+v", tools)
}

// Where nothing can be installed, the error names all that is missing and the packages.
func TestEnsureSaysWhatToInstall(t *testing.T) {
	m := &machine{host: host{ids: []string{"debian"}, apt: true}, has: map[string]bool{}}
	_, err := m.ensure(t, nil)
	assert.ErrorIs(t, err, ErrMissing)
	assert.ErrorContains(t, err, "the java, the mvn: missing")
	assert.ErrorContains(t, err, "apt-get install java mvn (")
	assert.Empty(t, m.apt)
}

// The error of an installation that failed says why.
func TestEnsureTellsWhyItCouldNot(t *testing.T) {
	broken := errors.New("no network")
	for why, m := range map[string]*machine{
		"apt-get fails":      {host: debianRoot(), has: map[string]bool{}, broken: broken},
		"apt-get is in vain": {host: debianRoot(), has: map[string]bool{}, unhelped: true},
	} {
		_, err := m.ensure(t, nil)
		assert.ErrorIs(t, err, ErrMissing, why)
		assert.Equal(t, m.broken != nil, errors.Is(err, broken), "%s: %v", why, err)
	}
}

// What is missing is told with what was found in its place.
func TestMissingHasItsNote(t *testing.T) {
	err := tellMissing([]tool{{name: "JDK 17", pkg: "jdk", note: "/usr/bin/java is Java 25"}, {name: "Maven", path: "/usr/bin/mvn"}})
	assert.True(t, strings.HasPrefix(err.Error(), "JDK 17 (/usr/bin/java is Java 25): missing"), "%v", err)
	assert.NotContains(t, err.Error(), "Maven")
}

// A Program is looked up on the PATH; the error names the package of one that is missing.
func TestProgramIsLookedUpOnThePath(t *testing.T) {
	there := Program{Name: "sh", Package: "dash"}.lookUp(t.Context())
	gone := Program{Name: "no-such-program", Package: "nothing"}.lookUp(t.Context())
	assert.NotEmpty(t, there.path, "%+v, %+v", there, gone)
	assert.Empty(t, gone.path, "%+v", there)
	err := tellMissing([]tool{there, gone})
	assert.ErrorIs(t, err, ErrMissing)
	assert.ErrorContains(t, err, "apt-get install nothing")
	assert.NotContains(t, err.Error(), "dash")
}
