package cassandra

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
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
		if got := parseJavaVersion(out); got != want {
			t.Errorf("%q: %d, not %d", out, got, want)
		}
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
		if got := releaseIDs(release); !slices.Equal(got, want) {
			t.Errorf("%q: %q, not %q", release, got, want)
		}
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
		if got := c.h.canInstall(); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
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
		if got.path != c.path || got.note != c.note || got.pkg != "openjdk-17-jdk-headless" {
			t.Errorf("%q: %+v", c.candidates, got)
		}
	}
}

// The machine that runs this has what it takes, or its real tests could not.
func TestLookUps(t *testing.T) {
	_ = slow(t)
	for _, lookUp := range []func(context.Context) tool{lookUpJava, lookUpMaven, lookUpPython} {
		if got := lookUp(t.Context()); got.path == "" || got.pkg == "" {
			t.Errorf("%+v", got)
		}
	}
	if h := lookUpHost(); len(h.ids) == 0 {
		t.Errorf("%+v", h)
	}
}

// javaVersion asks; what is no java has no version.
func TestJavaVersionOfOthers(t *testing.T) {
	for _, path := range []string{"/nowhere/java", "/bin/false", "/bin/true"} {
		if v := javaVersion(t.Context(), path); v != 0 {
			t.Errorf("%s: %d", path, v)
		}
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
	if len(m.apt) != 0 || tools[0].path != "/bin/java" || tools[1].path != "/bin/mvn" {
		t.Errorf("apt %q, tools %+v", m.apt, tools)
	}
}

// What is missing is installed by apt-get, once, and the log tells.
func TestEnsureInstalls(t *testing.T) {
	m := &machine{host: debianRoot(), has: map[string]bool{"java": true}}
	var log bytes.Buffer
	tools, err := m.ensure(t, &log)
	must(t, err)
	const apt = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "
	if want := []string{apt + "update", apt + "install -y --no-install-recommends mvn"}; !slices.Equal(m.apt, want) {
		t.Errorf("apt %q", m.apt)
	}
	if tools[1].path != "/bin/mvn" || log.String() != "installing mvn with apt-get\n" {
		t.Errorf("tools %+v, log %q", tools, log.String())
	}
}

// Where nothing can be installed, the error names all that is missing and the packages.
func TestEnsureSaysWhatToInstall(t *testing.T) {
	m := &machine{host: host{ids: []string{"debian"}, apt: true}, has: map[string]bool{}}
	_, err := m.ensure(t, nil)
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "the java, the mvn: missing") || !strings.Contains(err.Error(), "apt-get install java mvn (") {
		t.Error(err)
	}
	if len(m.apt) != 0 {
		t.Errorf("apt %q", m.apt)
	}
}

// The error of an installation that failed says why.
func TestEnsureTellsWhyItCouldNot(t *testing.T) {
	broken := errors.New("no network")
	for why, m := range map[string]*machine{
		"apt-get fails":      {host: debianRoot(), has: map[string]bool{}, broken: broken},
		"apt-get is in vain": {host: debianRoot(), has: map[string]bool{}, unhelped: true},
	} {
		_, err := m.ensure(t, nil)
		if !errors.Is(err, ErrMissing) || errors.Is(err, broken) != (m.broken != nil) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// What is missing is told with what was found in its place.
func TestMissingHasItsNote(t *testing.T) {
	err := tellMissing([]tool{{name: "JDK 17", pkg: "jdk", note: "/usr/bin/java is Java 25"}, {name: "Maven", path: "/usr/bin/mvn"}})
	if !strings.HasPrefix(err.Error(), "JDK 17 (/usr/bin/java is Java 25): missing") || strings.Contains(err.Error(), "Maven") {
		t.Error(err)
	}
}

// A Program is looked up on the PATH; the error names the package of one that is missing.
func TestProgramIsLookedUpOnThePath(t *testing.T) {
	there := Program{Name: "sh", Package: "dash"}.lookUp(t.Context())
	gone := Program{Name: "no-such-program", Package: "nothing"}.lookUp(t.Context())
	if there.path == "" || gone.path != "" {
		t.Errorf("%+v, %+v", there, gone)
	}
	err := tellMissing([]tool{there, gone})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "apt-get install nothing") || strings.Contains(err.Error(), "dash") {
		t.Error(err)
	}
}
