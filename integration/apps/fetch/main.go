// Fetch downloads the Go modules whose tests run here, and builds those tests, into the folder .run/apps of the checkout.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"music/integration/cassandra"
)

// suite is a test binary, and a file of its module that the tests need beside it.
type suite struct {
	module, tests, binary string
	file, copied          string
}

// suites returns all of them.
func suites() []suite {
	return []suite{
		{
			"go.temporal.io/server@v1.29.1", "./common/persistence/tests", "temporal.test",
			"schema/cassandra/temporal/schema.cql", "temporal.cql",
		},
		{
			"github.com/jaegertracing/jaeger@v1.76.0", "./internal/storage/integration", "jaeger.test",
			"internal/storage/v1/cassandra/schema/v004-go-tmpl.cql.tmpl", "jaeger.cql.tmpl",
		},
	}
}

// build downloads the module and writes binary and file to dir. The module's own go.sum tells what
// it is built with; nothing of it is changed.
func (s suite) build(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", s.module).Output() //nolint:gosec // G204: the list above
	if err != nil {
		return fmt.Errorf("download %s: %w\n%s", s.module, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return fmt.Errorf("download %s: %w", s.module, err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, filepath.FromSlash(s.file)))
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, s.copied), text, 0o600); err != nil { //nolint:gosec // G703: the list above
		return fmt.Errorf("copy the schema: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "-C", module.Dir, "test", "-vet=off", "-c", "-o", filepath.Join(dir, s.binary), s.tests) //nolint:gosec // G204: the list above
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the tests of %s: %w", s.module, err)
	}
	return nil
}

func main() {
	runDir, err := cassandra.DefaultRunDir()
	if err != nil {
		fail(err)
	}
	for _, s := range suites() {
		if err := s.build(context.Background(), filepath.Join(runDir, "apps")); err != nil {
			fail(err)
		}
	}
}

// fail says why and ends the program.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "fetch:", err)
	os.Exit(1)
}
