package synchronise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// How long the nodes may take to agree on the schema, and how often one is asked. A peer that is
// down keeps its version until it is back. It is waited for only as long as a change takes to
// spread, in case it only seems to be down, and not by each attempt: it may be down for days.
const (
	agreementLimit = 2 * time.Second
	spreadLimit    = time.Second
	agreementPause = 100 * time.Millisecond
)

// dissent tells which peers have another version of the schema than the node that was asked.
type dissent uint8

// The degrees of dissent, the worst last.
const (
	allAgree   dissent = iota
	downDiffer         // only peers that are down have another version
	liveDiffer         // a peer that is up has another version
)

// schemaView is the schema as a node has it, at a moment when all nodes have the same.
type schemaView struct {
	host    string // id of the node
	version gocql.UUID
	now     int // Unix time in seconds, in the past by the clocks of both the node and this process

	since time.Time // since when the peers that are down have been seen to have other versions than this one; zero: they have not
}

// agreedView blocks until a node sees that all nodes agree on the schema, and returns that schema;
// or errNotAgreed. Without agreement a column that the node does not know yet would not be read,
// and yet be deleted (docs/protocol.md 6, C11).
func agreedView(ctx context.Context, in Cluster) (schemaView, error) {
	return awaitView(ctx, func(ctx context.Context) (schemaView, dissent, error) { return askView(ctx, in) })
}

// awaitView calls ask until the nodes agree, it returns an error, or agreementLimit is over.
func awaitView(ctx context.Context, ask func(context.Context) (schemaView, dissent, error)) (schemaView, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, agreementLimit, errNotAgreed)
	defer cancel()
	for {
		view, others, err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return view, fmt.Errorf("ask for the schema: %w", context.Cause(ctx))
		case err != nil:
			return view, fmt.Errorf("ask for the schema: %w", err)
		case others == allAgree, others == downDiffer && (time.Since(start) >= spreadLimit || !view.since.IsZero() && time.Since(view.since) >= spreadLimit):
			return view, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(agreementPause):
		}
	}
}

// askView asks one node for its schema version and those of its peers.
func askView(ctx context.Context, in Cluster) (view schemaView, others dissent, err error) {
	s := in.Session
	var clock int64
	iter := localQuery(s, "", "SELECT schema_version, toUnixTimestamp(now()) FROM system.local WHERE key = 'local'").IterContext(ctx)
	if host := iter.Host(); host != nil {
		view.host = host.HostID()
	}
	found := iter.Scan(&view.version, &clock)
	if err := iter.Close(); err != nil || !found {
		return view, allAgree, errors.Join(err, gocql.ErrNotFound)
	}
	if view.now, err = pastOf(time.UnixMilli(clock), time.Now()); err != nil {
		return view, allAgree, err
	}
	hosts := cmp.Or(in.Ring, s).GetHosts()
	iter = localQuery(s, view.host, "SELECT host_id, schema_version FROM system.peers_v2").IterContext(ctx)
	var id, version gocql.UUID
	different := view.version.String()
	for ; iter.Scan(&id, &version); id, version = (gocql.UUID{}), (gocql.UUID{}) {
		down := slices.ContainsFunc(hosts, func(h *gocql.HostInfo) bool { return h.HostID() == id.String() && !h.IsUp() })
		peer := dissentOf(view.version, version, down)
		if others = max(others, peer); peer != allAgree {
			different += " " + id.String() + " " + version.String()
		}
	}
	if others == downDiffer {
		view.since = in.Known.differing(view.host, different, time.Now())
	}
	return view, others, iter.Close()
}

// dissentOf returns the dissent of one peer. A peer whose version is not known yet does not count.
func dissentOf(own, version gocql.UUID, down bool) dissent {
	switch {
	case version == own, version == gocql.UUID{}:
		return allAgree
	case down:
		return downDiffer
	}
	return liveDiffer
}

// pastOf returns a second that is in the past by both clocks. A value that is read and written with
// such a now expires when it would have expired; with a now in the future it would expire early. It
// returns errClocks if the clocks are so far apart that the fence's tombstone might be purged too
// early, after which a late write could come back.
func pastOf(a, b time.Time) (int, error) {
	if apart := a.Sub(b).Abs(); apart > clocksApart {
		return 0, fmt.Errorf("%w: by %v", errClocks, apart.Round(time.Second))
	}
	return int(min(a.Unix(), b.Unix())) - 1, nil
}

// clocksApart is how far the clocks of this proxy and of a node may differ: much less than the
// gc_grace_seconds of a table that can be locked, which are at least a day.
const clocksApart = time.Hour

// errClocks means that the clocks of this proxy and of a node differ by more than clocksApart.
var errClocks = errors.New("the clocks of this proxy and of Cassandra differ")

// largestBatch returns the size of the largest batch that the cluster accepts, in bytes, by the
// settings of a node. If the node has no such settings, or the proxy may not read them, it is 1
// MiB.
func (v schemaView) largestBatch(ctx context.Context, s *gocql.Session) (int, error) {
	const text = "SELECT value FROM system_views.settings WHERE name = ?"
	largest := math.MaxInt32
	for _, name := range []string{"native_transport_max_message_size", "max_mutation_size"} {
		var value string
		err := localQuery(s, v.host, text, name).ScanContext(ctx, &value)
		var refused gocql.RequestError
		hidden := errors.Is(err, gocql.ErrNotFound) ||
			errors.As(err, &refused) && (refused.Code() == gocql.ErrCodeUnauthorized || refused.Code() == gocql.ErrCodeInvalid)
		if err != nil && !hidden {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		largest = min(largest, byteSize(value, usualSizes().largest))
	}
	return largest, nil
}

// byteSize reads a size as in Cassandra's settings, such as 4194304B or 16MiB. It returns other if
// text is not a size.
func byteSize(text string, other int) int {
	for unit, shift := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "B": 0, "": 0} {
		if n, err := strconv.Atoi(strings.TrimSuffix(text, unit)); err == nil && strings.HasSuffix(text, unit) {
			return n << shift
		}
	}
	return other
}

// localQuery returns a query of a table that one node has for itself; host "" means any node.
func localQuery(s *gocql.Session, host, text string, values ...any) *gocql.Query {
	return s.Query(text, values...).Consistency(gocql.One).RetryPolicy(nil).SetHostID(host)
}

// describe reads the table's description.
func (v schemaView) describe(ctx context.Context, s *gocql.Session, t Target) (tableDescription, error) {
	d := tableDescription{keyspace: t.Keyspace, name: t.Table}
	const table = "SELECT flags, gc_grace_seconds, compaction, read_repair FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
	err := localQuery(s, v.host, table, t.Keyspace, t.Table).ScanContext(ctx, &d.flags, &d.grace, &d.compaction, &d.readRepair)
	if err != nil {
		return d, fmt.Errorf("read table %s.%s: %w", t.Keyspace, t.Table, err)
	}
	const columns = "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
	iter := localQuery(s, v.host, columns, t.Keyspace, t.Table).IterContext(ctx)
	for c := (columnDescription{}); iter.Scan(&c.name, &c.kind, &c.position, &c.typeName, &c.order); {
		d.columns = append(d.columns, c)
	}
	if err := iter.Close(); err != nil {
		return d, fmt.Errorf("read columns of %s.%s: %w", t.Keyspace, t.Table, err)
	}
	if d.types, err = v.types(ctx, s, d); err != nil {
		return d, fmt.Errorf("read types of %s: %w", t.Keyspace, err)
	}
	if d.masked, err = v.masked(ctx, s, t); err != nil {
		return d, fmt.Errorf("read masks of %s.%s: %w", t.Keyspace, t.Table, err)
	}
	return d, nil
}

// types reads the fields of the UDTs of columns that are not frozen.
func (v schemaView) types(ctx context.Context, s *gocql.Session, d tableDescription) (map[string][]string, error) {
	var names []string
	for _, c := range d.columns {
		if name, ok := udtName(c.typeName); ok {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil, nil
	}
	types := map[string][]string{}
	const text = "SELECT type_name, field_names FROM system_schema.types WHERE keyspace_name = ? AND type_name IN ?"
	iter := localQuery(s, v.host, text, d.keyspace, names).IterContext(ctx)
	var name string
	for fields := []string(nil); iter.Scan(&name, &fields); fields = nil {
		types[name] = fields
	}
	return types, iter.Close()
}

// masked reports whether the table has masked columns. Cassandra before 5.0 has none.
func (v schemaView) masked(ctx context.Context, s *gocql.Session, t Target) (bool, error) {
	const text = "SELECT column_name FROM system_schema.column_masks WHERE keyspace_name = ? AND table_name = ? LIMIT 1"
	var column string
	err := localQuery(s, v.host, text, t.Keyspace, t.Table).ScanContext(ctx, &column)
	var refused gocql.RequestError
	switch {
	case errors.Is(err, gocql.ErrNotFound), errors.As(err, &refused) && refused.Code() == gocql.ErrCodeInvalid:
		return false, nil
	}
	return err == nil, err
}
