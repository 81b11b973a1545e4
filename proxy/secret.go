package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend"
	"music/musiccore"
)

// secretSize is the size of the cluster's secret in bytes.
const secretSize = 32

// errSecret means that music.secrets was changed by another program than the proxies.
var errSecret = errors.New("music.secrets was changed by somebody else")

// errProxyThere means that the contact points are those of a proxy.
var errProxyThere = errors.New("what answers at contact-points is a MUSIC proxy: give the addresses of nodes of Cassandra")

// references are frontend.References with the secret of the cluster that was read last.
type references struct {
	now   atomic.Pointer[frontend.References]
	stale atomic.Bool // keyspace music was dropped since
}

// begin reads the secret of the cluster, and makes one where there is none. No other method may be
// called before.
func (r *references) begin(ctx context.Context, s *gocql.Session) error {
	secret, err := clusterSecret(ctx, s)
	if err == nil {
		r.use(secret)
	}
	return err
}

// renew reads the secret that is chosen now where keyspace music was dropped: with what a proxy has
// made anew goes another one.
func (r *references) renew(ctx context.Context, s *gocql.Session) error {
	if !r.stale.Load() {
		return nil
	}
	secret, err := readSecret(ctx, s)
	if err != nil {
		return fmt.Errorf("read the secret of the cluster again: %w", err)
	}
	r.use(secret)
	r.stale.Store(false)
	return nil
}

// use makes the references with another secret from now on.
func (r *references) use(secret []byte) {
	made := frontend.NewReferences(secret)
	r.now.Store(&made)
}

// Show implements frontend.References.
func (r *references) Show(generation [16]byte, k musiccore.Key, ref musiccore.LockRef) int64 {
	return (*r.now.Load()).Show(generation, k, ref)
}

// Read implements frontend.References.
func (r *references) Read(generation [16]byte, k musiccore.Key, n int64) (ref musiccore.LockRef, ok bool) {
	return (*r.now.Load()).Read(generation, k, n)
}

// Stale implements frontend.References.
func (r *references) Stale() bool { return r.stale.Load() }

// clusterSecret returns the secret with which the references that clients see are made
// (frontend.References), the same at every proxy. The first proxy of a cluster makes it. It only
// ever stands in a row of its own, which is written plainly: the LWT that chooses among several
// leaves nothing of it in the tables of Paxos, which clients can read.
func clusterSecret(ctx context.Context, s *gocql.Session) ([]byte, error) {
	secret, err := readSecret(ctx, s)
	if errors.Is(err, gocql.ErrNotFound) {
		if err = makeSecret(ctx, s); err == nil {
			secret, err = readSecret(ctx, s)
		}
	}
	if told := gocql.RequestError(nil); errors.As(err, &told) && strings.HasPrefix(told.Message(), "MUSIC_") {
		err = fmt.Errorf("%w: %w", errProxyThere, err)
	}
	if err != nil {
		return nil, fmt.Errorf("secret of the cluster: %w", err)
	}
	return secret, nil
}

// readSecret reads the secret that was chosen; ErrNotFound where none was.
func readSecret(ctx context.Context, s *gocql.Session) ([]byte, error) {
	var chosen *gocql.UUID
	err := s.Query("SELECT chosen FROM music.secrets WHERE name = 'references'").Consistency(gocql.Serial).ScanContext(ctx, &chosen)
	switch {
	case err != nil:
		return nil, err
	case chosen == nil:
		return nil, gocql.ErrNotFound
	}
	var secret []byte
	err = s.Query("SELECT value FROM music.secrets WHERE name = 'references' AND id = ?", *chosen).Consistency(gocql.Quorum).ScanContext(ctx, &secret)
	switch {
	case errors.Is(err, gocql.ErrNotFound), err == nil && len(secret) != secretSize:
		return nil, errSecret
	case err != nil:
		return nil, err
	}
	return secret, nil
}

// makeSecret makes a secret, and has it chosen where none was.
func makeSecret(ctx context.Context, s *gocql.Session) error {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it never fails
	id := gocql.MustRandomUUID()
	err := s.Query("INSERT INTO music.secrets (name, id, value) VALUES ('references', ?, ?)", id, secret).Consistency(gocql.Quorum).ExecContext(ctx)
	if err != nil {
		return err
	}
	_, err = cas(ctx, s.Query("UPDATE music.secrets SET chosen = ? WHERE name = 'references' IF chosen = null", id), map[string]any{})
	return err
}
