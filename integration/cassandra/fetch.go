package cassandra

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// version is the Cassandra that is run.
const version = "5.0.8"

// embedded is what Maven and javac are given. go:embed works on package-level variables only.
//
//go:embed pom.xml java/*.java
var embedded embed.FS

// Distribution is what a node is started from.
type Distribution struct {
	Java string // path of a java of version 17 or 11
	Lib  string // directory of Cassandra's jars
}

// Fetch makes sure that Java, and Cassandra's jars below runDir, are there, and writes to log what takes long. Several
// processes may call it at once: one fetches, the others wait. If everything is there already, it only runs `java -version`.
func Fetch(ctx context.Context, runDir string, log io.Writer) (Distribution, error) {
	return FetchRelease(ctx, runDir, version, log)
}

// FetchRelease is Fetch for another release than 5.0.8: for tests of its code, or of what it serves.
func FetchRelease(ctx context.Context, runDir, release string, log io.Writer) (Distribution, error) {
	home := filepath.Join(runDir, "cassandra-"+release)
	d := Distribution{Lib: filepath.Join(home, "lib")}
	in := newInstaller(runDir, log)
	if isDir(d.Lib) {
		tools, err := in.ensure(ctx, lookUpJava)
		if err != nil {
			return Distribution{}, fmt.Errorf("run cassandra: %w", err)
		}
		d.Java = tools[0].path
		return d, nil
	}
	tools, err := in.ensure(ctx, lookUpJava, lookUpMaven)
	if err != nil {
		return Distribution{}, fmt.Errorf("fetch cassandra: %w", err)
	}
	d.Java = tools[0].path
	f := fetch{home: home, release: release, maven: tools[1].path, log: log}
	if err := f.run(ctx); err != nil {
		return Distribution{}, fmt.Errorf("fetch cassandra %s: %w", release, err)
	}
	return d, nil
}

// fetch fills home/lib.
type fetch struct {
	home, release, maven string
	log                  io.Writer
}

// run fetches the jars unless another process was quicker. A lib that exists is complete: it comes by one rename.
func (f fetch) run(ctx context.Context) error {
	l, err := lock(ctx, filepath.Join(f.home, "lock"))
	if err != nil {
		return err
	}
	defer l.release()
	lib := filepath.Join(f.home, "lib")
	if isDir(lib) {
		return nil
	}
	tmp, err := os.MkdirTemp(f.home, "fetch-")
	if err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	began := time.Now()
	say(f.log, "fetching Cassandra %s with Maven into %s", f.release, lib)
	if err := f.copyDependencies(ctx, tmp); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(tmp, "lib"), lib); err != nil {
		return fmt.Errorf("move the jars in place: %w", err)
	}
	say(f.log, "fetched Cassandra in %.1f s", time.Since(began).Seconds())
	return nil
}

// copyDependencies has Maven fill dir/lib, and looks whether the jars are there that a node's arguments name.
func (f fetch) copyDependencies(ctx context.Context, dir string) error {
	pom, err := embedded.ReadFile("pom.xml")
	if err != nil {
		return fmt.Errorf("read the pom: %w", err)
	}
	if err := copyJars(ctx, f.maven, pom, dir, "-Dcassandra.release="+f.release); err != nil {
		return err
	}
	jars := []string{"cassandra-all-" + f.release + ".jar"}
	if f.release == version {
		jars = append(jars, "jamm-0.4.0.jar")
	}
	for _, jar := range jars {
		if _, err := os.Stat(filepath.Join(dir, "lib", jar)); err != nil {
			return fmt.Errorf("maven left a jar out: %w", err)
		}
	}
	return nil
}

// CopyJars has Maven fill dir/lib with the jars that a pom names, and what they need. dir exists, and gets the pom, too.
func CopyJars(ctx context.Context, pom []byte, dir string) error {
	return copyJars(ctx, "mvn", pom, dir)
}

// copyJars is CopyJars by a Maven of one's own, with properties of the pom.
func copyJars(ctx context.Context, maven string, pom []byte, dir string, properties ...string) error {
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, pom, 0o600); err != nil {
		return fmt.Errorf("write the pom: %w", err)
	}
	words := append([]string{"-B", "-q", "-Dstyle.color=never", "-f", file}, properties...)
	return runQuietly(ctx, maven, append(words, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "lib"))...)
}

// runQuietly runs a program whose output matters only if it fails: then the end of it is in the error.
func runQuietly(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // G204: our own words and paths
	// A grandchild may hold the pipe open after the program itself was killed.
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{name}, args...), " "), err, lastLines(out, 20))
	}
	return nil
}

// isDir reports whether path is a directory that can be seen.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// say writes a line of progress, if there is a log.
func say(log io.Writer, format string, args ...any) {
	if log == nil {
		return
	}
	_, _ = fmt.Fprintf(log, format+"\n", args...)
}
