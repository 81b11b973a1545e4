package heartbeat

import (
	"context"
	"slices"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/store"
)

// Housekeeper is the service that "is responsible for cleaning up stale tokens".
type Housekeeper struct {
	session *store.Session
	o       Options
}

// NewHousekeeper opens one; it does nothing by itself.
func NewHousekeeper(o Options) (*Housekeeper, error) {
	session, err := store.Open(o.Options, tokensTable, timesTable)
	if err != nil {
		return nil, err
	}
	return &Housekeeper{session: session, o: o.complete()}, nil
}

// Close closes its connection.
func (k *Housekeeper) Close() { k.session.Close() }

// Run cleans once per half of the grace period until ctx ends. Errors are ignored: the next round
// tries again.
func (k *Housekeeper) Run(ctx context.Context) {
	ticker := time.NewTicker(k.o.Grace / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, _ = k.Clean(ctx)
		}
	}
}

// Kept is a session whose process is the housekeeping service, too.
type Kept struct {
	*Client
	keeper *Housekeeper
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// NewKept opens one, which keeps house until Close.
func NewKept(o Options) (*Kept, error) {
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	k := &Kept{Client: c}
	if k.keeper, err = NewHousekeeper(o); err != nil {
		c.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.ended.Go(func() { k.keeper.Run(ctx) })
	return k, nil
}

// Close implements section.Client.
func (k *Kept) Close() {
	k.stop()
	k.ended.Wait()
	k.keeper.Close()
	k.Client.Close()
}

// Clean reads all tokens once, and deletes and returns those that were neither written nor in a
// beat within the grace period. Clocks differ by no more than the post's "very reasonable bounds on
// clock drifts".
func (k *Housekeeper) Clean(ctx context.Context) ([]string, error) {
	rows, err := k.session.Rows(ctx, gocql.Quorum, allTokens)
	if err != nil {
		return nil, err
	}
	var deleted []string
	for _, row := range rows {
		token, _ := row["token"].(string)
		session, _ := row["service_session_id"].(string)
		written, _ := row["timestamp"].(time.Time)
		last, err := k.lastBeat(ctx, token, session, written)
		if err != nil {
			return deleted, err
		}
		if k.session.Now().Sub(last) <= k.o.Grace {
			continue
		}
		if err := remove(ctx, k.session, k.o.Conditional, token, session); err != nil {
			return deleted, err
		}
		deleted = append(deleted, token)
	}
	return deleted, nil
}

// lastBeat returns when a beat of the session last named the token.
func (k *Housekeeper) lastBeat(ctx context.Context, token, session string, written time.Time) (time.Time, error) {
	beats, err := k.session.Rows(ctx, gocql.Quorum, timesStatement, session)
	if err != nil || len(beats) == 0 {
		return written, err
	}
	tokens, _ := beats[0]["tokens"].([]string)
	beat, _ := beats[0]["timestamp"].(time.Time)
	if beat.After(written) && slices.Contains(tokens, token) {
		return beat, nil
	}
	return written, nil
}
