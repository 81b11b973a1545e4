package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

// Socket is where the back end of a name is served: a path in a directory that all processes of a portal share.
func Socket(dir, name string) string { return filepath.Join(dir, name+".sock") }

// FrontEnd is a REST front end of the portal, with administrators who change the roles of users.
type FrontEnd struct {
	*client
	Replicas []string      // names of the back ends, the closest first
	Users    []string      // whose roles are changed through this front end and no other
	Reads    int           // after so many changes of a user its role is read; 0: never
	Pause    time.Duration // between a change and what follows it
	Patience time.Duration // how long a back end may take

	http http.Client
}

// NewFrontEnd returns the front end with a number that no other process has. dir is that of the sockets.
func NewFrontEnd(s System, id int, t Tell, dir string) *FrontEnd {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		name, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "unix", Socket(dir, name))
	}
	return &FrontEnd{client: newClient(s, id, t), http: http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Run changes roles, those of one user one after another, until ctx ends.
func (f *FrontEnd) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, user := range f.Users {
		group.Go(func() {
			known := "" // the owner
			for n := 1; ctx.Err() == nil; n++ {
				called := judge.Now()
				known = f.reach(context.WithoutCancel(ctx), user, known, n)
				f.tell.event(Event{What: Changed, Client: f.id, Key: user, Number: n, From: called, To: judge.Now()})
				section.Rest(ctx, f.Pause)
				if f.Reads > 0 && n%f.Reads == 0 {
					known = f.reach(context.WithoutCancel(ctx), user, known, 0)
				}
			}
		})
	}
	group.Wait()
}

// reach asks the owner, and the other replicas where that fails, for the change of a number, or to read if that is 0. It returns the
// name of the one that has done it.
func (f *FrontEnd) reach(ctx context.Context, user, known string, change int) string {
	for {
		if known == "" {
			o, _ := owner(ctx, f.Plain, user) // the closest is the first where nobody is known
			known = o.Name
		}
		for _, name := range f.order(known) {
			status := f.ask(ctx, name, user, change)
			if status == http.StatusOK {
				return name
			}
			if status == http.StatusMisdirectedRequest {
				break
			}
		}
		known = ""
	}
}

// order returns all replicas, the owner before the others.
func (f *FrontEnd) order(owner string) []string {
	var all []string
	if owner != "" {
		all = append(all, owner)
	}
	for _, name := range f.Replicas {
		if name != owner {
			all = append(all, name)
		}
	}
	return all
}

// ask sends a change, or a read, to a replica and returns the status that it answers; 0 where it does not.
func (f *FrontEnd) ask(ctx context.Context, name, user string, change int) int {
	ctx, end := context.WithTimeout(ctx, f.Patience)
	defer end()
	method, body := http.MethodGet, ""
	if change > 0 {
		method, body = http.MethodPut, fmt.Sprintf(`{"change": %d, "role": "role %d"}`, change, change)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+name+"/"+user, strings.NewReader(body))
	if err != nil {
		return 0
	}
	answer, err := f.http.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close() // its status is all
	return answer.StatusCode
}
