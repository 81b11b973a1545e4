package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"

	"music/config"
)

const (
	serviceTimeout = 12 * time.Second // longer than Cassandra's own timeouts, so that Cassandra answers first
	connectPause   = time.Second      // between two attempts to reach the cluster at start
	spreadLimit    = time.Second      // for the nodes to hear of a change that a session makes; one that is down does not

	// preparedKept is how many statements the driver keeps prepared; it counts each for each node. A critical table has five on
	// its lock rows, and a few on its data. Beyond this number each would be prepared anew whenever it is sent.
	preparedKept = 20_000
)

// openService opens the proxy's own driver session, which is used for everything but clients'
// requests: lock rows, beats, schema, synchronise. The driver must not retry on it: only the core
// knows what may be repeated. It blocks until the cluster answers or ctx ends.
func openService(ctx context.Context, c config.Cassandra, h *home, log zerolog.Logger) (*gocql.Session, error) {
	complaint := newStartLog(log.With().Strs("contact_points", c.Addresses()).Logger())
	var session *gocql.Session
	err := complaint.until(ctx, "Cassandra cannot be reached yet; the proxy listens for drivers when it can", anyError, func() (err error) {
		session, err = connectService(ctx, c, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reach Cassandra: %w", err)
	}
	return session, nil
}

// startLog logs why Cassandra cannot be reached: at once, and then once a minute.
type startLog struct{ login, other zerolog.Logger }

// newStartLog returns a startLog that writes to log.
func newStartLog(log zerolog.Logger) *startLog {
	each := func() zerolog.Logger {
		return log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	}
	return &startLog{login: each(), other: each()}
}

// say logs err, with the message meaning or, if Cassandra has refused the proxy's login, one about
// that.
func (c *startLog) say(err error, meaning string) {
	if refused(err, primitive.ErrorCodeAuthenticationError) {
		c.login.Error().Err(err).Msg("Cassandra refuses the proxy's own login: username or password is wrong; the proxy listens for drivers when it is right")
		return
	}
	c.other.Warn().Err(err).Msg(meaning)
}

// until carries out a step of the start, and does so again after an error that may pass, which it logs with the
// message meaning. Steps may be repeated. It returns the first error that does not pass, or the last one if ctx ends.
func (c *startLog) until(ctx context.Context, meaning string, passes func(error) bool, step func() error) error {
	for {
		err := step()
		if err == nil || ctx.Err() != nil || !passes(err) {
			return err
		}
		c.say(err, meaning)
		if !pause(ctx, connectPause) {
			return err
		}
	}
}

// anyError reports that an error may pass, whatever it is.
func anyError(error) bool { return true }

// untilAnswered carries out a step of the start until Cassandra answers it: a proxy that starts while nodes are
// overloaded or cut off waits for them, as it does before the first of them can be reached. It returns the
// error of what was answered, or of the last try if ctx ends.
func untilAnswered(ctx context.Context, log zerolog.Logger, step func() error) error {
	return newStartLog(log).until(ctx, "Cassandra does not answer what the proxy has to know at its start; the proxy listens for drivers when it does", unanswered, step)
}

// unanswered reports whether err tells that Cassandra has not carried out a statement, or perhaps not,
// and may do so later: no answer came, an error of execution (CQL binary protocol v5, 9: server error and
// 0x1000 to 0x1fff), or one of a node that has not heard of keyspace music yet.
func unanswered(err error) bool {
	if answer := gocql.RequestError(nil); errors.As(err, &answer) {
		code := answer.Code()
		return code == gocql.ErrCodeServer || 0x1000 <= code && code <= 0x1fff || dropped(err)
	}
	for _, silence := range []error{
		gocql.ErrTimeoutNoResponse, gocql.ErrConnectionClosed, gocql.ErrNoConnections, gocql.ErrNoStreams,
		gocql.ErrUnavailable, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, silence) {
			return true
		}
	}
	var broken net.Error
	return errors.As(err, &broken)
}

// connectService opens the session. It first logs in to the home node, whose error tells what is
// wrong if that fails. Unless another data centre is configured the session uses the nodes of the
// home node's data centre: asking a replica in another one would cost the way there for each read
// of a lock row, and again for each round of Paxos.
func connectService(ctx context.Context, c config.Cassandra, h *home) (*gocql.Session, error) {
	centre, err := homeCentre(ctx, c, h)
	if err != nil {
		return nil, err
	}
	c.LocalDC = cmp.Or(c.LocalDC, centre)
	return serviceCluster(c, h.nodes).CreateSession()
}

// homeCentre asks the home node for its data centre, within the time that a connection may take.
func homeCentre(ctx context.Context, c config.Cassandra, h *home) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	l, err := dialHome(ctx, h, c)
	if err != nil {
		return "", err
	}
	defer l.close()
	return l.centre(ctx)
}

// serviceCluster returns the configuration of the proxy's own sessions.
func serviceCluster(c config.Cassandra, nodes *nodeDialer) *gocql.ClusterConfig {
	cluster := gocql.NewCluster(c.Addresses()...)
	cluster.Consistency = gocql.Quorum
	cluster.SerialConsistency = gocql.Serial
	cluster.Timeout = serviceTimeout
	cluster.MaxPreparedStmts, cluster.MaxRoutingKeyInfo = preparedKept, preparedKept
	cluster.MaxWaitSchemaAgreement = spreadLimit
	cluster.ConnectTimeout = c.ConnectTimeout
	cluster.HostDialer = nodes
	cluster.RetryPolicy = nil
	cluster.DefaultIdempotence = false
	cluster.Metadata.CacheMode = gocql.KeyspaceOnly
	cluster.Logger = gocql.NewLogger(gocql.LogLevelNone)
	if c.Username != "" || c.TLSCert != "" { // a node that authenticates by certificate asks for a login all the same
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: c.Username, Password: string(c.Password)}
	}
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.DCAwareRoundRobinPolicy(c.LocalDC))
	return cluster
}

// pause blocks for d or until ctx ends. It returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sampledLines is the number of lines per minute of a sampled log.
const sampledLines = 5

// sampled returns a log with few lines per minute, for events that others can cause.
func sampled(log zerolog.Logger) zerolog.Logger {
	return log.Sample(&zerolog.BurstSampler{Burst: sampledLines, Period: time.Minute})
}
