package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend/catalog"
	"music/musiccore"
)

// Who waits for a lock is told at once where he stands when the proxy comes to its end, and so is
// who asks after it; whoever holds one is served.
func TestEndSendsWaitersAway(t *testing.T) {
	a, _ := two(t, func(o *musiccore.Options) { o.Wait = time.Hour })
	s := &lockService{locks: a.locks, peers: a.server}
	k := keyOf("x")
	ref := a.held(k)
	next := a.queued(k)
	waiting := make(chan musiccore.Answer, 2)
	for _, q := range []musiccore.Request{{Ref: next, Wait: time.Hour}, {Wait: time.Hour}} {
		a.Lock(k, q, func(told musiccore.Answer) { waiting <- told })
	}
	s.drain()
	for range 2 {
		if told := <-waiting; told.Err == nil {
			assert.Equal(t, musiccore.Grant{Ref: told.Grant.Ref, State: musiccore.StateQueued, Position: told.Grant.Position}, told.Grant)
		} else {
			assert.ErrorIs(t, told.Err, musiccore.ErrDraining)
		}
	}
	after := a.lock(k, musiccore.Request{Ref: next, Wait: time.Hour})
	require.NoError(t, after.Err)
	assert.Equal(t, musiccore.StateQueued, after.Grant.State)
	assert.ErrorIs(t, a.lock(keyOf("y"), musiccore.Request{Wait: time.Hour}).Err, musiccore.ErrDraining)
	a.put(k, ref)
	assert.Equal(t, musiccore.StateReleased, a.unlock(k, ref).Grant.State)
}

// The others are told that a session has ended, also where that takes more than one try, and where something in the background takes all
// of the time that it has: or they would wait for as long as a session lease.
func TestEndOfASessionIsWritten(t *testing.T) {
	n, l := beating(t)
	refused := 0
	n.says(func(asked) message.Message {
		if refused++; refused <= 2 {
			return &message.WriteTimeout{ErrorMessage: "slow", Consistency: primitive.ConsistencyLevelQuorum, BlockFor: 2, WriteType: primitive.WriteTypeSimple}
		}
		return &message.VoidResult{}
	})
	a, _ := two(t)
	s := &lockService{
		connections: &connections{session: n.session, locality: newLocality(config.Cassandra{}, nil)}, heartbeat: l, locks: a.locks, peers: a.server,
		audit: newAudit(zerolog.Nop(), "all", "here", newCriticalTables()), cancel: func() {}, abandon: func() {},
	}
	hangs := make(chan struct{})
	s.background.Go(func() { <-hangs })
	s.stop(time.Now().Add(time.Minute))
	close(hangs)
	ended := written(n.take())
	require.Len(t, ended, 3)
	assert.Equal(t, bigint(musiccore.EndedBeat), ended[2].set["beat"])
}

// So are they where the start fails after the first beat.
func TestAStartThatFailsEndsItsSession(t *testing.T) {
	n, l := beating(t)
	beats := clusterClock(time.Now, &message.VoidResult{})
	n.says(func(a asked) message.Message {
		if strings.Contains(a.text, "system_schema") {
			return &message.Unauthorized{ErrorMessage: "no right"}
		}
		return beats(a)
	})
	s := &lockService{heartbeat: l, schema: newSchema(schemaReader{session: n.session, home: func() string { return "" }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), l, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})}
	require.ErrorContains(t, s.beginSession(t.Context()), "no right")
	all := written(n.take())
	require.Len(t, all, 2)
	assert.Equal(t, all[0].set["session"], all[1].set["session"])
	assert.Equal(t, bigint(musiccore.EndedBeat), all[1].set["beat"])
}

// While the last requests are waited for, /ready says 503 and /metrics is served.
func TestHealthIsToldToTheEnd(t *testing.T) {
	asked, answered := make(chan struct{}), make(chan struct{})
	node := fakeNode(t, func(m message.Message) message.Message {
		switch q, isQuery := m.(*message.Query); {
		case !isQuery:
			return &message.Ready{}
		case q.Query != "SELECT a FROM b.c":
			return &message.VoidResult{} // the proxy's own, for the line at its start
		}
		close(asked)
		<-answered
		return &message.VoidResult{}
	})
	cfg := config.Default()
	cfg.Music.Locks = false
	cfg.Cassandra.ContactPoints = node.addresses
	cfg.Listen.Address, cfg.Listen.Metrics = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Limits.ShutdownTimeout = time.Hour
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	log := &jsonLog{}
	go func() { ended <- Run(ctx, cfg, Logs{Log: zerolog.New(log)}, nil) }()
	said := func(message, field string) (text string) {
		require.Eventually(t, func() bool {
			if all := log.of(message); len(all) > 0 {
				text, _ = all[0][field].(string)
			}
			return text != ""
		}, 20*time.Second, time.Millisecond, "%s: %s", message, field)
		return text
	}
	drivers, metrics := said("the proxy serves drivers", "listen"), said("MUSIC proxy", "health")
	health := func(path string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metrics+path, nil)
		require.NoError(t, err)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		defer func() { _ = w.Body.Close() }()
		_, _ = io.Copy(io.Discard, w.Body)
		return w.StatusCode
	}
	require.Eventually(t, func() bool { return health("/ready") == http.StatusOK }, 20*time.Second, time.Millisecond)

	client, err := net.Dial("tcp", drivers)
	require.NoError(t, err)
	codec := frame.NewCodec()
	for _, m := range []message.Message{message.NewStartup(), &message.Query{Query: "SELECT a FROM b.c", Options: &message.QueryOptions{}}} {
		require.NoError(t, codec.EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, 1, m), client))
		if _, ok := m.(*message.Startup); ok {
			_, err := codec.DecodeFrame(client)
			require.NoError(t, err)
		}
	}
	<-asked
	stop()
	require.Eventually(t, func() bool { return health("/ready") == http.StatusServiceUnavailable }, 20*time.Second, time.Millisecond)
	assert.Equal(t, http.StatusOK, health("/metrics"))
	assert.Equal(t, http.StatusOK, health("/live"))
	assert.Empty(t, ended, "it waits for the last request")
	close(answered)
	require.NoError(t, <-ended)
	_ = client.Close()
	assert.Zero(t, health("/ready"))
}

// A certificate towards drivers that cannot be read ends the start at once, not when Cassandra answers.
func TestAWrongCertificateEndsTheStart(t *testing.T) {
	cfg := config.Default()
	cfg.Cassandra.ContactPoints = []string{"127.0.0.1:1"} // nobody answers
	cfg.Listen.Address, cfg.Listen.Metrics = "127.0.0.1:0", ""
	cfg.Listen.TLSCert, cfg.Listen.TLSKey = "/no/such", "/no/such"
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	assert.ErrorContains(t, Run(ctx, cfg, Logs{Log: zerolog.Nop(), Audit: zerolog.Nop()}, nil), "/no/such")
}
