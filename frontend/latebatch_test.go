package frontend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// A write of several keys that has waited for its table waits for its locks in the time that is left: its driver gives up after that.
func TestABatchThatWaitedForItsTableHasTheRestOfItsTime(t *testing.T) {
	const whole, waited = 8 * time.Second, 6 * time.Second
	for name, m := range map[string]message.Message{
		"text":    query("BEGIN BATCH " + lonely + "; UPDATE bank.accounts SET n = 1 WHERE id = 'y'; APPLY BATCH"),
		"message": &message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Query: "UPDATE bank.accounts SET n = 1 WHERE id = 'y'"}}},
		"IN":      query("UPDATE bank.accounts SET n = 1 WHERE id IN ('x', 'y')"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := requestedLocks{newGrantingLocks(), make(chan musiccore.Request, 2)}
				r := newPipedRig(t, func(o *Options) { o.Locks, o.MaxWait = l, whole })
				r.becoming(catalog.Auto)
				client, backend := r.login(dialect{version: v4})
				client.send(1, m)
				time.Sleep(waited)
				r.policy(catalog.Auto)
				backend.answer(1)
				for range 2 {
					assert.LessOrEqual(t, (<-l.asked).Wait, whole-waited)
				}
				backend.send(1, &message.VoidResult{})
				client.answer(1)
				_ = client.Close()
			})
		})
	}
}
