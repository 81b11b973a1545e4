package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// introduce logs one line about this proxy: its release, its cluster and home node, and its
// addresses for drivers, for other proxies (peers; empty = none) and for health. Facts that the
// node does not tell are left out.
func (p *process) introduce(ctx context.Context, peers string) {
	line := p.log.Info().Str("release", builtRelease())
	if n, err := p.askNode(ctx); err == nil {
		line = line.Str("cluster", n.cluster).Str("data_center", n.centre).Str("node", n.id).Str("cassandra", n.release)
		if err := n.knows(p.cfg.Cassandra.LocalDC); err != nil {
			p.log.Warn().Str("local_dc", p.cfg.Cassandra.LocalDC).Err(err).Msg("local-dc names no data centre of this cluster")
		}
	}
	line.Strs("contact_points", p.cfg.Cassandra.Addresses()).
		Str("listen", p.cfg.Listen.Address).Str("advertise", p.cfg.Listen.AdvertiseHost()).
		Str("peers", cmp.Or(peers, "off")).Str("health", cmp.Or(p.health, "off")).Msg("MUSIC proxy")
}

// builtRelease returns the version of the program from Go's build information.
func builtRelease() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(info.Main.Version, "unknown")
	}
	return "unknown"
}

// nodeFacts are facts that a node reports about itself, and the data centres of the nodes that it knows.
type nodeFacts struct {
	cluster, release, centre, id string
	centres                      []string
}

// errNoCentre means that no node is in a data centre.
var errNoCentre = errors.New("no node is in this data centre")

// knows returns nil if a node is in the data centre, or none is named.
func (n nodeFacts) knows(centre string) error {
	if centre == "" || slices.Contains(n.centres, centre) {
		return nil
	}
	return fmt.Errorf("%w: there are %s", errNoCentre, strings.Join(n.centres, ", "))
}

// askNode asks the home node. It blocks for at most the timeout of a connection.
func (p *process) askNode(ctx context.Context) (nodeFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, p.home.timeout)
	defer cancel()
	l, err := dialHome(ctx, p.home, p.cfg.Cassandra)
	if err != nil {
		return nodeFacts{}, err
	}
	defer l.close()
	return l.facts(ctx)
}

// facts asks the node for its nodeFacts.
func (c *homeConn) facts(ctx context.Context) (nodeFacts, error) {
	own, err := c.rows(ctx, "SELECT cluster_name, release_version, data_center, host_id FROM system.local")
	if err == nil && (len(own) != 1 || len(own[0][3]) != len(uuid.UUID{})) {
		err = errNoHome
	}
	if err != nil {
		return nodeFacts{}, err
	}
	n := nodeFacts{cluster: string(own[0][0]), release: string(own[0][1]), centre: string(own[0][2]), id: uuid.UUID(own[0][3]).String()}
	others, err := c.rows(ctx, "SELECT data_center FROM system.peers")
	n.centres = []string{n.centre}
	for _, other := range others {
		if len(other[0]) > 0 { // not that of a node that is just joining
			n.centres = append(n.centres, string(other[0]))
		}
	}
	slices.Sort(n.centres)
	n.centres = slices.Compact(n.centres)
	return n, err
}

// toldTables is how many critical tables are named in the log at start.
const toldTables = 20

// tellAtStart logs one line with the critical tables, and warnings about their keyspaces.
func (s *schema) tellAtStart(ctx context.Context, found []*dataTable) {
	var names, warnings, asked []string
	for _, t := range found {
		if t.Refused != "" {
			continue
		}
		names = append(names, t.String())
		if !slices.Contains(asked, t.keyspace) {
			asked = append(asked, t.keyspace)
			warnings = append(warnings, s.warnings(ctx, t.keyspace)...)
		}
	}
	slices.Sort(names)
	slices.Sort(warnings)
	warnings = slices.Compact(warnings)
	line := s.log.Info()
	if len(warnings) > 0 {
		line = s.log.Warn()
	}
	line.Int("tables", len(names)).Strs("names", names[:min(len(names), toldTables)]).Strs("warnings", warnings).Msg("tables are critical")
}
