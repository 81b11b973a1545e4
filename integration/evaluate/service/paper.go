package service

import (
	"context"
	"errors"
	"net"
	"slices"

	"music/integration/evaluate/paper"
)

// music is Sections of the paper's MUSIC.
type music struct{ *paper.Client }

// Preempt is forcedRelease.
func (m music) Preempt(ctx context.Context, key string, token int64) error {
	return m.ForcedRelease(ctx, key, token)
}

// unlocked is Plain of the paper's MUSIC.
type unlocked struct{ c *paper.Client }

// openMusic connects with Cassandra. Its holders are told of no lease: whoever is suspected for as long as o.Lease is preempted.
func openMusic(o Options) (System, error) {
	var hosts []string
	for _, host := range o.Hosts {
		hosts = append(hosts, net.JoinHostPort(host, "9042"))
	}
	c, err := paper.New(paper.Options{
		Hosts: hosts, Keyspace: o.Keyspace, Patience: o.Lease, Timeout: o.Timeout,
		FlagAsPrinted: o.Over == OverPrinted, Repaired: o.Over == OverRepaired,
	})
	if err != nil {
		return System{}, err
	}
	return System{Sections: music{c}, Plain: unlocked{c}, Close: c.Close}, nil
}

// Keys is getAllKeys.
func (u unlocked) Keys(ctx context.Context) ([]string, error) {
	keys, err := u.c.GetAllKeys(ctx)
	slices.Sort(keys)
	return keys, err
}

// Get is get.
func (u unlocked) Get(ctx context.Context, key string) ([]byte, error) {
	return u.c.GetEventual(ctx, key)
}

// Put is put.
func (u unlocked) Put(ctx context.Context, key string, value []byte) error {
	return u.c.Put(ctx, key, value)
}

// Delete is the "corresponding delete function" of criticalPut (III-A, note 3), in a section: a deletion without a lock would be
// below what sections have put.
func (u unlocked) Delete(ctx context.Context, key string) error {
	h, err := u.c.Enter(ctx, key)
	if err != nil {
		return err
	}
	return errors.Join(h.Put(ctx, nil), h.Leave(ctx))
}
