package service

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/ours"
	"music/integration/evaluate/section"
)

// product is Sections of the product.
type product struct {
	section.Client
	section.Trier
	cql *gocql.Session
	o   Options
}

// tableOfOurs is where package ours has its keys.
func tableOfOurs(o Options) string { return o.Keyspace + ".ours_lock" }

// createOurs makes the critical table, with sections of their own for writes that come without a lock, and one that is not critical
// for who owns what.
func createOurs(o Options) error {
	return execute(o,
		"CREATE TABLE IF NOT EXISTS "+tableOfOurs(o)+" (k text PRIMARY KEY, v blob) WITH comment = '@critical(unlocked=auto)'",
		"CREATE TABLE IF NOT EXISTS "+o.Keyspace+".owners (k text PRIMARY KEY, v blob)")
}

// openOurs connects with the product. A put without a lock never lands on top of what a section has put, since the proxy carries
// out its IF NOT EXISTS in a section of its own.
func openOurs(o Options) (System, error) {
	c, err := ours.New(ours.Options{Hosts: o.Hosts, Keyspace: o.Keyspace, Lease: o.Lease, Timeout: o.Timeout})
	if err != nil {
		return System{}, err
	}
	cql, err := connect(o)
	if err != nil {
		c.Close()
		return System{}, fmt.Errorf("ours: %w", err)
	}
	trier, _ := c.(section.Trier)
	plain := &table{cql: cql, name: o.Keyspace + ".owners"}
	if o.Pool {
		plain = &table{cql: cql, name: tableOfOurs(o), once: " IF NOT EXISTS"}
	}
	return System{
		Sections: &product{c, trier, cql, o}, Plain: plain, Lease: o.Lease,
		Close: func() { c.Close(); cql.Close() },
	}, nil
}

// Preempt gives back the lock of another: whoever knows a reference may.
func (p *product) Preempt(ctx context.Context, key string, token int64) error {
	err := p.cql.Query("SELECT UNLOCK "+tableOfOurs(p.o)+" WHERE k = ? USING LOCK ?", key, token).ExecContext(ctx)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil
	}
	return err
}
