// Package whole writes files that are there as a whole or not at all: who is stopped while it writes leaves the earlier file.
package whole

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file, which everybody may read, and makes its directory if it is missing.
func Write(path, text string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // G301: a report is for everybody
	if err == nil {
		err = os.WriteFile(path+".new", []byte(text), 0o644) //nolint:gosec // G306: likewise
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Save replaces a file by a value as JSON.
func Save(path string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return Write(path, string(text)+"\n")
}

// Load reads what Save has written; nil if there is no such file.
func Load[T any](path string) (*T, error) {
	text, err := os.ReadFile(path) //nolint:gosec // G304: the user names it
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	v := new(T)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}
