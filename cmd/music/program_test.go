package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/proxy"
)

// outcome is what a run of the program left behind.
type outcome struct {
	status         int
	stdout, stderr string
	served         config.Config // of the proxy that ran, if any
	reloads        <-chan config.Config
}

// run runs the program with a proxy that does as serve says.
func run(serve func(context.Context) error, environ []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	o := runProgram(program{environ: environ, stdout: &stdout, stderr: &stderr}, serve, args...)
	o.stdout, o.stderr = stdout.String(), stderr.String()
	return o
}

// runProgram is run of a program that has its own world around it.
func runProgram(p program, serve func(context.Context) error, args ...string) (o outcome) {
	p.serve = func(ctx context.Context, cfg config.Config, logs proxy.Logs, reloads <-chan config.Config, _ ...prometheus.Collector) error {
		o.served, o.reloads = cfg, reloads
		logs.Log.Info().Msg("serving")
		return serve(ctx)
	}
	o.status = p.run(args)
	return o
}

func done(context.Context) error { return nil }

func TestProxyServesItsConfiguration(t *testing.T) {
	o := run(done, []string{"MUSIC_CONTACT_POINTS=10.0.0.1"}, "proxy", "--port=9142")
	assert.Equal(t, statusDone, o.status)
	assert.Equal(t, []string{"10.0.0.1"}, o.served.Cassandra.ContactPoints)
	assert.Equal(t, 9142, o.served.Cassandra.Port)

	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(o.stderr), &line), "the log is JSON unless told otherwise")
	assert.Equal(t, "serving", line["message"])
	assert.NotEmpty(t, line["time"])
}

func TestProxyLogsAsTold(t *testing.T) {
	text := run(done, nil, "proxy", "--contact-points=a", "--log-format=text")
	assert.Contains(t, text.stderr, "serving")
	assert.NotContains(t, text.stderr, "{")
	assert.NotContains(t, text.stderr, "\x1b", "no colours where nobody looks")

	quiet := run(done, nil, "proxy", "--contact-points=a", "--log-level=error")
	assert.Empty(t, quiet.stderr)
}

// With auto, who looks at the log gets text, and who collects it JSON.
func TestLogFormatFollowsWhoReads(t *testing.T) {
	look, terminal, err := pty.Open()
	require.NoError(t, err)
	defer func() { _, _ = look.Close(), terminal.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	for _, c := range []struct {
		format string
		out    io.Writer
		text   bool
	}{
		{"auto", terminal, true},
		{"auto", null, false},
		{"auto", new(bytes.Buffer), false},
		{"json", terminal, false},
		{"text", null, true},
	} {
		_, text := formatted(config.Log{Format: c.format}, c.out).(zerolog.ConsoleWriter)
		assert.Equal(t, c.text, text, "%s at %T", c.format, c.out)
	}
}

// The image lacks what only its user knows, and says so.
func TestImageNeedsToBeToldWhatItCannotKnow(t *testing.T) {
	image, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	_, env, _ := strings.Cut(string(image), "\nENV ")
	env, _, _ = strings.Cut(env, "\n")
	o := run(done, strings.Fields(env), "proxy")
	assert.Equal(t, statusUsage, o.status)
	assert.Equal(t, []string{"contact-points", "advertise"}, settingsOf(o.stderr))
	o = run(done, append(strings.Fields(env), "MUSIC_CONTACT_POINTS=db", "MUSIC_ADVERTISE=10.0.0.7"), "proxy")
	assert.Equal(t, statusDone, o.status)
	assert.Equal(t, "0.0.0.0:9042", o.served.Listen.Address)
}

// settingsOf are the settings whose faults are told, a line each.
func settingsOf(stderr string) []string {
	var all []string
	for _, line := range strings.Split(strings.TrimSpace(stderr), "\n")[1:] {
		all = append(all, strings.Fields(line)[0])
	}
	return all
}

func TestConfigurationFaultsArePlainLines(t *testing.T) {
	o := run(done, []string{"MUSIC_PROT=1"}, "proxy", "--contact-points=a", "--port=0")
	assert.Equal(t, statusUsage, o.status)
	assert.Equal(t, "music: the configuration has faults:\n"+
		"  environment variable MUSIC_PROT: no such setting (music proxy --help has all)\n"+
		"  port \"0\": out of range; allowed: 1 to 65535\n", o.stderr)
	assert.Empty(t, o.served, "nothing was served")
}

func TestWrongCalls(t *testing.T) {
	cases := map[string][]string{
		`unknown command "prxy"`:  {"prxy"},
		`unknown flag: --prot`:    {"proxy", "--prot=1"},
		`unknown command "extra"`: {"proxy", "extra"},
	}
	for want, args := range cases {
		o := run(done, nil, args...)
		assert.Equal(t, statusUsage, o.status)
		assert.Contains(t, o.stderr, "music: "+want)
	}
}

func TestFailedProxy(t *testing.T) {
	broken := func(context.Context) error { return errors.New("no node answers") }
	o := run(broken, nil, "proxy", "--contact-points=a", "--log-level=error")
	assert.Equal(t, statusFailed, o.status)

	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(o.stderr), &line), "told once, in the log")
	assert.Equal(t, "no node answers", line["error"])
}

// The kernel delivers a signal to a process of its own at once only as far as the flag goes: the test
// waits for the context, which is what a proxy does too.
func TestSignalEndsTheProxy(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		untilSignal := func(ctx context.Context) error {
			err := syscall.Kill(syscall.Getpid(), sig)
			<-ctx.Done()
			return err
		}
		o := run(untilSignal, nil, "proxy", "--contact-points=a")
		assert.Equal(t, statusDone, o.status, "%v", sig)
	}
}

// --check tells each thing on a line, and the worst of them by the status. It serves nobody.
func TestCheckOfAStart(t *testing.T) {
	for _, c := range []struct {
		tried  []proxy.Checked
		args   []string
		status int
		want   string
	}{
		{[]proxy.Checked{{What: "listen", Found: "free"}}, []string{"--contact-points=a"}, statusDone, "fine   listen: free\n"},
		{[]proxy.Checked{{What: "listen", Err: errors.New("taken\nby another")}, {What: "x", Found: "y"}}, []string{"--contact-points=a"}, statusFailed, "fault  listen: taken; by another\nfine   x: y\n"},
		{nil, nil, statusUsage, ""},
	} {
		var stdout, stderr bytes.Buffer
		p := program{stdout: &stdout, stderr: &stderr, try: func(context.Context, config.Config) []proxy.Checked { return c.tried }}
		o := runProgram(p, func(context.Context) error { panic("served") }, append([]string{"proxy", "--check"}, c.args...)...)
		assert.Equal(t, c.status, o.status)
		assert.Equal(t, c.want, stdout.String())
	}
}

func TestVersion(t *testing.T) {
	for _, asked := range []string{"version", "--version"} {
		o := run(done, nil, asked)
		assert.Equal(t, statusDone, o.status)
		assert.Regexp(t, `^music    \S+\nrevision .+\ngo       go1\.`, o.stdout)
	}
}

func TestDescribe(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Version: "v0.1.0"},
		Settings:  []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	}
	assert.Equal(t, "music    v0.1.0\nrevision abc (modified)\ngo       go1.26.8\n", describe(info))
	assert.Equal(t, "music    unknown\nrevision unknown\ngo       unknown\n", describe(nil))
}

// told collects what several goroutines write.
type told struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (w *told) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

// String returns all of it.
func (w *told) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// SIGHUP: the level of the log changes at once, what waits for a restart is named, and a configuration with faults changes nothing.
func TestSIGHUPReadsTheConfigurationAgain(t *testing.T) {
	t.Cleanup(func() { zerolog.SetGlobalLevel(zerolog.TraceLevel) })
	path := filepath.Join(t.TempDir(), "music.yaml")
	out := new(told)
	change := func(text, says string) {
		require.NoError(t, os.WriteFile(path, []byte("contact-points: [a]\n"+text), 0o600))
		if says != "" {
			require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
			require.Eventually(t, func() bool { return strings.Contains(out.String(), says) }, time.Minute, time.Millisecond, says)
		}
	}
	change("", "")
	o := runProgram(program{stdout: io.Discard, stderr: out}, func(context.Context) error {
		change("log-level: error\nmax-connections: 7\nretain: 1s\ncritical: [bank.accounts]\n", `"taken_over":["critical","max-connections","log-level"],"wait_for_a_restart":["retain"]`)
		assert.Equal(t, zerolog.ErrorLevel, zerolog.GlobalLevel())
		change("log-level: loud\n", "the proxy goes on with the one that it has")
		assert.Equal(t, zerolog.ErrorLevel, zerolog.GlobalLevel())
		change("critical: [bank.notes]\n", `"taken_over":["critical","max-connections","log-level"],"wait_for_a_restart":["critical"]`)
		assert.Equal(t, zerolog.InfoLevel, zerolog.GlobalLevel())
		return nil
	}, "proxy", "--config", path)
	assert.Equal(t, statusDone, o.status)
	last := <-o.reloads
	assert.Equal(t, []string{"bank.accounts", "bank.notes"}, last.Music.Critical, "patterns only grow")
	assert.Equal(t, config.Default().Limits, last.Limits)
	assert.Equal(t, config.Default().Music.Retain, last.Music.Retain)
}

// A disk that hangs while SIGHUP is obeyed does not keep the process from its end.
func TestEndDoesNotWaitForSIGHUP(t *testing.T) {
	begun, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	stop := onSignal(syscall.SIGHUP, func() {
		close(begun)
		<-never
	})
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
	<-begun
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second): // only of a test that fails
		require.Fail(t, "the end waits")
	}
}

// An audit in the log keeps to the level of the log, and one in a file of its own does not.
func TestAuditAndTheLevelOfTheLog(t *testing.T) {
	t.Cleanup(func() { zerolog.SetGlobalLevel(zerolog.TraceLevel) })
	path := filepath.Join(t.TempDir(), "audit")
	for _, file := range []string{"", path} {
		var out bytes.Buffer
		log, err := newLogger(config.Log{Level: "warn"}, &out)
		require.NoError(t, err)
		a, err := openAudit(config.Log{AuditFile: file}, log)
		require.NoError(t, err)
		a.log.Log().Msg("a line")
		require.NoError(t, setLevel(config.Log{Level: "info"}))
		a.log.Log().Msg("another")
		a.close(time.Minute)
		own, _ := os.ReadFile(file)
		assert.Equal(t, file != "", strings.Contains(out.String()+string(own), "a line"))
		assert.Contains(t, out.String()+string(own), "another")
	}
}
