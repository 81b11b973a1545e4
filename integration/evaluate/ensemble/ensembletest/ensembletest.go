// Package ensembletest starts servers of package ensemble for tests.
package ensembletest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"music/integration/evaluate/ensemble"
)

// Start starts one server alone, which ends with the test, and returns its endpoint.
func Start(t *testing.T, kind ensemble.Kind) string {
	t.Helper()
	all, err := kind.StartAll(t.Context(), 1, func(int) ensemble.Member {
		return ensemble.Member{Members: []string{"127.0.0.1"}, Dir: t.TempDir(), Fast: true, Log: t.Output()}
	})
	require.NoError(t, err)
	t.Cleanup(all.Kill)
	return all[0].Endpoint
}
