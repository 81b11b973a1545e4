//go:build compat

package clients

import "testing"

// The helpers for other languages, as their package managers have installed them.
func TestOtherLanguages(t *testing.T) {
	for _, language := range []string{"python", "asyncio", "node", "java"} {
		t.Run(language, func(t *testing.T) { play(t, language, command(t, language)) })
	}
}
