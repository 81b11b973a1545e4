package cassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pins are the Python packages that the compatibility tests speak to Cassandra with.
const pins = "cqlsh==6.2.2 cassandra-driver==3.30.1 lz4==4.4.5"

// Venv is a Python environment with cqlsh, the driver and lz4.
type Venv struct {
	Dir    string
	Python string // path of the interpreter
	Cqlsh  string // path of the script
}

// Python makes the virtual environment venv below runDir, if it is not there yet, and writes that to log. Several processes
// may call it at once.
func Python(ctx context.Context, runDir string, log io.Writer) (Venv, error) {
	dir, err := filepath.Abs(filepath.Join(runDir, "venv"))
	if err != nil {
		return Venv{}, fmt.Errorf("make the python environment: %w", err)
	}
	v := Venv{Dir: dir, Python: filepath.Join(dir, "bin", "python"), Cqlsh: filepath.Join(dir, "bin", "cqlsh")}
	if v.complete() {
		return v, nil
	}
	l, err := lock(ctx, dir+".lock")
	if err != nil {
		return Venv{}, fmt.Errorf("make the python environment: %w", err)
	}
	defer l.release()
	if v.complete() {
		return v, nil
	}
	tools, err := newInstaller(runDir, log).ensure(ctx, lookUpPython)
	if err != nil {
		return Venv{}, fmt.Errorf("make the python environment: %w", err)
	}
	if err := v.fill(ctx, tools[0].path, log); err != nil {
		return Venv{}, fmt.Errorf("make the python environment: %w", err)
	}
	return v, nil
}

// marker returns the file written last, and what it says: the path too, since scripts of a moved environment do not run.
func (v Venv) marker() (path, text string) {
	return filepath.Join(v.Dir, "music-pins"), pins + "\n" + v.Dir + "\n"
}

// complete reports whether the environment is there as we would make it, and its interpreter still exists.
func (v Venv) complete() bool {
	path, want := v.marker()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		return false
	}
	_, pythonErr := os.Stat(v.Python) // through the symbolic link: a newer system may have another interpreter
	_, cqlshErr := os.Stat(v.Cqlsh)
	return errors.Join(pythonErr, cqlshErr) == nil
}

// fill makes the environment anew. It is made in place because its scripts hold its path.
func (v Venv) fill(ctx context.Context, python string, log io.Writer) error {
	began := time.Now()
	say(log, "installing %s into %s", pins, v.Dir)
	if err := os.RemoveAll(v.Dir); err != nil {
		return fmt.Errorf("remove the old one: %w", err)
	}
	if err := runQuietly(ctx, python, "-m", "venv", v.Dir); err != nil {
		return err
	}
	pip := []string{"-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"}
	if err := runQuietly(ctx, v.Python, append(pip, strings.Fields(pins)...)...); err != nil {
		return err
	}
	path, text := v.marker()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("mark it complete: %w", err)
	}
	say(log, "installed in %.1f s", time.Since(began).Seconds())
	return nil
}

// lookUpPython looks for a python3 that can make environments: Debian's has ensurepip only with python3-venv.
func lookUpPython(ctx context.Context) tool {
	t := tool{name: "python3 with venv", pkg: "python3-venv"}
	// The second is where apt-get puts it, which may not be what the PATH finds first.
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if err := runQuietly(ctx, path, "-c", "import venv, ensurepip"); err == nil {
			t.path = path
			return t
		}
		t.note = path + " has no venv or no ensurepip"
	}
	return t
}
