package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// What a service can stand on.
const (
	OverOurs = "ours" // the product: its proxies are the hosts
	// The paper's MUSIC: Cassandra's nodes are the hosts.
	OverMusic    = "music"
	OverPrinted  = "printed"  // with forcedRelease as it is printed
	OverRepaired = "repaired" // with what package paper repairs
	OverNothing  = "nothing"  // no lock at all, to see whether its faults are found
)

// Options say where a system is, and how it is used.
type Options struct {
	Over     string   // one of the constants
	Hosts    []string // addresses without port; the driver uses no other
	Keyspace string   // exists already
	// Pool says that what is put without a lock is put under the keys that sections are about: so it is with jobs. The owners of
	// users have keys that nobody locks.
	Pool    bool
	Lease   time.Duration // of a section whose holder is silent
	Timeout time.Duration // of one statement
}

// Open connects a process with a system. Create has been called before.
func Open(o Options) (System, error) {
	switch o.Over {
	case OverOurs:
		return openOurs(o)
	case OverMusic, OverPrinted, OverRepaired:
		return openMusic(o)
	case OverNothing:
		return openNothing(o)
	}
	return System{}, fmt.Errorf("no system %q", o.Over)
}

// Create makes the tables of a system, which one process does for all.
func Create(o Options) error {
	switch o.Over {
	case OverOurs:
		return createOurs(o)
	case OverMusic, OverPrinted, OverRepaired:
		s, err := openMusic(o)
		if err == nil {
			s.Close()
		}
		return err
	case OverNothing:
		return createNothing(o)
	}
	return fmt.Errorf("no system %q", o.Over)
}

// connect opens a session as an application does.
func connect(o Options) (*gocql.Session, error) { return driver(o).CreateSession() }

// driver is how a session is opened.
func driver(o Options) *gocql.ClusterConfig {
	d := gocql.NewCluster(o.Hosts...)
	d.ProtoVersion, d.NumConns, d.Timeout, d.ConnectTimeout = 4, 2, o.Timeout, o.Timeout
	d.Consistency, d.SerialConsistency = gocql.Quorum, gocql.Serial
	d.HostFilter = gocql.WhiteListHostFilter(o.Hosts...)
	d.ReconnectInterval = 100 * time.Millisecond
	d.Logger = gocql.NewLogger(gocql.LogLevelNone)
	return d
}

// execute sends statements on a session of their own.
func execute(o Options, statements ...string) error {
	o.Timeout = time.Minute
	s, err := connect(o)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, cql := range statements {
		if err := s.Query(cql).Exec(); err != nil {
			return fmt.Errorf("%s: %w", cql, err)
		}
	}
	return nil
}

// table is Plain on a table (k text PRIMARY KEY, v blob).
type table struct {
	cql  *gocql.Session
	name string
	once string // behind an INSERT that must not land on what is there
}

// Keys reads the whole table at consistency ONE: what is stale is tried in vain.
func (t *table) Keys(ctx context.Context) (keys []string, err error) {
	all := t.cql.Query("SELECT k, v FROM " + t.name).Consistency(gocql.One).IterContext(ctx)
	key, value := "", []byte(nil)
	for all.Scan(&key, &value) {
		if value != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, all.Close()
}

// Get reads at consistency ONE.
func (t *table) Get(ctx context.Context, key string) ([]byte, error) {
	var v []byte
	err := t.cql.Query("SELECT v FROM "+t.name+" WHERE k = ?", key).Consistency(gocql.One).ScanContext(ctx, &v)
	if errors.Is(err, gocql.ErrNotFound) || err == nil && v == nil {
		return nil, section.ErrNoValue
	}
	return v, err
}

// Put inserts.
func (t *table) Put(ctx context.Context, key string, value []byte) error {
	return t.cql.Query("INSERT INTO "+t.name+" (k, v) VALUES (?, ?)"+t.once, key, value).ExecContext(ctx)
}

// Delete deletes.
func (t *table) Delete(ctx context.Context, key string) error {
	return t.cql.Query("DELETE FROM "+t.name+" WHERE k = ?", key).ExecContext(ctx)
}
