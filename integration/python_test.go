package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programTimeout is after how long a program of the tests is killed.
const programTimeout = 2 * time.Minute

// program returns a command that runs a Python program, or cqlsh, and records every address that it
// connects to.
func program(t testing.TB, name string, args ...string) (cmd *exec.Cmd, connects string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	t.Cleanup(cancel)
	connects = filepath.Join(t.TempDir(), "connects")
	record, err := filepath.Abs(filepath.Join("testdata", "record"))
	require.NoError(t, err)
	cmd = exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+record, "MUSIC_CONNECTS="+connects, "PYTHONDONTWRITEBYTECODE=1", "HOME="+t.TempDir(), "TERM=dumb", "LC_ALL=C.UTF-8")
	return cmd, connects
}

// output runs a program to its end and returns its output. The test fails if the program's success
// is not the expected one.
func output(t testing.TB, cmd *exec.Cmd, fails bool) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	require.True(t, err == nil || (fails && errors.As(err, &ended)), "%v: %v\n%s", cmd.Args, err, out)
	return string(out)
}

// connected returns the recorded addresses, without repetition.
func connected(t testing.TB, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	seen := map[string]bool{}
	var all []string
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); !seen[line] {
			seen[line] = true
			all = append(all, line)
		}
	}
	return all
}

// hostOf returns an address without its port.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	host, _, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return host
}

// A program with the Python driver prints the same through the proxy as at the node, and dials the
// proxy alone.
func TestPythonDriverShowsTheSame(t *testing.T) {
	proxy, direct, python := needProxy(t), needEnvironment(t).direct(), needPython(t).Python
	tell := func(address string) string {
		cmd, connects := program(t, python, filepath.Join("testdata", "compat.py"), hostOf(t, address), "python")
		out := output(t, cmd, false)
		assert.Equal(t, []string{address}, connected(t, connects), "dialled")
		return out
	}
	want, got := tell(direct), tell(proxy)
	assert.Equal(t, want, got)
	assert.Greater(t, strings.Count(want, "\n"), 40, "the program did what it is for")
}

// python is a session of the Python driver in a process of its own.
type python struct {
	t     testing.TB
	in    io.WriteCloser
	out   *bufio.Scanner
	err   bytes.Buffer
	cmd   *exec.Cmd
	hosts []string

	connects string
}

// withPython returns the Python driver in the version that it negotiates.
func withPython() driver {
	return driver{name: "python", bound: true, open: func(t testing.TB, address, keyspace string) client {
		return openPython(t, address, keyspace)
	}}
}

// openPython starts the program and waits until it is connected: over TLS where files of signers, certificate and key are named.
func openPython(t testing.TB, address, keyspace string, files ...string) *python {
	t.Helper()
	p := &python{t: t}
	p.cmd, p.connects = program(t, needPython(t).Python, append([]string{filepath.Join("testdata", "driver.py"), hostOf(t, address), keyspace}, files...)...)
	p.cmd.Stderr = &p.err
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.close)
	var hello struct{ Hosts []string }
	p.answer(&hello)
	p.hosts = hello.Hosts
	return p
}

// close ends the program. It may be called again.
func (p *python) close() {
	if p.cmd.ProcessState == nil {
		_ = p.in.Close()
		_ = p.cmd.Wait()
	}
}

// answer reads one line.
func (p *python) answer(to any) {
	p.t.Helper()
	if !p.out.Scan() {
		p.close()
		require.Fail(p.t, "driver.py ended", "%v\n%s", p.out.Err(), p.err.String())
	}
	require.NoError(p.t, json.Unmarshal(p.out.Bytes(), to))
}

func (p *python) run(s statement) outcome {
	p.t.Helper()
	request, err := json.Marshal(map[string]any{"cql": s.cql, "values": s.values})
	require.NoError(p.t, err)
	_, err = fmt.Fprintf(p.in, "%s\n", request)
	require.NoError(p.t, err)
	var a struct {
		Columns  []string
		Rows     [][]string
		Warnings []string
		Code     *int
		Text     string
	}
	p.answer(&a)
	o := outcome{columns: a.Columns, rows: a.Rows, warnings: a.Warnings}
	if a.Code != nil {
		o.failure = &failure{*a.Code, a.Text}
	}
	return o
}
