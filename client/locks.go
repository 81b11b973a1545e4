package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Listing is a row of LIST LOCKS: who holds or waits.
type Listing struct {
	Table    string  `json:"table"`
	Key      string  `json:"key"`
	Position int     `json:"position"`
	Number   *int64  `json:"number"` // of the reference, without its tag; nil = not decided yet
	State    string  `json:"state"`
	Holder   *string `json:"holder"` // as it calls itself; nil where it does not
	AgeMS    int64   `json:"age_ms"`
	LeaseMS  int64   `json:"lease_ms"`
}

// List returns holders and waiters of a key, of a table, or of all tables if k is empty. The
// warnings name proxies that did not answer.
func (s *Session) List(ctx context.Context, k Key) (all []Listing, warnings []string, err error) {
	cql := "LIST LOCKS"
	if k.Table != "" {
		cql += " ON " + k.Table
	}
	if k.Where != "" {
		cql += " WHERE " + k.Where
	}
	warnings, err = s.Rows(ctx, cql, func(scan func(...any) bool) bool {
		var l Listing
		more := scan(&l.Table, &l.Key, &l.Position, &l.Number, &l.State, &l.Holder, &l.AgeMS, &l.LeaseMS)
		if more {
			all = append(all, l)
		}
		return more
	})
	return all, warnings, err
}

// Grant is the answer to LOCK and UNLOCK.
type Grant struct {
	Applied   bool
	Ref       int64 // 0 = none, or not decided yet
	State     string
	Position  int
	Holder    string
	Lease     time.Duration // left
	OwnerDied bool
	Warnings  []string
}

// errNoRow says that a LOCK was answered without a row.
var errNoRow = errors.New("the proxy has answered no row")

// ask sends LOCK or UNLOCK.
func (s *Session) ask(ctx context.Context, cql string) (g Grant, err error) {
	var ref *int64
	var holder *string
	var lease int64
	rows := 0
	g.Warnings, err = s.Rows(ctx, cql, func(scan func(...any) bool) bool {
		more := scan(&g.Applied, &ref, &g.State, &g.Position, &holder, &lease, &g.OwnerDied)
		if more {
			rows++
		}
		return more
	})
	if err == nil && rows != 1 {
		err = errNoRow
	}
	if ref != nil {
		g.Ref = *ref
	}
	if holder != nil {
		g.Holder = *holder
	}
	g.Lease = time.Duration(lease) * time.Millisecond
	return g, err
}

// Force ends the lock of a key, whichever client holds it. The reason is written to the audit.
func (s *Session) Force(ctx context.Context, k Key, reason string) (Grant, error) {
	return s.ask(ctx, fmt.Sprintf("UNLOCK %s WHERE %s FORCE REASON %s", k.Table, k.Where, Quote(reason)))
}
