package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"music/integration/cassandra"
)

// Command returns how to start the player of a language. Those for Go are built; the others are in
// the run directory, where `make clients` installs them. root is the folder of the helpers.
func Command(ctx context.Context, language, root, runDir string) (func() *exec.Cmd, error) {
	installed := filepath.Join(runDir, "clients")
	switch language {
	case "go", "gocql1":
		path := filepath.Join(installed, language)
		out, err := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, language), "build", "-o", path, "./player").CombinedOutput() //nolint:gosec // G204: our own players
		if err != nil {
			return nil, fmt.Errorf("build the player: %w\n%s", err, out)
		}
		return starter(ctx, nil, path), nil
	case "python", "asyncio":
		venv, err := cassandra.Python(ctx, runDir, os.Stderr)
		if err != nil {
			return nil, err
		}
		env := []string{"PYTHONPATH=" + filepath.Join(installed, "python"), "PYTHONSAFEPATH=1", "PYTHONDONTWRITEBYTECODE=1"}
		return starter(ctx, env, venv.Python, filepath.Join(root, "python", "player.py"), language), nil
	case "node":
		return starter(ctx, []string{"NODE_PATH=" + filepath.Join(installed, "node", "node_modules")}, "node", filepath.Join(root, "node", "player.js")), nil
	case "java":
		dir := filepath.Join(installed, "java")
		path := strings.Join([]string{filepath.Join(dir, "test-classes"), filepath.Join(dir, "music-locks-1.0.0.jar"), filepath.Join(dir, "lib", "*")}, string(filepath.ListSeparator))
		return starter(ctx, nil, "java", "-XX:TieredStopAtLevel=1", "-Dio.netty.machineId=02:00:00:00:00:00:00:01", "-cp", path, "music.Player"), nil
	}
	return nil, fmt.Errorf("there is no player in %s", language)
}

// starter returns a new command each time.
func starter(ctx context.Context, env []string, name string, args ...string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // G204: our own players
		cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
		return cmd
	}
}
