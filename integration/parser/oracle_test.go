package parser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"music/integration/cassandra"

	"github.com/stretchr/testify/require"
)

// maxAnswer is the length of the longest answer about one statement.
const maxAnswer = 4 << 20

// ask passes the texts to Cassandra's own parser, and returns an answer for each, in the form that
// testdata/Oracle.java documents.
func ask(t *testing.T, d cassandra.Distribution, texts []string) []string {
	t.Helper()
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return tell(t, d, "Oracle", lines)
}

// compile compiles a program of testdata, and returns the class path for running it.
func compile(t *testing.T, d cassandra.Distribution, program string) string {
	t.Helper()
	classes, jars := t.TempDir(), filepath.Join(d.Lib, "*")
	out, err := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(d.Java), "javac"), //nolint:gosec // G204: our own paths
		"-cp", jars, "-sourcepath", "testdata", "-d", classes, filepath.Join("testdata", program+".java")).CombinedOutput()
	require.NoError(t, err, "compile %s: %v\n%s", program, err, out)
	return classes + string(filepath.ListSeparator) + jars
}

// tell passes lines to a program that uses Cassandra's classes, and returns its answers, one a
// line.
func tell(t *testing.T, d cassandra.Distribution, program string, questions []string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), d.Java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", compile(t, d, program), program) //nolint:gosec // G204: our own paths
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var said bytes.Buffer
	cmd.Stderr = &said
	must(t, cmd.Start())
	asked := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(in)
		for _, question := range questions {
			_, _ = fmt.Fprintln(w, question) // told by Flush
		}
		err := w.Flush()
		_ = in.Close() // the process sees the end
		asked <- err
	}()
	answers := make([]string, 0, len(questions))
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		answers = append(answers, lines.Text())
	}
	must(t, <-asked)
	err = cmd.Wait()
	require.NoError(t, err, "%d answers to %d lines: %v, %v\n%s", len(answers), len(questions), err, lines.Err(), &said)
	require.NoError(t, lines.Err(), "%d answers to %d lines: %v, %v\n%s", len(answers), len(questions), err, lines.Err(), &said)
	require.Len(t, answers, len(questions), "%d answers to %d lines: %v, %v\n%s", len(answers), len(questions), err, lines.Err(), &said)
	return answers
}

func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}
