package proxy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Who keeps a table waiting for long is logged, once a minute: clients are told that the log says it.
func TestWhoIsWaitedForIsLogged(t *testing.T) {
	var out bytes.Buffer
	s := newSchema(schemaReader{}, nil, nil, &heartbeat{log: zerolog.New(&out)}, nil)
	s.tellLate(laggardLooks, []string{"10.0.0.2:9042"})
	s.tellLate(laggardLooks+1, nil)
	require.Empty(t, out.String(), "they may be about to follow")
	s.tellLate(laggardLooks+1, []string{"10.0.0.2:9042"})
	s.tellLate(laggardLooks+2, []string{"10.0.0.2:9042"})
	assert.Equal(t, 1, strings.Count(out.String(), `"waits_for":["10.0.0.2:9042"]`), out.String())
}
