package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// journal stores each verdict at once, so that an interrupted run can continue. A verdict is valid
// as long as no file of the packages that judge it has changed. It is safe for concurrent use.
type journal struct {
	mu    sync.Mutex
	file  *os.File // nil: nothing is kept
	root  string
	state map[string]string // a hash of the files of each folder with packages
	known map[verdictKey]fate
}

// verdictKey identifies a mutant and the state of its package.
type verdictKey struct {
	State, File string
	Start, End  int
	With        string
}

// verdictLine is a line of the file. What and Line are for people.
type verdictLine struct {
	verdictKey
	Fate fate
	What string
	Line int
}

// openJournal reads the verdicts of a file and opens it for more. The caller closes it.
func openJournal(root, name string) (*journal, error) {
	j := &journal{root: root, state: map[string]string{}, known: map[verdictKey]fate{}}
	if name == "" {
		return j, nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(root, name)
	}
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read earlier verdicts: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var l verdictLine
		if json.Unmarshal([]byte(line), &l) == nil { // the last line of a run that was ended may be a part of one
			j.known[l.verdictKey] = l.Fate
		}
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return nil, fmt.Errorf("make a folder for the verdicts: %w", err)
	}
	if j.file, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("open the file of verdicts: %w", err)
	}
	return j, nil
}

// Close closes the file.
func (j *journal) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close() //nolint:wrapcheck // names the file
}

// verdict returns what an earlier run found about a mutant.
func (j *journal) verdict(m mutant) (tried, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, ok := j.known[j.key(m)]
	return tried{m, f}, ok
}

// note stores a verdict.
func (j *journal) note(r tried) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return
	}
	line, err := json.Marshal(verdictLine{verdictKey: j.key(r.mutant), Fate: r.fate, What: r.what(), Line: r.line})
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "a verdict is not kept: %v\n", err)
	}
}

// key identifies a mutant in the present state of its package. It is called with mu held.
func (j *journal) key(m mutant) verdictKey {
	folder, _, _ := strings.Cut(m.file, "/")
	if j.state[folder] == "" {
		j.state[folder] = stateOf(filepath.Join(j.root, folder))
	}
	return verdictKey{State: j.state[folder], File: m.file, Start: m.start, End: m.end, With: m.with}
}

// stateOf returns a hash of the Go files in a folder and below it.
func stateOf(folder string) string {
	h := sha256.New()
	_ = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, _ error) error {
		if strings.HasSuffix(path, ".go") {
			text, err := os.ReadFile(path) //nolint:gosec // ours
			_, _ = fmt.Fprintln(h, path, len(text), err)
			h.Write(text)
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)[:8])
}
