package synchronise

import (
	"context"
	"errors"
	"fmt"

	"music/musiccore"
)

// Columns are the columns of a table as they were read: Highest ignores those that were added
// later. They are never changed.
type Columns struct{ table tableLayout }

// ReadColumns reads the columns of a table when all nodes agree on the schema. It blocks until
// then; if they do not agree soon it returns an error.
func ReadColumns(ctx context.Context, in Cluster, k Target) (*Columns, error) {
	p, err := newPartition(ctx, in, k)
	if err != nil {
		return nil, err
	}
	return &Columns{p.table}, nil
}

// ErrSeveralPages means that a key has too many rows for Highest.
var ErrSeveralPages = errors.New("key has several pages")

// Highest reads a key at QUORUM and returns the highest stamp of its cells, 0 if it has none, and
// whether it has no row. It returns ErrSeveralPages if the key does not fit one short page.
func (c *Columns) Highest(ctx context.Context, in Cluster, k Target) (top musiccore.Stamp, empty bool, err error) {
	p := partition{Cluster: in, table: c.table}
	if p.pk, err = p.table.key(k.PK); err != nil {
		return 0, false, fmt.Errorf("read the stamps: %w", err)
	}
	page, err := p.page(ctx, clause{}, usualSizes().short, nil)
	if err == nil && page.more {
		err = ErrSeveralPages
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the stamps: %w", err)
	}
	return highest(page.rows), len(page.rows) == 0, nil
}
