//go:build compat

package integration

import "testing"

// The helpers of other languages tell the story that those for Go do.
func TestClientsTellTheSame(t *testing.T) { tellStory(t, "python", "asyncio", "node", "java") }
