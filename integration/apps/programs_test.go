//go:build compat

package apps

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"music/integration/gotest"
)

// program returns how to run a program of ours over an application's library: once to make its
// tables, which then become critical, and once for its tests.
func program(name, comment string, command ...string) func(*testing.T, *world, way) map[string]gotest.Verdict {
	return func(t *testing.T, w *world, by way) map[string]gotest.Verdict {
		s := session(t, by.address)
		fresh(t, s, name)
		start := func(phase string) *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], phase, host(t, by.address), name)...)
			cmd.Env, cmd.Stderr = append(os.Environ(), w.programs()...), os.Stderr
			return cmd
		}
		out, err := start("setup").Output()
		require.NoError(t, err, "%s", out)
		if by.critical {
			adopt(t, s, name, comment, "")
		}
		return w.verdicts(t, name+"-"+by.name, start("run"))
	}
}

// javaProgram is program for a class of the Java programs.
func javaProgram(name, class string) func(*testing.T, *world, way) map[string]gotest.Verdict {
	return func(t *testing.T, w *world, by way) map[string]gotest.Verdict {
		dir := filepath.Join(w.dir, "java")
		classes := filepath.Join(dir, "classes") + string(filepath.ListSeparator) + filepath.Join(dir, "lib", "*")
		return program(name, comment, "java", "-XX:TieredStopAtLevel=1", "-Dio.netty.machineId=02:00:00:00:00:00:00:01", "-cp", classes, "music.apps."+class)(t, w, by)
	}
}
