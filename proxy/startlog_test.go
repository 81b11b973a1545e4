package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// What may be answered later is asked for again: a start that meets nodes which are cut off or overloaded
// goes on when they are not. What Cassandra refuses, or what is wrong with what it holds, is not repeated.
func TestAStartWaitsForWhatIsNotAnswered(t *testing.T) {
	noAnswer := func(m message.Message) bool {
		_, err := clusterSecret(t.Context(), startCQLNode(t, func(asked) message.Message { return m }).session)
		require.Error(t, err, m)
		return unanswered(err)
	}
	one := primitive.ConsistencyLevelOne
	for _, m := range []message.Message{
		nil,
		&message.ServerError{ErrorMessage: "x"}, &message.Overloaded{ErrorMessage: "x"}, &message.IsBootstrapping{ErrorMessage: "x"},
		&message.Unavailable{ErrorMessage: "x", Consistency: one}, &message.ReadTimeout{ErrorMessage: "x", Consistency: one},
		&message.WriteTimeout{ErrorMessage: "x", Consistency: one, WriteType: primitive.WriteTypeCas}, &message.ReadFailure{ErrorMessage: "x", Consistency: one},
		&message.WriteFailure{ErrorMessage: "x", Consistency: one, WriteType: primitive.WriteTypeSimple}, &message.Invalid{ErrorMessage: "keyspace music does not exist"},
	} {
		assert.True(t, noAnswer(m), "%T", m)
	}
	gone := gocql.UUID{9}
	for _, m := range []message.Message{
		&message.Invalid{ErrorMessage: "x"}, &message.Unauthorized{ErrorMessage: "x"}, &message.SyntaxError{ErrorMessage: "x"}, &message.ConfigError{ErrorMessage: "x"},
		rowOf("chosen", gone[:]),
	} {
		assert.False(t, noAnswer(m), "%T", m)
	}
	assert.True(t, unanswered(fmt.Errorf("look: %w", context.DeadlineExceeded)))
	assert.False(t, unanswered(errMembers))

	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		assert.ErrorIs(t, untilAnswered(t.Context(), zerolog.Nop(), func() error {
			if tries++; tries <= 600 {
				return fmt.Errorf("secret of the cluster: %w", gocql.ErrTimeoutNoResponse)
			}
			return errSecret
		}), errSecret)
		assert.Equal(t, 600*connectPause, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.ErrorIs(t, untilAnswered(ctx, zerolog.Nop(), func() error { return gocql.ErrNoConnections }), gocql.ErrNoConnections)
		assert.Error(t, ctx.Err())
	})
}
