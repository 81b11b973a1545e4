package remote

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"music/integration/cassandra"
)

// sections is the loop that all programs in Java share. go:embed works on package-level variables only.
//
//go:embed Sections.java
var sections []byte

// Java is a program in Java: a class that extends Sections, and the pom that names the jars that it needs.
type Java struct {
	Class       string // its name, and that of its file without .java
	Source, Pom []byte
}

// dir is where the program lies once it is built; another text lies elsewhere.
func (j Java) dir() (string, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, text := range [][]byte{sections, j.Source, j.Pom} {
		_, _ = sum.Write(text) // it never fails
	}
	return filepath.Join(run, "evaluate", j.Class+"-"+hex.EncodeToString(sum.Sum(nil))[:8]), nil
}

// Built reports whether Build has no more to do than to look for java.
func (j Java) Built() bool {
	dir, err := j.dir()
	if err == nil {
		_, err = os.Stat(dir)
	}
	return err == nil
}

// Build fetches the jars with Maven and compiles the program, once for each checkout, and returns the
// words of its command line, to which its own are appended.
func (j Java) Build(ctx context.Context, log io.Writer) ([]string, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return nil, err
	}
	d, err := cassandra.Fetch(ctx, run, log)
	if err != nil {
		return nil, err
	}
	dir, err := j.dir()
	if err != nil {
		return nil, err
	}
	if !j.Built() {
		if err := j.build(ctx, d, dir); err != nil {
			return nil, fmt.Errorf("build %s: %w", j.Class, err)
		}
	}
	return []string{d.Java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", filepath.Join(dir, "classes") + ":" + filepath.Join(dir, "lib", "*"), j.Class}, nil
}

// build fills dir, by one rename.
func (j Java) build(ctx context.Context, d cassandra.Distribution, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := cassandra.CopyJars(ctx, j.Pom, tmp); err != nil {
		return err
	}
	words := []string{"--release", "17", "-cp", filepath.Join(tmp, "lib", "*"), "-d", filepath.Join(tmp, "classes")}
	for name, text := range map[string][]byte{"Sections.java": sections, j.Class + ".java": j.Source} {
		path := filepath.Join(tmp, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		words = append(words, path)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(d.Java), "javac"), words...).CombinedOutput() //nolint:gosec // our own words
	if err != nil {
		return fmt.Errorf("javac: %w\n%s", err, out)
	}
	err = os.Rename(tmp, dir)
	if errors.Is(err, os.ErrExist) {
		return nil // another was quicker
	}
	return err
}
