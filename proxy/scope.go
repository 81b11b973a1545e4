package proxy

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/config"
)

// scope is the session and the consistency levels for a table, by its setting scope (docs/design.md
// 4): all data centres, or one.
type scope struct {
	session        *gocql.Session
	quorum, serial gocql.Consistency
}

// scope returns the scope of the table's lock rows, synchronise and operations. With scope=local
// the session must use only nodes of that data centre, since LOCAL_QUORUM is a quorum of the
// coordinator's.
func (x *executor) scope(t *dataTable) scope {
	if t.Settings.Local {
		return scope{t.centreSession, gocql.LocalQuorum, gocql.LocalSerial}
	}
	return scope{x.session, gocql.Quorum, gocql.Serial}
}

// locality finds the data centre of this proxy, and opens sessions with the nodes of one data
// centre.
type locality struct {
	config config.Cassandra
	open   func(dc string) (*gocql.Session, error)
	lookUp func(ctx context.Context, network, host string) ([]net.IP, error) // of a name server

	mu       sync.Mutex
	sessions map[string]*gocql.Session
	found    map[string][]net.IP // the addresses of each contact point as they were last found
}

// newLocality returns a locality without open sessions.
func newLocality(c config.Cassandra, nodes *nodeDialer) *locality {
	return &locality{
		config: c, sessions: map[string]*gocql.Session{}, found: map[string][]net.IP{}, lookUp: net.DefaultResolver.LookupIP,
		open: func(dc string) (*gocql.Session, error) {
			c.LocalDC = dc
			cluster := serviceCluster(c, nodes)
			cluster.HostFilter = gocql.DataCenterHostFilter(dc)
			return cluster.CreateSession()
		},
	}
}

// session returns the session of a data centre. The first call opens it.
func (l *locality) session(dc string) (*gocql.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sessions[dc]; s != nil {
		return s, nil
	}
	s, err := l.open(dc)
	if err != nil {
		return nil, fmt.Errorf("reach the nodes of data centre %s alone: %w", dc, err)
	}
	l.sessions[dc] = s
	return s, nil
}

// close closes all sessions.
func (l *locality) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		s.Close()
	}
}

// node is a node's address and data centre.
type node struct {
	address net.IP
	centre  string
}

// nodesOf returns the nodes that a session knows.
func nodesOf(s *gocql.Session) []node {
	var all []node
	for _, h := range s.GetHosts() {
		all = append(all, node{h.ConnectAddress(), h.DataCenter()})
	}
	return all
}

// centreOf returns the data centre of the contact points, to which clients' connections go. It is
// "" if they are in several, or if some are not found among the nodes and the cluster has several.
func (l *locality) centreOf(ctx context.Context, nodes []node) string {
	var all, reached []string
	addresses := l.addresses(ctx)
	for _, n := range nodes {
		all = append(all, n.centre)
		if slices.ContainsFunc(addresses, n.address.Equal) {
			reached = append(reached, n.centre)
		}
	}
	if len(reached) < len(addresses) {
		reached = all
	}
	slices.Sort(reached)
	if centres := slices.Compact(reached); len(centres) == 1 {
		return centres[0]
	}
	return ""
}

// addresses returns the addresses of the contact points; nil stands for a name that was never found. It blocks
// for at most homeLimit.
func (l *locality) addresses(ctx context.Context) (all []net.IP) {
	ctx, cancel := context.WithTimeout(ctx, homeLimit)
	defer cancel()
	for _, point := range l.config.Addresses() {
		found := l.addressesOf(ctx, point)
		if found == nil {
			found = []net.IP{nil} // it may be anywhere
		}
		all = append(all, found...)
	}
	return all
}

// addressesOf returns the addresses of a contact point, or, where nobody tells them now, those of before: a
// proxy does not move to another data centre because no name server answers. They are nil if there are none.
func (l *locality) addressesOf(ctx context.Context, point string) []net.IP {
	host, _, err := net.SplitHostPort(point)
	if err != nil {
		return nil
	}
	now, err := l.lookUp(ctx, "ip", host)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && len(now) > 0 {
		l.found[host] = now
	}
	return l.found[host]
}

// localiseAll calls localise for those of the tables that have scope=local.
func (r *schemaReader) localiseAll(ctx context.Context, tables []*dataTable) {
	asked, own := false, ""
	for _, t := range tables {
		if !t.Settings.Local {
			continue
		}
		if !asked { // once, since name servers that do not answer take their time
			asked, own = true, r.locality.centreOf(ctx, nodesOf(r.session))
		}
		r.localise(t, own)
	}
}

// localise finds the data centre in which the locks of a table with scope=local are decided: the
// stored one, else that of the comment, else this proxy's own. It sets Refused if this proxy cannot
// give the locks.
func (r *schemaReader) localise(t *dataTable, own string) {
	if t.Settings.Centre == "" {
		t.Settings.Centre = own
	}
	var err error
	switch {
	case own == "":
		t.Refused = "scope=local, and the contact points of this proxy are not in one data centre: give it those of one"
	case t.Settings.Centre != own:
		t.Refused = fmt.Sprintf("scope=local, and its locks are decided in data centre %s: this proxy stands in %s: LOCK at a proxy of %[1]s", t.Settings.Centre, own)
	default:
		if t.centreSession, err = r.locality.session(own); err != nil {
			t.Refused = err.Error()
		}
	}
}
