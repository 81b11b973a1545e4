package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"music/config"
)

// auditOutput is the destination of the audit: the log, or a file of its own.
type auditOutput struct {
	log   zerolog.Logger // for the lines
	lines *logWriter     // nil where it is the log
	file  *auditFile     // likewise
	told  zerolog.Logger // the log of the proxy
}

// openAudit opens the audit that is asked for. log is the proxy's own.
func openAudit(c config.Log, log zerolog.Logger) (*auditOutput, error) {
	if c.AuditFile == "" {
		return &auditOutput{log: log.Hook(zerolog.HookFunc(asInfo)), told: log}, nil
	}
	file := &auditFile{path: c.AuditFile, faults: log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})}
	if err := file.reopen(); err != nil {
		return nil, err
	}
	lines := newLogWriter(file)
	return &auditOutput{log: zerolog.New(lines).With().Timestamp().Logger(), lines: lines, file: file, told: log}, nil
}

// asInfo drops lines of the audit if the level of the log is above info.
func asInfo(e *zerolog.Event, _ zerolog.Level, _ string) {
	if zerolog.GlobalLevel() > zerolog.InfoLevel {
		e.Discard()
	}
}

// reopen continues with the file that is at the path by now, as is needed after a rotation.
func (a *auditOutput) reopen() {
	if a.file == nil {
		return
	}
	if err := a.file.reopen(); err != nil {
		a.told.Error().Err(err).Msg("SIGHUP: the audit goes on being written to the file that was open")
		return
	}
	a.told.Info().Str("audit_file", a.file.path).Msg("SIGHUP: the audit's file is opened again")
}

// close writes the remaining lines. It blocks for at most limit.
func (a *auditOutput) close(limit time.Duration) {
	if a.file != nil {
		a.lines.close(limit)
		_ = a.file.close()
	}
}

// auditFile is a file that lines are appended to. If they cannot be, the log says so each minute. It is
// safe for concurrent use.
type auditFile struct {
	path   string
	faults zerolog.Logger // sampled
	mu     sync.Mutex
	open   *os.File
}

// reopen opens the file at the path, and makes it if there is none, readable for its owner only.
// After an error, the file that was open stays in use.
func (f *auditFile) reopen() error {
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit's file (setting audit-file): %w", err)
	}
	f.mu.Lock()
	old := f.open
	f.open = file
	f.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	return nil
}

// Write implements io.Writer.
func (f *auditFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.open.Write(b)
	if err != nil {
		f.faults.Error().Err(err).Msg("the audit cannot be written: its lines are lost until it can (at most one such line a minute)")
	}
	return n, err
}

// close closes the file. A line that is being written may hang, and then so does the lock.
func (f *auditFile) close() error {
	if !f.mu.TryLock() {
		return nil
	}
	defer f.mu.Unlock()
	return f.open.Close()
}
