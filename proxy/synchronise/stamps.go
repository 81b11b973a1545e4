package synchronise

import (
	"context"
	"errors"
	"fmt"

	"music/musiccore"
)

// Columns are what a read of stamps has to know of a table. A column that was added since is not
// looked at. It is never changed.
type Columns struct{ table tableLayout }

// ReadColumns reads the columns of a table, at a moment when all nodes agree on the schema.
func ReadColumns(ctx context.Context, in Cluster, k Target) (*Columns, error) {
	p, err := newPartition(ctx, in, k)
	if err != nil {
		return nil, err
	}
	return &Columns{p.table}, nil
}

// ErrSeveralPages says that a key has more rows than are read for their stamps alone.
var ErrSeveralPages = errors.New("key has several pages")

// Highest reads a key at QUORUM and returns the highest stamp of its cells, 0 where there are none.
// Where one short page does not show the whole key the error is ErrSeveralPages.
func (c *Columns) Highest(ctx context.Context, in Cluster, k Target) (musiccore.Stamp, error) {
	p := partition{Cluster: in, table: c.table}
	var err error
	if p.pk, err = p.table.key(k.PK); err != nil {
		return 0, fmt.Errorf("read the stamps: %w", err)
	}
	page, err := p.page(ctx, clause{}, usualSizes().short, nil)
	if err == nil && page.more {
		err = ErrSeveralPages
	}
	if err != nil {
		return 0, fmt.Errorf("read the stamps: %w", err)
	}
	return highest(page.rows), nil
}
