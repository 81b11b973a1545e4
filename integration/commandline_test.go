package integration

import (
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
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ran is the result of a run of the program.
type ran struct {
	status      int
	out, errors string
}

// commandLine returns a command that runs the program with these arguments through the shared
// proxy.
func commandLine(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := needEnvironment(t).binary()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, path, append(args[:1:1], append([]string{"--proxy", needProxy(t)}, args[1:]...)...)...)
}

// call runs the program to its end.
func call(t *testing.T, args ...string) ran {
	t.Helper()
	return finish(t, commandLine(t, args...))
}

// finish runs a command to its end.
func finish(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var ended *exec.ExitError
	require.True(t, err == nil || errors.As(err, &ended), "%v", err)
	return ran{cmd.ProcessState.ExitCode(), out.String(), complaints.String()}
}

// listed returns the locks of a key as `music locks -o json` prints them.
func listed(t *testing.T, words ...string) []map[string]any {
	t.Helper()
	r := call(t, append([]string{"locks", "-o", "json"}, words...)...)
	require.Zero(t, r.status, r.errors)
	var all []map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &all), r.out)
	return all
}

// `music locks` shows the holder, and `music unlock` ends its lock by force; for a lock that is not
// there, or an address that is not a proxy's, there is an error.
func TestCommandLineListsAndEnds(t *testing.T) {
	assert.Empty(t, listed(t, "music.named", "cli list"), "also: the program is built before any lease begins")
	c := withGocql2(4, "").open(t, needProxy(t), "")
	o := c.run(statement{cql: "LOCK music.named WHERE name = 'cli list' AS 'anna'"})
	require.Equal(t, "held", told(o, "state"))
	all := listed(t, "ON", "music.named", "cli list")
	require.Len(t, all, 1)
	assert.Equal(t, "anna", all[0]["holder"])
	assert.Equal(t, "'cli list'", all[0]["key"])
	r := call(t, "locks", "music.named")
	assert.Contains(t, r.out, "TABLE")
	assert.Contains(t, r.out, "'cli list'")

	r = call(t, "unlock", "music.named", "cli list", "--force", "--reason", "a test")
	assert.Zero(t, r.status, r.errors)
	assert.Contains(t, r.out, "ended: the lock of music.named WHERE name = 'cli list'")
	assert.Empty(t, listed(t, "music.named", "cli list"))
	r = call(t, "unlock", "cli list", "--force", "--reason", "again")
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.errors, "nobody holds it")

	for _, words := range [][]string{{"unlock", "music.named", "--force", "--reason", "a test"}, {"lock", "music.named", "--", "true"}} {
		r = call(t, words...)
		assert.Equal(t, 2, r.status, words)
		assert.Contains(t, r.errors, "the key is missing: music.named is a table", words)
	}
	for _, words := range [][]string{{"locks"}, {"unlock", "--force", "--reason", "a test"}, {"lock"}} {
		for _, key := range [][]string{{"music.nothing", "x"}, {"music.named", "nothing=x", "y"}} {
			words := append(words, key...)
			if words[0] == "lock" {
				words = append(words, "--", "true")
			}
			r = call(t, words...)
			assert.Equal(t, 2, r.status, words)
			assert.Contains(t, r.errors, " music.n", words)
		}
	}
	r = finish(t, exec.Command(commandLine(t, "locks").Path, "locks", "--proxy", needEnvironment(t).direct()))
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.errors, "no MUSIC proxy")
}

// At a terminal of 40 columns no line is wider; if the reader of its output goes away, the command
// ends silently.
func TestCommandLineAtATerminalAndAPipe(t *testing.T) {
	commands := []*exec.Cmd{commandLine(t, "locks", "music.named", "cli narrow"), commandLine(t, "check", "--timeout", "1s")} // builds the program, before a lease runs
	c := withGocql2(4, "").open(t, needProxy(t), "")
	require.NoError(t, c.run(statement{cql: "LOCK music.named WHERE name = 'cli narrow' AS 'somebody with a name'"}).err())
	look, terminal, err := pty.Open()
	require.NoError(t, err)
	defer func() { _ = look.Close() }()
	require.NoError(t, pty.Setsize(terminal, &pty.Winsize{Rows: 25, Cols: 40}))
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(look) // ends with an error when the terminal is closed
		shown <- string(text)
	}()
	for _, cmd := range commands {
		cmd.Stdout = terminal
		_ = cmd.Run() // its status is not 0, since check has findings
	}
	require.NoError(t, terminal.Close())
	text := <-shown
	assert.Contains(t, text, "by somebody with a name")
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 2 { // otherwise it is one long word with its label
			assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\r\n"))), 40, line)
		}
	}

	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	var complaints bytes.Buffer
	for _, args := range [][]string{{"locks"}, {"check", "--timeout", "1s"}} {
		cmd := commandLine(t, args...)
		cmd.Stdout, cmd.Stderr = w, &complaints
		_ = cmd.Run() // by SIGPIPE, as any program
	}
	_ = w.Close()
	assert.Empty(t, complaints.String())
}

// A command runs under its lock and gets the reference; its exit status is passed on, and the lock
// is released afterwards.
func TestCommandLineRunsUnderALock(t *testing.T) {
	r := call(t, "lock", "cli run", "--", "sh", "-c", "echo $LOCK_TABLE $LOCK_REF; exit 7")
	assert.Equal(t, 7, r.status, r.errors)
	assert.Regexp(t, `^music\.named [1-9]\d{6,18}\n$`, r.out)
	assert.Empty(t, listed(t, "music.named", "cli run"))
	r = call(t, "lock", "music.named", "name=cli run", "--", "sh", "-c", "kill -9 $$")
	assert.Equal(t, 128+9, r.status, r.errors)

	c := withGocql2(4, "").open(t, needProxy(t), "")
	o := c.run(statement{cql: "LOCK music.named WHERE name = 'cli run' AS 'anna'"})
	require.Equal(t, "held", told(o, "state"))
	for _, wait := range []string{"0s", "100ms"} {
		r = call(t, "lock", "cli run", "--wait", wait, "--", "echo", "ran")
		assert.Equal(t, 75, r.status)
		assert.Contains(t, r.errors, "held by anna")
		assert.Empty(t, r.out)
	}
	assert.Len(t, listed(t, "music.named", "cli run"), 1, "who gives up leaves the queue")
	waits := commandLine(t, "lock", "cli run", "--", "echo", "ran")
	var out bytes.Buffer
	waits.Stdout = &out
	require.NoError(t, waits.Start())
	eventually(t, time.Minute, "it waits", func() error {
		if n := len(listed(t, "music.named", "cli run")); n != 2 {
			return errorf("%d", n)
		}
		return nil
	})
	require.NoError(t, c.run(statement{cql: "UNLOCK music.named WHERE name = 'cli run' USING LOCK " + told(o, "lock_ref")}).err())
	require.NoError(t, waits.Wait())
	assert.Equal(t, "ran\n", out.String())
}

// held starts a command under a lock and returns when it runs; lines is its output.
func held(t *testing.T, name string, script string, args ...string) (cmd *exec.Cmd, complaints *logBuffer) {
	t.Helper()
	cmd = commandLine(t, append(append([]string{"lock", name}, args...), "--", "sh", "-c", script)...)
	complaints = new(logBuffer)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = complaints
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, len("runs\n")))
	require.NoError(t, err, complaints.String())
	go func() { _, _ = io.Copy(io.Discard, out) }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if it has not ended by itself
	return cmd, complaints
}

// A lease is renewed while the command runs; if the lock is ended by force, the command is ended,
// with all its processes.
func TestCommandLineKeepsItsLease(t *testing.T) {
	cmd, complaints := held(t, "cli keep", "sleep 1000 & echo runs; wait", "--lease", "1s")
	number := listed(t, "music.named", "cli keep")[0]["number"]
	eventually(t, time.Minute, "its lease has begun anew", func() error {
		all := listed(t, "music.named", "cli keep")
		if len(all) != 1 || all[0]["number"] != number {
			return fatal{errorf("%v\n%s", all, complaints)}
		}
		if age := all[0]["age_ms"].(float64); age < 2500 {
			return errorf("%v ms", age)
		}
		return nil
	})
	r := call(t, "unlock", "cli keep", "--force", "--reason", "a test")
	require.Zero(t, r.status, r.errors)
	_ = cmd.Wait()
	assert.Equal(t, 128+int(syscall.SIGTERM), cmd.ProcessState.ExitCode())
	assert.Contains(t, complaints.String(), "the lock is lost")
}

// A signal is passed to the command; the lock is released when the command has ended.
func TestCommandLinePassesSignalsOn(t *testing.T) {
	cmd, complaints := held(t, "cli signal", "trap 'exit 3' TERM; echo runs; while :; do sleep 0.1; done")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, 3, cmd.ProcessState.ExitCode(), complaints.String())
	assert.Empty(t, listed(t, "music.named", "cli signal"))
}

// A command has the terminal while it runs, and the calling script has it again afterwards.
func TestCommandLineGivesTheTerminalToItsCommand(t *testing.T) {
	cmd := commandLine(t, "lock", "cli terminal", "--", "sh", "-c", "read x; echo got $x")
	ctx, cancel := context.WithTimeout(context.Background(), programTimeout)
	defer cancel()
	script := exec.CommandContext(ctx, "sh", append([]string{"-c", `"$@"; read y; echo then $y`, "sh", cmd.Path}, cmd.Args[1:]...)...)
	look, err := pty.Start(script)
	require.NoError(t, err)
	defer func() { _ = look.Close() }()
	_, err = look.WriteString("one\ntwo\n")
	require.NoError(t, err)
	text, _ := io.ReadAll(look) // ends with an error when the terminal is closed
	require.NoError(t, script.Wait(), "%s", text)
	assert.Contains(t, string(text), "got one")
	assert.Contains(t, string(text), "then two")
}

// A command does not outlive `music lock`, however that ends.
func TestCommandLineKilled(t *testing.T) {
	cmd := commandLine(t, "lock", "cli killed", "--lease", "1s", "--", "sh", "-c", "echo runs; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, len("runs\n")))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	rest, err := io.ReadAll(out) // ends with the command's own end
	require.NoError(t, err)
	assert.Empty(t, rest)
	_ = cmd.Wait()
}

// If no proxy answers any more, the command is asked to end, and killed before the lease ends if it
// does not.
func TestCommandLineWithoutItsProxy(t *testing.T) {
	p := startProcess(t, needEnvironment(t).direct())
	path, err := needEnvironment(t).binary()
	require.NoError(t, err)
	cmd := exec.Command(path, "lock", "cli alone", "--proxy", p.address, "--lease", "2s", "--", "sh", "-c", "trap 'echo asked' TERM; echo runs; while :; do sleep 0.1; done")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	complaints := new(logBuffer)
	cmd.Stderr = complaints
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, len("runs\n")))
	require.NoError(t, err, complaints.String())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	begun := time.Now()
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	took := time.Since(begun)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	_ = cmd.Wait()
	assert.Equal(t, "asked\n", string(rest), "SIGTERM, then SIGKILL")
	assert.Equal(t, 128+int(syscall.SIGKILL), cmd.ProcessState.ExitCode(), complaints.String())
	assert.Contains(t, complaints.String(), "could not be renewed")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM)) // so that no one waits for its session's end
	assert.Zero(t, p.status(t))
	t.Logf("ended %v after its proxy went silent, of a lease of 2 s", took)
}

// found returns the findings of `music check` by their topics.
func found(t *testing.T, cmd *exec.Cmd) (byTopic map[string]string, status int) {
	t.Helper()
	r := finish(t, cmd)
	var all []struct{ Level, Topic, Text, Do string }
	require.NoError(t, json.Unmarshal([]byte(r.out), &all), "%s%s", r.out, r.errors)
	byTopic = map[string]string{}
	for _, f := range all {
		byTopic[f.Topic] += f.Level + ": " + f.Text + "\n"
		assert.Equal(t, f.Level == "fine", f.Do == "", "what to do is said where there is something: %v", f)
	}
	return byTopic, r.status
}

// `music check` finds what is wrong with a real node and its tables, and confirms what is right.
func TestCommandLineChecks(t *testing.T) {
	node := needEnvironment(t).direct()
	c := withGocql2(4, "").open(t, node, "")
	for _, cql := range []string{
		"DROP KEYSPACE IF EXISTS checked",
		"CREATE KEYSPACE checked WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE checked.music_lock_00112233445566778899aabbccddeeff (k1 text PRIMARY KEY)",
	} {
		require.NoError(t, c.run(statement{cql: cql}).err())
	}
	through := withGocql2(4, "").open(t, needProxy(t), "")
	require.NoError(t, through.run(statement{cql: "CREATE TABLE checked.hasty (k int PRIMARY KEY, v int) WITH comment = '@critical' AND read_repair = 'NONE'"}).err())
	for k := range 3 { // locked and never written, or written and never locked
		eventually(t, time.Minute, "a lock", func() error {
			return through.run(statement{cql: fmt.Sprintf("LOCK checked.hasty WHERE k = %d", k)}).err()
		})
		require.NoError(t, c.run(statement{cql: fmt.Sprintf("INSERT INTO checked.hasty (k, v) VALUES (%d, 1)", 10+k)}).err())
	}
	past := cluster2(node, "")
	past.Dialer = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 77)}}
	defer openGocql2(t, past).close()

	topics, status := found(t, commandLine(t, "check", "-o", "json", "--timeout", "5m"))
	assert.Contains(t, topics["proxies"], "fine: ")
	assert.Contains(t, topics["releases"], "fine: Cassandra 5.0.")
	assert.Contains(t, topics["clocks"], "fine: ")
	assert.Contains(t, topics["commitlog_sync"], "warning: periodic")
	assert.Contains(t, topics["paxos_variant"], "fine: v2")
	assert.Contains(t, topics["replicas"], "warning: keyspace checked has 1: the loss of one node")
	assert.Contains(t, topics["read_repair"], "warning: NONE on checked.hasty")
	assert.Contains(t, topics["lock_tables"], "warning: checked.music_lock_00112233445566778899aabbccddeeff has lock rows of a table that is not there")
	assert.Contains(t, topics["lock_rows"], "warning: checked.hasty has data, and none of 3 lock rows is of any, such as that of ")
	assert.Contains(t, topics["lock_rows"], "warning: checked.hasty has lock rows, and none of 3 keys with data has one, such as 1")
	assert.Contains(t, topics["clients"], "127.0.0.77 (role anonymous, ")
	assert.Contains(t, topics["rights"], "fine: ")
	assert.NotContains(t, topics, "unseen", "%v", topics["unseen"])
	assert.Positive(t, status)
	require.NoError(t, through.run(statement{cql: "DROP TABLE checked.hasty"}).err())
	require.NoError(t, c.run(statement{cql: "DROP KEYSPACE checked"}).err())
}

// commandLine: a role that may not log in, or may not do something, gets an error; another one sees
// which rights the proxies' role lacks.
func (b *rightsFixture) commandLine(t *testing.T) {
	path, err := needEnvironment(t).binary()
	require.NoError(t, err)
	as := func(role, password string, args ...string) *exec.Cmd {
		secret := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(secret, []byte(password+"\n"), 0o600))
		return exec.Command(path, append([]string{args[0], "--proxy", b.proxy.address, "-u", role, "--password-file", secret}, args[1:]...)...)
	}
	for _, c := range []struct {
		cmd    *exec.Cmd
		status int
		want   string
	}{
		{as("writer", "wrong", "locks"), 1, "the login is refused"},
		{exec.Command(path, "locks", "--proxy", b.proxy.address), 1, "the login is refused"},
		{as("writer", "wrong", "lock", "bank.accounts", "branch=z", "--", "true"), 75, "the login is refused"},
		{as("writer", "w", "locks"), 1, "LIST LOCKS ON"},
		{as("nobody", "n", "locks", "bank.accounts"), 1, "has no SELECT permission"},
		{as("writer", "w", "unlock", "bank.accounts", "z", "--force", "--reason", "x"), 1, "has no AUTHORIZE permission"},
		{as("nobody", "n", "lock", "bank.accounts", "z", "--", "true"), 75, "has no MODIFY permission"},
	} {
		r := finish(t, c.cmd)
		assert.Equal(t, c.status, r.status, "%v: %s", c.cmd.Args, r.errors)
		assert.Contains(t, r.errors, c.want, "%v", c.cmd.Args)
		assert.Empty(t, r.out)
	}
	r := finish(t, as("writer", "w", "lock", "bank.accounts", "z", "--", "sh", "-c", "echo $LOCK_TABLE"))
	assert.Equal(t, ran{0, "bank.accounts\n", ""}, r)

	topics, _ := found(t, as("cassandra", "cassandra", "check", "-o", "json"))
	assert.Contains(t, topics["rights"], "fine: the proxies' role cassandra has what it needs")
	topics, _ = found(t, as("writer", "w", "check", "-o", "json"))
	assert.Contains(t, topics["clients"], "not seen with this login")
	assert.Contains(t, topics["unseen"], "permission")
}

// checkRole: rights that the proxies' role lacks are found, with the statement that grants them.
func (b *rightsFixture) checkRole(t *testing.T, proxy string) {
	path, err := needEnvironment(t).binary()
	require.NoError(t, err)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("cassandra"), 0o600))
	topics, _ := found(t, exec.Command(path, "check", "-o", "json", "--proxy", proxy, "-u", "cassandra", "--password-file", secret))
	assert.Contains(t, topics["rights"], "fault: the proxies' role music has no MODIFY on KEYSPACE bank", "it was given till alone")
	assert.NotContains(t, topics["rights"], "KEYSPACE till")
}
