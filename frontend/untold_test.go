package frontend

import (
	"errors"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/musiccore"
)

// renewingLocks grant every LOCK for a new reference, and answer one that renews it later: with an error, be it because it was cancelled.
type renewingLocks struct {
	*grantingLocks
	renewals chan func(error)
}

func (g *renewingLocks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	if q.Ref == 0 {
		return g.grantingLocks.Lock(k, q, done)
	}
	answer := func(err error) { done(musiccore.Answer{Err: err}) }
	g.renewals <- answer
	return musiccore.Answer{}, func() { answer(errors.New("the operation was cancelled")) }
}

// All keys of a LOCK are released if it is not known whether one is still held: nobody is told its reference.
func TestAKeyThatIsNotRenewedIsReleased(t *testing.T) {
	for _, text := range []string{"LOCK bank.accounts WHERE id IN ('x', 'y')", "LOCK bank.accounts WHERE id IN ('x', 'y') SKIP LOCKED"} {
		for _, goes := range []bool{false, true} {
			g := &renewingLocks{newGrantingLocks(), make(chan func(error), 2)}
			r := rightsRig(t, g)
			client, _ := r.login(dialect{version: v4})
			client.send(1, query(text))
			for range 2 {
				if renewed := taken(t, g.renewals); goes {
					_ = client.Close()
				} else {
					renewed(musiccore.ErrUnavailable)
				}
				assert.EqualValues(t, 9, taken(t, g.unlocked), text)
			}
			if goes {
				continue
			}
			for _, row := range client.answer(1).(*message.RowsResult).Data {
				assert.NotEqual(t, "HELD", string(row[2]), text)
			}
		}
	}
}
