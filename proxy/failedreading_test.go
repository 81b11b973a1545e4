package proxy

import (
	"context"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
)

// A schema that cannot be followed, since a right is missing for instance, is not read again with every look at
// its version: a role may lack a right for days.
func TestASchemaThatCannotBeFollowedIsReadLessOften(t *testing.T) {
	n, s := closingBefore(t, applied(true))
	looks, readings := make(chan struct{}, 1000), make(chan struct{}, 1000)
	n.says(func(a asked) message.Message {
		if strings.Contains(a.text, "system_schema.tables") {
			readings <- struct{}{}
		}
		return &message.ServerError{ErrorMessage: "it cannot be read"}
	})
	s.home = func() string {
		looks <- struct{}{}
		return ""
	}
	s.rules = new(criticalRules)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.watch(ctx)
	}()
	for range 16 {
		<-looks
	}
	cancel()
	<-ended
	assert.LessOrEqual(t, len(readings), 4)
}

// It is read again at once where it has changed.
func TestFailedReading(t *testing.T) {
	var f failedReading
	one, other := gocql.UUID{1}, gocql.UUID{2}
	assert.False(t, f.waits(one, time.Hour))
	now := time.Hour
	for _, wait := range []time.Duration{schemaPoll, 2 * schemaPoll, 4 * schemaPoll} {
		f.failed(one, now)
		assert.True(t, f.waits(one, now+wait-1))
		assert.False(t, f.waits(one, now+wait))
		assert.False(t, f.waits(other, now))
		now += wait
	}
	for range 100 {
		f.failed(one, now)
	}
	assert.True(t, f.waits(one, now+failedReread-1))
	assert.False(t, f.waits(one, now+failedReread))
	f.failed(other, now)
	assert.False(t, f.waits(other, now+schemaPoll))
	f = failedReading{}
	assert.False(t, f.waits(other, now))
}
