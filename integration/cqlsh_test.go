package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cqlsh prints the same through the proxy as at the node, for statements from a file and from the
// command line.
func TestCqlshShowsTheSame(t *testing.T) {
	proxy, direct, cqlsh := needProxy(t), needEnvironment(t).direct(), needPython(t).Cqlsh
	for _, c := range []struct {
		name  string
		args  []string
		fails bool
	}{
		{"-f", []string{"-f", filepath.Join("testdata", "compat.cql")}, true}, // it holds statements with errors
		{"-e", []string{"-e", "SELECT key, cluster_name FROM system.local; DESCRIBE KEYSPACES"}, false},
		{"-e with an error", []string{"-e", "SELECT * FROM system.nosuch"}, true},
		{"-e with LOCK on no table", []string{"-k", "system", "-e", "SELECT lock FROM local"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tell := func(address string) string {
				cmd, connects := program(t, cqlsh, append(c.args, hostOf(t, address))...)
				out := output(t, cmd, c.fails)
				assert.Equal(t, []string{address}, connected(t, connects), "dialled")
				return out
			}
			want, got := tell(direct), tell(proxy)
			assert.Equal(t, want, got)
			assert.NotEmpty(t, want)
		})
	}
}

// shell is cqlsh at a terminal.
type shell struct {
	t        testing.TB
	terminal *os.File
	done     chan struct{}
	connects string

	mu   sync.Mutex
	said bytes.Buffer // since the last statement
}

// withCqlsh returns cqlsh at a terminal as a driver. It binds no values.
func withCqlsh() driver {
	return driver{name: "cqlsh", open: func(t testing.TB, address, keyspace string) client { return openShell(t, address, keyspace) }}
}

// openShell starts cqlsh, perhaps with more options, and waits for its prompt.
func openShell(t testing.TB, address, keyspace string, options ...string) *shell {
	t.Helper()
	args := append([]string{"--no-color", "--connect-timeout=60", "--request-timeout=60"}, options...)
	if keyspace != "" {
		args = append(args, "-k", keyspace)
	}
	cmd, connects := program(t, needPython(t).Cqlsh, append(args, hostOf(t, address))...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 500})
	require.NoError(t, err)
	s := &shell{t: t, terminal: terminal, done: make(chan struct{}), connects: connects}
	go s.listen()
	t.Cleanup(func() {
		s.close()
		_ = cmd.Wait()
	})
	s.prompt()
	return s
}

// listen collects what cqlsh prints.
func (s *shell) listen() {
	defer close(s.done)
	buffer := make([]byte, 4096)
	for {
		n, err := s.terminal.Read(buffer)
		s.mu.Lock()
		s.said.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// close types exit and waits for the end. It may be called again.
func (s *shell) close() {
	_, _ = s.terminal.WriteString("exit\n") // fails if cqlsh has ended before
	<-s.done                                // cqlsh has ended, by itself or killed after programTimeout
	_ = s.terminal.Close()
}

// heard returns what cqlsh has printed since the last statement.
func (s *shell) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// prompt waits for cqlsh's prompt, and returns what was printed before it.
func (s *shell) prompt() string {
	s.t.Helper()
	var said string
	eventually(s.t, programTimeout, "prompt of cqlsh", func() error {
		said = strings.ReplaceAll(s.heard(), "\r", "")
		if !promptPattern().MatchString(said) {
			return errorf("no prompt after %q", said)
		}
		return nil
	})
	return promptPattern().ReplaceAllString(said, "")
}

// promptPattern matches the prompt at the end of what was printed.
func promptPattern() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|\n)(?:\w+@)?cqlsh(?::\w+)?> (?:\x1b\[[^a-z]*[a-z])*$`)
}

// enter types a line, and forgets what was printed before.
func (s *shell) enter(line string) {
	s.t.Helper()
	s.mu.Lock()
	s.said.Reset()
	s.mu.Unlock()
	_, err := s.terminal.WriteString(line + "\n")
	require.NoError(s.t, err)
}

// ask types a line and returns what cqlsh prints in answer.
func (s *shell) ask(line string) string {
	s.t.Helper()
	s.enter(line)
	eventually(s.t, time.Minute, "echo of cqlsh", func() error {
		if !strings.Contains(s.heard(), "\n") {
			return errorf("%q", s.heard())
		}
		return nil
	})
	_, said, _ := strings.Cut(s.prompt(), "\n")
	return said
}

func (s *shell) run(st statement) outcome {
	s.t.Helper()
	return readTable(s.ask(st.cql + ";"))
}

// readTable reads what cqlsh prints: a table, an error, or nothing.
func readTable(said string) outcome {
	var o outcome
	if found := regexp.MustCompile(`(?s)code=([0-9a-f]{4}) \[[^]]*\] message="(.*)"`).FindStringSubmatch(said); found != nil {
		code, _ := strconv.ParseInt(found[1], 16, 32) // hexadecimal digits by the expression
		o.failure = &failure{int(code), found[2]}
		return o
	}
	lines := strings.Split(strings.Trim(said, "\n"), "\n")
	for i, line := range lines {
		if i > 0 && strings.HasPrefix(line, "--") {
			o.columns = cells(lines[i-1])
			continue
		}
		if o.columns != nil && strings.HasPrefix(line, " ") {
			o.rows = append(o.rows, cells(line))
		}
	}
	if o.columns == nil && strings.TrimSpace(said) != "" && !strings.Contains(said, "arning") {
		o.failure = &failure{0, strings.TrimSpace(said)}
	}
	return o
}

// cells returns the cells of one line of a table.
func cells(line string) []string {
	var all []string
	for cell := range strings.SplitSeq(line, "|") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}

// The same for statements typed at a terminal.
func TestCqlshAtATerminalShowsTheSame(t *testing.T) {
	proxy, direct := needProxy(t), needEnvironment(t).direct()
	tell := func(address string) []string {
		s := openShell(t, address, "")
		var all []string
		for _, line := range []string{
			"SELECT key, cluster_name FROM system.local;", "USE system;", "SELECT count(*) FROM peers;", "SELECT nosuch FROM local;",
			"DESCRIBE TABLE local;", "CONSISTENCY", "TRACING ON", "TRACING OFF", "SHOW VERSION", "EXPAND ON", "SELECT key FROM local;",
		} {
			all = append(all, line, s.ask(line))
		}
		s.close()
		assert.Equal(t, []string{address}, connected(t, s.connects), "dialled")
		return all
	}
	want, got := tell(direct), tell(proxy)
	assert.Equal(t, want, got)
	assert.Contains(t, strings.Join(want, "\n"), "local |            t")
}
