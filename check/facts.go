// Package check examines a cluster as its operator would, through its proxies and with an ordinary
// login, and reports what is right and what is wrong. It changes nothing.
package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"music/client"
)

// Facts are what could be read. What could not is in Unseen, and nothing is concluded from it.
type Facts struct {
	Proxies   []Proxy
	Nodes     map[string]int // by data centre; nil = not seen
	Keyspaces map[string]map[string]string
	Tables    []Table
	Members   []Member
	Roles     map[string]Role
	Keys      []Keys
	Unseen    []Unseen
}

// Proxy is a known proxy, with what its node reports.
type Proxy struct {
	Address string
	Err     error // it could not be asked: all else is empty

	HostID, Centre, Release, Schema string
	Settings                        map[string]string
	Ahead                           time.Duration // of its node's clock before this machine's
	Silent                          []string      // what it says of proxies that do not answer it
	Clients                         []Connection
}

// Connection is a client's connection to a node.
type Connection struct{ Address, User, Driver string }

// Table is a table of the cluster.
type Table struct{ Keyspace, Name, ID, Comment, ReadRepair string }

// Member is a row of music.proxies.
type Member struct {
	HostID, Address string
	Version         int // that its proxy speaks to others, by its beats; 0 = it does not say
}

// Role is the permissions of a role.
type Role struct {
	Superuser   bool
	Permissions map[string][]string // by resource, as system_auth has them
}

// Unseen is something that this login could not read.
type Unseen struct {
	What string
	Err  error
}

// answerTime is how long all requests to one proxy may take.
const answerTime = 4 * time.Second

// Look reads the facts from all proxies concurrently: those that are given, and those that they
// know. It fails if none answers.
func Look(ctx context.Context, o client.Options) (*Facts, error) {
	s, err := client.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Discover(ctx); err != nil {
		return nil, err
	}
	f := &Facts{Roles: map[string]Role{}, Keyspaces: map[string]map[string]string{}}
	f.Proxies = lookAtAll(ctx, o, s.Known())
	f.see("system_schema", f.lookAtSchema(ctx, s))
	f.see("music.proxies", f.lookAtMembers(ctx, s))
	f.see("the keys of critical tables", f.lookAtKeys(ctx, s, o.Timeout/keysShare))
	f.see("system_views.gossip_info", f.lookAtNodes(ctx, s))
	for _, role := range f.serviceRoles() {
		f.see("the rights of role "+role, f.lookAtRole(ctx, s, role))
	}
	return f, nil
}

// see records what could not be read.
func (f *Facts) see(what string, err error) {
	if err != nil {
		f.Unseen = append(f.Unseen, Unseen{what, err})
	}
}

// lookAtAll reads from each proxy concurrently. A proxy with two addresses is listed once.
func lookAtAll(ctx context.Context, o client.Options, addresses []string) []Proxy {
	found := make([]Proxy, len(addresses))
	var running sync.WaitGroup
	for i, address := range addresses {
		running.Go(func() {
			one := o
			one.Proxies, one.Timeout = []string{address}, min(o.Timeout, answerTime)
			limited, cancel := context.WithTimeout(ctx, answerTime)
			defer cancel()
			found[i] = lookAt(limited, one, address)
		})
	}
	running.Wait()
	var all []Proxy
	for _, p := range found {
		if !slices.ContainsFunc(all, func(other Proxy) bool { return other.Address == p.Address }) {
			all = append(all, p)
		}
	}
	return all
}

// lookAt reads from one proxy, which reports its own address.
func lookAt(ctx context.Context, o client.Options, address string) Proxy {
	p := Proxy{Address: address, Settings: map[string]string{}}
	s, err := client.Open(ctx, o)
	if err != nil {
		p.Err = err
		return p
	}
	defer s.Close()
	for _, ask := range []func(context.Context, *client.Session) error{p.askLocal, p.askClock, p.askSettings, p.askLocks, p.askClients} {
		if err := ask(ctx, s); err != nil && !denied(err) {
			p.Err = err
			return p
		}
	}
	return p
}

// denied reports whether an error only says that the login may not read something.
func denied(err error) bool {
	return strings.Contains(err.Error(), "has no ") && strings.Contains(err.Error(), "permission on")
}

// row reads one row.
func row(ctx context.Context, s *client.Session, cql string, into ...any) error {
	found := false
	_, err := s.Rows(ctx, cql, func(scan func(...any) bool) bool {
		more := scan(into...)
		found = found || more
		return more
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %s", errNoRow, cql)
	}
	return err
}

// errNoRow means that a table of the node, which always has a row, had none.
var errNoRow = errors.New("no row")

// askLocal asks which node the proxy stands for, and at which address drivers are told that it is.
func (p *Proxy) askLocal(ctx context.Context, s *client.Session) error {
	var ip net.IP
	var port *int
	err := row(ctx, s, "SELECT host_id, data_center, release_version, schema_version, rpc_address, rpc_port FROM system.local",
		&p.HostID, &p.Centre, &p.Release, &p.Schema, &ip, &port)
	if err == nil && port != nil {
		p.Address = net.JoinHostPort(ip.String(), strconv.Itoa(*port))
	}
	return err
}

// askClock asks for the clock of a node, and compares it with that of this machine.
func (p *Proxy) askClock(ctx context.Context, s *client.Session) error {
	var ms int64
	begun := time.Now()
	err := row(ctx, s, "SELECT toUnixTimestamp(now()) FROM system.local", &ms)
	p.Ahead = time.UnixMilli(ms).Sub(begun.Add(time.Since(begun) / 2))
	return err
}

// settings returns those settings of a node that matter.
const settings = "'paxos_variant', 'commitlog_sync'"

// askSettings asks for the settings of a node.
func (p *Proxy) askSettings(ctx context.Context, s *client.Session) error {
	_, err := s.Rows(ctx, "SELECT name, value FROM system_views.settings WHERE name IN ("+settings+")", func(scan func(...any) bool) bool {
		var name, value string
		more := scan(&name, &value)
		if more {
			p.Settings[name] = value
		}
		return more
	})
	return err
}

// askLocks sends LIST LOCKS, upon which the proxy asks all others: its warnings name those that do
// not answer.
func (p *Proxy) askLocks(ctx context.Context, s *client.Session) (err error) {
	_, p.Silent, err = s.List(ctx, client.Named("music check"))
	return err
}

// askClients asks for the connections that a node has.
func (p *Proxy) askClients(ctx context.Context, s *client.Session) error {
	_, err := s.Rows(ctx, "SELECT address, username, driver_name FROM system_views.clients", func(scan func(...any) bool) bool {
		var ip net.IP
		var user, driver *string
		more := scan(&ip, &user, &driver)
		if more {
			p.Clients = append(p.Clients, Connection{Address: ip.String(), User: textOf(user), Driver: textOf(driver)})
		}
		return more
	})
	return err
}

// textOf returns a text that may be null.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// lookAtSchema reads keyspaces and tables.
func (f *Facts) lookAtSchema(ctx context.Context, s *client.Session) error {
	_, err := s.Rows(ctx, "SELECT keyspace_name, replication FROM system_schema.keyspaces", func(scan func(...any) bool) bool {
		var name string
		var replication map[string]string
		more := scan(&name, &replication)
		if more {
			f.Keyspaces[name] = replication
		}
		return more
	})
	if err != nil {
		return err
	}
	_, err = s.Rows(ctx, "SELECT keyspace_name, table_name, id, comment, read_repair FROM system_schema.tables", func(scan func(...any) bool) bool {
		var t Table
		more := scan(&t.Keyspace, &t.Name, &t.ID, &t.Comment, &t.ReadRepair)
		if more {
			f.Tables = append(f.Tables, t)
		}
		return more
	})
	return err
}

// lookAtMembers reads the proxies' own rows.
func (f *Facts) lookAtMembers(ctx context.Context, s *client.Session) error {
	versions := map[string]int{}
	_, err := s.Rows(ctx, "SELECT session, version FROM music.sessions", func(scan func(...any) bool) bool {
		var session string
		var version int
		more := scan(&session, &version)
		versions[session] = version
		return more
	})
	if err != nil {
		return err
	}
	_, err = s.Rows(ctx, "SELECT host_id, address, port, session FROM music.proxies", func(scan func(...any) bool) bool {
		var m Member
		var ip net.IP
		var port int
		var session string
		more := scan(&m.HostID, &ip, &port, &session)
		if more {
			m.Version = versions[session]
			m.Address = net.JoinHostPort(ip.String(), strconv.Itoa(port))
			f.Members = append(f.Members, m)
		}
		return more
	})
	return err
}

// lookAtNodes counts the nodes of the ring.
func (f *Facts) lookAtNodes(ctx context.Context, s *client.Session) error {
	nodes := map[string]int{}
	_, err := s.Rows(ctx, "SELECT dc, status FROM system_views.gossip_info", func(scan func(...any) bool) bool {
		var centre, status *string
		more := scan(&centre, &status)
		if more && strings.HasPrefix(textOf(status), "NORMAL") {
			nodes[textOf(centre)]++
		}
		return more
	})
	if err == nil {
		f.Nodes = nodes
	}
	return err
}

// driverOfProxies is the driver name that proxies give on their own connections.
const driverOfProxies = "MUSIC proxy"

// serviceRoles returns the roles of the proxies' own connections; none if Cassandra has no logins,
// or its clients cannot be read.
func (f *Facts) serviceRoles() []string {
	var roles []string
	for _, p := range f.Proxies {
		for _, c := range p.Clients {
			if strings.HasPrefix(c.Driver, driverOfProxies) && c.User != "anonymous" && c.User != "" && !slices.Contains(roles, c.User) {
				roles = append(roles, c.User)
			}
		}
	}
	return roles
}

// lookAtRole reads the permissions of a role, with those that it has from other roles.
func (f *Facts) lookAtRole(ctx context.Context, s *client.Session, name string) error {
	r := Role{Permissions: map[string][]string{}}
	for asked := []string{name}; len(asked) > 0; asked = asked[1:] {
		literal := client.Quote(asked[0])
		var super bool
		var of []string
		if err := row(ctx, s, "SELECT is_superuser, member_of FROM system_auth.roles WHERE role = "+literal, &super, &of); err != nil {
			return err
		}
		r.Superuser = r.Superuser || super
		asked = append(asked, of...)
		_, err := s.Rows(ctx, "SELECT resource, permissions FROM system_auth.role_permissions WHERE role = "+literal, func(scan func(...any) bool) bool {
			var resource string
			var permissions []string
			more := scan(&resource, &permissions)
			if more {
				r.Permissions[resource] = append(r.Permissions[resource], permissions...)
			}
			return more
		})
		if err != nil {
			return err
		}
	}
	f.Roles[name] = r
	return nil
}
