package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/client"
)

// queue is a holder and one who waits.
func queue() []client.Listing {
	number, holder := int64(7), "anna\x1b[2J"
	return []client.Listing{
		{Table: "bank.accounts", Key: "'zurich'", Number: &number, State: "HELD", Holder: &holder, AgeMS: 74, LeaseMS: 29956},
		{Table: "bank.accounts", Key: "'zurich'", Position: 1, State: "QUEUED", AgeMS: 61_000},
	}
}

func TestLocksAsATable(t *testing.T) {
	want := `
TABLE          KEY       POSITION  STATE   HOLDER          AGE    LEASE  NUMBER
bank.accounts  'zurich'  0         HELD    "anna\x1b[2J"   100ms  30s    7
bank.accounts  'zurich'  1         QUEUED  -               1m1s   -      -
`
	assert.Equal(t, strings.Fields(want), strings.Fields(lockTable(queue(), 0)), "what somebody calls himself changes no terminal")
	assert.Equal(t, lockTable(queue(), 0), lockTable(queue(), 120))
	assert.Equal(t, "no locks\n", lockTable(nil, 40))
}

// At a narrow terminal a lock has lines of its own, none wider than that.
func TestLocksAtANarrowTerminal(t *testing.T) {
	text := lockTable(queue(), 40)
	assert.Contains(t, text, "bank.accounts 'zurich'\n  HELD, position 0, number 7\n")
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, len(strings.TrimSpace(line)), 40)
	}
}

func TestLocksAsJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&locksView{out: &out}).writeJSON(nil))
	require.NoError(t, (&locksView{out: &out}).writeJSON(queue()[1:]))
	assert.Equal(t, "[]\n"+`[{"table":"bank.accounts","key":"'zurich'","position":1,"number":null,"state":"QUEUED","holder":null,"age_ms":61000,"lease_ms":0}]`+"\n", out.String())
}

// A list of which some locks are missing says so, also to a program.
func TestLocksThatAreNotShown(t *testing.T) {
	warnings := []string{"the locks of the proxy at \"10.0.1.2:9043\" are not shown: it does not answer"}
	var out, beside bytes.Buffer
	require.NoError(t, (&locksView{out: &out, beside: &beside, form: outJSON}).write(nil, warnings, "10.0.1.1:9042"))
	assert.Equal(t, "[]\n", out.String())
	assert.Equal(t, "music: warning: "+warnings[0]+"\n", beside.String())
	out.Reset()
	beside.Reset()
	require.NoError(t, (&locksView{out: &out, beside: &beside, form: outText}).write(nil, warnings, "10.0.1.1:9042"))
	assert.Equal(t, "no locks\nwarning: "+warnings[0]+"\n", out.String())
	assert.Empty(t, beside.String())
}

// What cannot be meant is told without asking anybody.
func TestCommandsThatMakeNoSense(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x\n"), 0o600))
	for want, args := range map[string][]string{
		"--force is missing":                      {"unlock", "bank.t", "x"},
		"--reason is missing":                     {"unlock", "bank.t", "x", "--force"},
		"the lock is missing":                     {"unlock", "--force", "--reason=x"},
		"the command is missing: music lock NAME": {"lock"},
		"--every is below 0.1s":                   {"locks", "--watch", "--every=0s"},
		"--timeout is not above 0":                {"check", "--timeout=0s"},
		"-o is text or json":                      {"locks", "-o", "xml"},
		"--password-file without --username":      {"locks", "--password-file", secret},
		"--username without --password-file":      {"locks", "-u", "x"},
		"--password-file: open /no/such":          {"locks", "-u", "x", "--password-file=/no/such"},
		"--tls-ca " + secret + ": no certificate": {"locks", "--tls-ca", secret},
		"--tls-cert and --tls-key go together":    {"locks", "--tls-cert", secret},
		`invalid argument "soon" for "--timeout"`: {"locks", "--timeout=soon"},
		`unknown command "lokcs" for "music"`:     {"lokcs"},
		"the command is missing":                  {"lock", "nightly"},
		"--lease is shorter than 1s":              {"lock", "nightly", "--lease=10ms", "--", "true"},
		"--wait is below 0":                       {"lock", "nightly", "--wait=-1s", "--", "true"},
		"no proxy answers: is one running there, and the node behind it, without which it does not listen? -": {"locks", "--proxy="},
	} {
		o := run(done, nil, args...)
		assert.Equal(t, statusUsage, o.status, "%q", args)
		assert.Contains(t, o.stderr, want)
		assert.Empty(t, o.stdout)
	}
}

// A command that is not there is told as a shell tells it, before anybody is asked for a lock.
func TestLockWithoutACommand(t *testing.T) {
	o := run(done, nil, "lock", "nightly", "--", "/no/such/command")
	assert.Equal(t, statusNoCommand, o.status)
	assert.Contains(t, o.stderr, "no such file")
	o = run(done, nil, "lock", "nightly", "--", "/etc/passwd")
	assert.Equal(t, statusNoRun, o.status)
	o = run(done, nil, "lock", "nightly", "--proxy=127.0.0.1:1", "--timeout=1s", "--", "true")
	assert.Equal(t, statusNotAcquired, o.status)
	assert.Contains(t, o.stderr, "no proxy answers")
}

func TestNobodyAnswers(t *testing.T) {
	o := run(done, nil, "locks", "--proxy=127.0.0.1:1,127.0.0.1:2", "--timeout=1s")
	assert.Equal(t, statusFailed, o.status)
	assert.Contains(t, o.stderr, "no proxy answers: is one running there, and the node behind it, without which it does not listen? --proxy says where")
	assert.Contains(t, o.stderr, "127.0.0.1:2", "each that was asked")
}
