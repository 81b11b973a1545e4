package integration

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// build builds the program as `make build` does and returns its path.
func (w *environment) build() (string, error) {
	path := filepath.Join(w.runDir, "integration", "music")
	out, err := exec.Command("go", "build", "-trimpath", "-o", path, "music/cmd/music").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w", errors.Join(err, errors.New(string(out))))
	}
	return path, nil
}
