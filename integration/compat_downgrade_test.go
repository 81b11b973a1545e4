//go:build compat

package integration

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nor do the drivers for Node.js and Java try a lower protocol version.
func TestNodeDriverAndJavaDriverDoNotDowngrade(t *testing.T) {
	noDowngrade(t, []connector{
		{"node", 0, false, func(t *testing.T, address string) func() error {
			path, err := filepath.Abs(filepath.Join("compat", "node", "connect.js"))
			require.NoError(t, err)
			cmd, _ := program(t, "node", path, hostOf(t, address))
			cmd.Env = append(cmd.Env, "NODE_PATH="+filepath.Join(needEnvironment(t).runDir, "node", "node_modules"))
			return programConnects(t, cmd)
		}},
		{"java", 5, true, func(t *testing.T, address string) func() error {
			cmd, _ := program(t, "java", javaArgs(t, "Connect", hostOf(t, address))...)
			return programConnects(t, cmd)
		}},
	})
}
