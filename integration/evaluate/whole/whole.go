// Package whole writes files that are there as a whole or not at all: who is stopped while it writes leaves the earlier file.
package whole

import (
	"fmt"
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
