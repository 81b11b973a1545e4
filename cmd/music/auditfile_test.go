package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// The audit goes on in a new file where its own was moved away, and no line is lost; where none can be opened it stays in the old one.
func TestAuditFileIsRotated(t *testing.T) {
	folder := t.TempDir()
	c := config.Log{AuditFile: filepath.Join(folder, "audit")}
	var log bytes.Buffer
	a, err := openAudit(c, zerolog.New(&log))
	require.NoError(t, err)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		return string(text)
	}
	await := func(name, want string) {
		require.Eventually(t, func() bool { return bytes.Contains([]byte(read(name)), []byte(want)) }, 10*time.Second, time.Millisecond)
	}
	a.log.Info().Msg("one")
	await("audit", "one")
	require.NoError(t, os.Rename(c.AuditFile, c.AuditFile+".1"))
	a.log.Info().Msg("two")
	await("audit.1", "two")
	a.reopen()
	a.log.Info().Msg("three")
	await("audit", "three")
	assert.Contains(t, log.String(), "opened again")

	require.NoError(t, os.Remove(c.AuditFile))
	require.NoError(t, os.Mkdir(c.AuditFile, 0o700))
	a.reopen()
	assert.Contains(t, log.String(), "goes on being written to the file that was open")
	a.close(time.Second)
	assert.NotContains(t, read("audit.1"), "three")
}

// A full disk is told in the log, but not with each line.
func TestAuditFileOnAFullDisk(t *testing.T) {
	var log bytes.Buffer
	a, err := openAudit(config.Log{AuditFile: "/dev/full"}, zerolog.New(&log))
	require.NoError(t, err)
	for range 3 {
		a.log.Info().Msg("a line")
	}
	a.close(time.Minute)
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("no space left on device")), log.String())
	assert.Contains(t, log.String(), "the audit cannot be written")
}

// A file that cannot be opened ends the start, and the setting is named.
func TestAuditFileThatCannotBeOpened(t *testing.T) {
	o := run(done, nil, "proxy", "--contact-points=a", "--audit-file="+filepath.Join(t.TempDir(), "none", "audit"))
	assert.Equal(t, statusFailed, o.status)
	assert.Contains(t, o.stderr, "audit-file")
}
