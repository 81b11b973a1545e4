package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

// Role is what a user's key holds.
type Role struct {
	Change int    `json:"change"` // number of the last change
	Role   string `json:"role"`
	By     string `json:"by"` // who put it, so that no value is put twice
}

// roleOf reads a value; none is that of a user who never had a role.
func roleOf(value []byte) (r Role, err error) {
	if value == nil {
		return r, nil
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("a role's value %q: %w", value, err)
	}
	return r, nil
}

// Owner is what a user's owner key holds.
type Owner struct {
	Name  string `json:"name"`
	Token int64  `json:"token"`
}

// ownerKey is the key of who owns a user.
func ownerKey(user string) string { return user + "-owner" }

// owner reads who owns a user; nobody where that is not known.
func owner(ctx context.Context, p Plain, user string) (o Owner, err error) {
	value, err := p.Get(ctx, ownerKey(user))
	if errors.Is(err, section.ErrNoValue) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(value, &o); err != nil {
		return o, fmt.Errorf("an owner's value %q: %w", value, err)
	}
	return o, nil
}

// BackEnd is a back-end replica of the portal. It owns users for as long as it lives.
type BackEnd struct {
	*client
	Name     string
	Patience time.Duration // how long it may take to become an owner

	mu    sync.Mutex
	users map[string]*owned
}

// owned is a user at a back end. Requests of one user go one after another.
type owned struct {
	mu   sync.Mutex
	held *held // nil: not owned
	role Role  // the latest
	puts int
}

// NewBackEnd returns the replica of a name, with a number that no other process has.
func NewBackEnd(s System, id int, t Tell, name string, patience time.Duration) *BackEnd {
	return &BackEnd{client: newClient(s, id, t), Name: name, Patience: patience, users: map[string]*owned{}}
}

// of returns what the replica knows of a user.
func (b *BackEnd) of(user string) *owned {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users[user] == nil {
		b.users[user] = new(owned)
	}
	return b.users[user]
}

// ServeHTTP answers PUT /<user> with a Role in its body, and GET /<user>, which reads the latest: 200 where it is done, 421 where
// another owns the user, and 503 where the outcome is not known.
func (b *BackEnd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	do := func(ctx context.Context, u *owned) error {
		_, err := u.held.Get(ctx)
		return err
	}
	if r.Method == http.MethodPut {
		var role Role
		if err := json.NewDecoder(r.Body).Decode(&role); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		do = func(ctx context.Context, u *owned) error { return b.put(ctx, u, role) }
	}
	switch err := b.serve(r.Context(), r.PathValue("user"), do); {
	case errors.Is(err, section.ErrLost):
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// serve does something as the owner of a user. Whoever has given up waiting for the answer has asked another meanwhile: nothing more
// is done for it. What is owned too late for it is kept: if it were not, replicas could go on for ever to take a user from each other.
func (b *BackEnd) serve(ctx context.Context, user string, do func(context.Context, *owned) error) error {
	u := b.of(user)
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if u.held == nil {
		if err := b.own(ctx, user, u); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	err := section.ErrLost
	if u.held.at(judge.Now()) {
		err = do(ctx, u)
	}
	if err != nil {
		u.held = nil // and nothing more under it
	}
	return err
}

// put changes a role.
func (b *BackEnd) put(ctx context.Context, u *owned, role Role) error {
	if role.Change <= u.role.Change { // done before
		return nil
	}
	u.puts++
	role.By = fmt.Sprintf("%s.%d.%d", b.Name, b.id, u.puts)
	value, err := json.Marshal(role)
	if err == nil {
		err = u.held.Put(ctx, value)
	}
	if err == nil {
		u.role = role
	}
	return err
}

// own makes this replica the owner of a user, whoever it was before. It goes on where its caller does not wait any more.
func (b *BackEnd) own(ctx context.Context, user string, u *owned) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), b.Patience)
	defer end()
	before, err := owner(ctx, b.Plain, user)
	if err != nil {
		return err
	}
	if before.Token != 0 {
		if err := b.Sections.Preempt(ctx, user, before.Token); err != nil {
			return err
		}
	}
	h, err := b.enter(ctx, user)
	if err != nil {
		return err
	}
	value, err := json.Marshal(Owner{b.Name, h.token()})
	if err == nil {
		err = b.Plain.Put(ctx, ownerKey(user), value)
	}
	if err == nil {
		value, err = h.Get(ctx)
	}
	if err == nil {
		u.role, err = roleOf(value)
	}
	if err != nil {
		return errors.Join(err, h.Leave(ctx))
	}
	u.held = h
	return nil
}

// Read becomes the owner of a user, reads its role, and lets it go.
func (b *BackEnd) Read(ctx context.Context, user string) error {
	u := new(owned)
	if err := b.own(ctx, user, u); err != nil {
		return err
	}
	return u.held.Leave(ctx)
}

// Keep renews what the replica owns until ctx ends, as its system demands it.
func (b *BackEnd) Keep(ctx context.Context) {
	if b.Lease == 0 {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		section.Rest(ctx, b.Lease/3)
		var group sync.WaitGroup
		for _, u := range b.all() {
			group.Go(func() { u.renew(ctx) })
		}
		group.Wait()
	}
}

// all returns what the replica knows of users.
func (b *BackEnd) all() (all []*owned) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.users {
		all = append(all, u)
	}
	return all
}

// renew keeps a user, unless somebody changes its role just now: that does it, too.
func (u *owned) renew(ctx context.Context) {
	if !u.mu.TryLock() {
		return
	}
	defer u.mu.Unlock()
	if u.held != nil && errors.Is(u.held.renew(ctx), section.ErrLost) {
		u.held = nil
	}
}
