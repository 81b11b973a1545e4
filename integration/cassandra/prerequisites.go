package cassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tool is a program of this machine: where it was found, and how to get it.
type tool struct {
	name string // what people call it
	path string // "" if missing
	pkg  string // of Debian and Ubuntu
	note string // what was found instead, or another way out
}

// Program is a program of this machine and the package of Debian and Ubuntu that has it.
type Program struct{ Name, Package string }

// lookUp looks for the program on the PATH.
func (p Program) lookUp(context.Context) tool {
	path, _ := exec.LookPath(p.Name) // not found: path is ""
	return tool{name: p.Name, path: path, pkg: p.Package}
}

// Ensure returns when all the programs are on this machine. It installs missing ones if it may: as root on Debian and
// Ubuntu, one process of runDir at a time. Otherwise its error wraps ErrMissing and says what to do by hand. It writes its
// progress to log.
func Ensure(ctx context.Context, runDir string, log io.Writer, programs ...Program) error {
	var lookUps []func(context.Context) tool
	for _, p := range programs {
		lookUps = append(lookUps, p.lookUp)
	}
	_, err := newInstaller(runDir, log).ensure(ctx, lookUps...)
	return err
}

// host is what decides whether missing programs can be installed.
type host struct {
	ids  []string // ID and ID_LIKE of /etc/os-release
	root bool
	apt  bool // there is an apt-get
}

// lookUpHost looks at the machine.
func lookUpHost() host {
	release, _ := os.ReadFile("/etc/os-release") // without it we do not know the machine, and install nothing
	_, err := exec.LookPath("apt-get")
	return host{ids: releaseIDs(string(release)), root: os.Geteuid() == 0, apt: err == nil}
}

// releaseIDs returns the words of ID and ID_LIKE of an os-release file.
func releaseIDs(release string) []string {
	var ids []string
	for line := range strings.Lines(release) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			ids = append(ids, strings.Fields(strings.Trim(value, `"'`))...)
		}
	}
	return ids
}

// canInstall reports whether this process may install packages by apt-get.
func (h host) canInstall() bool {
	return h.root && h.apt && (slices.Contains(h.ids, "debian") || slices.Contains(h.ids, "ubuntu"))
}

// missing returns those of the tools that were not found.
func missing(tools []tool) []tool {
	return slices.DeleteFunc(slices.Clone(tools), func(t tool) bool { return t.path != "" })
}

// toInstall returns the packages of the missing tools, or an error wrapping ErrMissing that says what to do by hand.
func (h host) toInstall(tools []tool) ([]string, error) {
	var packages []string
	for _, t := range missing(tools) {
		packages = append(packages, t.pkg)
	}
	if len(packages) > 0 && !h.canInstall() {
		return nil, tellMissing(tools)
	}
	return packages, nil
}

// tellMissing says which tools are missing and which packages have them.
func tellMissing(tools []tool) error {
	var wants, packages []string
	for _, t := range missing(tools) {
		want := t.name
		if t.note != "" {
			want += " (" + t.note + ")"
		}
		wants, packages = append(wants, want), append(packages, t.pkg)
	}
	return fmt.Errorf("%s: %w; install it, on Debian or Ubuntu with: apt-get install %s (done by itself for root there)",
		strings.Join(wants, ", "), ErrMissing, strings.Join(packages, " "))
}

// installer installs missing programs on host.
type installer struct {
	runDir string
	log    io.Writer
	host   host
	run    func(ctx context.Context, name string, args ...string) error // runs a program to its end
}

// newInstaller returns the installer of this machine.
func newInstaller(runDir string, log io.Writer) installer {
	return installer{runDir: runDir, log: log, host: lookUpHost(), run: runQuietly}
}

// ensure returns what the look-ups find, after installing what they did not find at first.
func (in installer) ensure(ctx context.Context, lookUps ...func(context.Context) tool) ([]tool, error) {
	tools := lookUpAll(ctx, lookUps)
	if len(missing(tools)) == 0 {
		return tools, nil
	}
	packages, err := in.host.toInstall(tools)
	if err != nil {
		return nil, err
	}
	if err := in.install(ctx, packages); err != nil {
		return nil, errors.Join(err, tellMissing(tools))
	}
	if tools = lookUpAll(ctx, lookUps); len(missing(tools)) > 0 {
		return nil, fmt.Errorf("after apt-get: %w", tellMissing(tools))
	}
	return tools, nil
}

// lookUpAll runs the look-ups.
func lookUpAll(ctx context.Context, lookUps []func(context.Context) tool) []tool {
	var tools []tool
	for _, lookUp := range lookUps {
		tools = append(tools, lookUp(ctx))
	}
	return tools
}

// install has apt-get install packages, one process of the run directory at a time. A second one finds them installed.
func (in installer) install(ctx context.Context, packages []string) error {
	l, err := lock(ctx, filepath.Join(in.runDir, "apt.lock"))
	if err != nil {
		return err
	}
	defer l.release()
	say(in.log, "installing %s with apt-get", strings.Join(packages, ", "))
	// The timeout is for somebody else's apt-get, such as the daily one of the system.
	const env, apt, wait = "DEBIAN_FRONTEND=noninteractive", "apt-get", "DPkg::Lock::Timeout=300"
	if err := in.run(ctx, "env", env, apt, "-o", wait, "update"); err != nil {
		return err
	}
	return in.run(ctx, "env", append([]string{env, apt, "-o", wait, "install", "-y", "--no-install-recommends"}, packages...)...)
}

// lookUpMaven looks for mvn.
func lookUpMaven(ctx context.Context) tool {
	t := Program{"mvn", "maven"}.lookUp(ctx)
	t.name = "Maven"
	return t
}

// lookUpJava looks for a java that Cassandra 5.0 runs on: in JAVA_HOME, on the PATH, and where Debian keeps several.
func lookUpJava(ctx context.Context) tool {
	var candidates []string
	if home := os.Getenv("JAVA_HOME"); home != "" {
		candidates = append(candidates, filepath.Join(home, "bin", "java"))
	}
	if path, err := exec.LookPath("java"); err == nil {
		candidates = append(candidates, path)
	}
	for _, pattern := range []string{"/usr/lib/jvm/java-17-*/bin/java", "/usr/lib/jvm/java-11-*/bin/java"} {
		paths, _ := filepath.Glob(pattern) // fails for a bad pattern only
		candidates = append(candidates, paths...)
	}
	return chooseJava(candidates, func(path string) int { return javaVersion(ctx, path) })
}

// chooseJava returns the first candidate of a suitable version, or none and a note about those found.
func chooseJava(candidates []string, versionOf func(path string) int) tool {
	t := tool{name: "JDK 17", pkg: "openjdk-17-jdk-headless"}
	var seen []string
	for _, path := range candidates {
		v := versionOf(path)
		if v == 17 || v == 11 {
			t.path = path
			return t
		}
		if v != 0 {
			seen = append(seen, fmt.Sprintf("%s is Java %d", path, v))
		}
	}
	t.note = strings.Join(append(seen, "JAVA_HOME may name one too"), "; ")
	return t
}

// javaVersion returns the major version of the java at path; 0 if it does not answer.
func javaVersion(ctx context.Context, path string) int {
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput() //nolint:gosec // G702: JAVA_HOME is the user's own
	if err != nil {
		return 0
	}
	return parseJavaVersion(string(out))
}

// parseJavaVersion finds the major version in the output of `java -version`; "1.8" is 8. 0: not found.
func parseJavaVersion(out string) int {
	found := regexp.MustCompile(`version "(?:1\.)?(\d+)`).FindStringSubmatch(out)
	if found == nil {
		return 0
	}
	v, _ := strconv.Atoi(found[1]) // digits by the expression; 0 if absurdly many
	return v
}
