package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
)

// Why Cassandra cannot be had is said at once and again each minute, and a refused login by itself:
// it takes no line of anything else, nor that one of it.
func TestWhyCassandraCannotBeHadIsSaidEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := newStartLog(zerolog.New(&log))
		login := fmt.Errorf("log in: %w", &refusal{code: primitive.ErrorCodeAuthenticationError, text: "bad credentials"})
		for minute := range 5 {
			for range 60 {
				c.say(errors.New("connection refused"), "Cassandra is not there yet")
				c.say(login, "Cassandra is not there yet")
				time.Sleep(time.Second)
			}
			assert.Equal(t, minute+1, strings.Count(log.String(), `{"level":"error","error":"log in: `))
			assert.Equal(t, minute+1, strings.Count(log.String(), "Cassandra refuses the proxy's own login: username or password is wrong"))
			assert.Equal(t, minute+1, strings.Count(log.String(), `{"level":"warn","error":"connection refused","message":"Cassandra is not there yet"}`))
		}
	})
}
