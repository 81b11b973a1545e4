package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"music/client"
)

// Bounds of the sample of keys, since check must be quick.
const (
	keysLooked = 50 // of each table, each way
	keysShare  = 5  // that part of the time-out of an answer goes into all of them
)

// Keys is the result of sampling the keys of a critical table.
type Keys struct {
	Table   string
	Locked  Sample // keys with a lock row: those among them without data
	Written Sample // keys with data: those among them without a lock row
}

// Sample is how many keys were read, and how many of them lack something.
type Sample struct {
	Looked, Lacking int
	Example         string // the first of these
}

// lookAtKeys samples the keys of each critical table until its time is over.
func (f *Facts) lookAtKeys(ctx context.Context, s *client.Session, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, t := range f.critical() {
		c := f.companion(t)
		if c == nil || t.Keyspace == musicKeyspace {
			continue
		}
		if err := f.lookAtKeysOf(ctx, s, t, *c); err != nil {
			if ctx.Err() != nil {
				return nil // what was seen is told
			}
			return err
		}
	}
	return nil
}

// lookAtKeysOf compares the keys of a table with its lock rows, in both directions.
func (f *Facts) lookAtKeysOf(ctx context.Context, s *client.Session, t, companion Table) error {
	data, err := keyColumns(ctx, s, t)
	if err != nil {
		return err
	}
	locks, err := keyColumns(ctx, s, companion)
	if err != nil || len(locks) > len(data) {
		return err
	}
	data = data[:len(locks)] // with key=row all of the primary key, else the partition key
	k := Keys{Table: t.Keyspace + "." + t.Name}
	if k.Locked, err = lacking(ctx, s, side{companion, locks}, side{t, data}); err == nil {
		k.Written, err = lacking(ctx, s, side{t, data}, side{companion, locks})
	}
	f.Keys = append(f.Keys, k)
	return err
}

// side is a table, with those columns of it that are the lock's key.
type side struct {
	Table
	key []string
}

// lacking samples the keys of one side, and counts those that the other lacks.
func lacking(ctx context.Context, s *client.Session, of, other side) (found Sample, err error) {
	keys, err := s.Values(ctx, fmt.Sprintf("SELECT %s FROM %s PER PARTITION LIMIT 1 LIMIT %d", strings.Join(of.key, ", "), of.name(), keysLooked))
	if err != nil {
		return found, err
	}
	ask := fmt.Sprintf("SELECT %s FROM %s WHERE %s = ? LIMIT 1", other.key[0], other.name(), strings.Join(other.key, " = ? AND "))
	for _, key := range keys {
		rows, err := s.Values(ctx, ask, key...)
		if err != nil {
			return found, err
		}
		found.Looked++
		if len(rows) == 0 {
			found.Lacking++
			if found.Example == "" {
				found.Example = client.Shown(key)
			}
		}
	}
	return found, nil
}

// name returns the table as CQL names it.
func (t Table) name() string { return client.Identifier(t.Keyspace) + "." + client.Identifier(t.Name) }

// keyColumns returns the columns of the primary key in order; of a lock table its partition key.
func keyColumns(ctx context.Context, s *client.Session, t Table) ([]string, error) {
	type column struct {
		name, kind string
		position   int
	}
	var all []column
	_, err := s.Rows(ctx, "SELECT column_name, kind, position FROM system_schema.columns WHERE keyspace_name = "+client.Quote(t.Keyspace)+" AND table_name = "+client.Quote(t.Name),
		func(scan func(...any) bool) bool {
			var c column
			more := scan(&c.name, &c.kind, &c.position)
			if more && (c.kind == "partition_key" || c.kind == "clustering") {
				all = append(all, c)
			}
			return more
		})
	slices.SortFunc(all, func(a, b column) int {
		return strings.Compare(fmt.Sprintf("%s %03d", swapped(a.kind), a.position), fmt.Sprintf("%s %03d", swapped(b.kind), b.position))
	})
	var names []string
	for _, c := range all {
		names = append(names, client.Identifier(c.name))
	}
	return names, err
}

// swapped returns a kind of column such that kinds sort with the partition key first.
func swapped(kind string) string {
	if kind == "partition_key" {
		return "a"
	}
	return "b"
}
