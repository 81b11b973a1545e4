package proxy

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"

	"music/rewrite"
)

// musicKeyspace is the name of the proxies' own keyspace.
const musicKeyspace = "music"

// maxReplicas is the default replication factor of keyspace music in a data centre with that many
// nodes.
const maxReplicas = 3

// tableID returns the id for a table that several proxies may create at once. It is the same at
// each proxy, so that all but the first CREATE have no effect (tried on 5.0.8; without an id
// concurrent CREATEs collide).
func tableID(parts ...string) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("music:"+strings.Join(parts, "\x00")))
}

// agreementLimit is how long the nodes may take to agree on the schema when a proxy starts.
const agreementLimit = time.Minute

// ensureKeyspace creates keyspace music and its tables if they are missing. replication is a CQL
// map, or "" for NetworkTopologyStrategy with at most three replicas in every data centre. Each of its
// statements may be repeated. It sends none for what exists, since that would need permissions that a
// proxy needs only once.
func ensureKeyspace(ctx context.Context, s *gocql.Session, replication string) error {
	there, err := tablesOfMusic(ctx, s)
	if err != nil {
		return err
	}
	if there == nil {
		if replication == "" {
			if replication, err = defaultReplication(ctx, s); err != nil {
				return err
			}
		}
		if err := changeSchema(ctx, s, "CREATE KEYSPACE IF NOT EXISTS music WITH replication = "+replication); err != nil {
			return err
		}
	}
	var missing []string
	for _, t := range musicTables() {
		if !there[t.name] {
			missing = append(missing, "CREATE TABLE IF NOT EXISTS music."+t.name+" ("+t.columns+") WITH id = "+tableID("music", t.name).String()+" AND "+t.options)
		}
	}
	if err := changeSchema(ctx, s, missing...); err != nil {
		return err
	}
	return addColumns(ctx, s)
}

// tablesOfMusic returns the tables of keyspace music that a node knows; nil if there is no such
// keyspace.
func tablesOfMusic(ctx context.Context, s *gocql.Session) (map[string]bool, error) {
	var there map[string]bool
	for _, query := range []string{
		"SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'music'",
		"SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'music'",
	} {
		iter := s.Query(query).Consistency(gocql.One).IterContext(ctx)
		for name := ""; iter.Scan(&name); {
			if there == nil {
				there = map[string]bool{}
			}
			there[name] = true
		}
		if err := iter.Close(); err != nil {
			return nil, fmt.Errorf("look for keyspace music: %w", err)
		}
	}
	return there, nil
}

// musicTable is a table of keyspace music.
type musicTable struct{ name, columns, options string }

// musicTables returns all tables of keyspace music.
func musicTables() []musicTable {
	return []musicTable{
		{"sessions", "session uuid PRIMARY KEY, beat bigint, schema_version uuid, addr text, lease bigint, rules text, version int", "comment = 'life signs of the proxies'" + hasty},
		{"proxies", "host_id uuid PRIMARY KEY, address inet, port int, session uuid, version text, serving boolean", "comment = 'which proxy stands for which node'" + hasty},
		{"tables", "id uuid PRIMARY KEY, closed bigint, settings text", "comment = 'critical tables: written by LWT only'"},
		{
			"generations", "keyspace_name text, table_name text, companion uuid, first bigint, last bigint, PRIMARY KEY ((keyspace_name, table_name))",
			"comment = 'which references were given by critical tables of that name: written by LWT only'",
		},
		{"secrets", "name text, id uuid, chosen uuid static, value blob, PRIMARY KEY (name, id)", "comment = 'for the role of the proxies only'"},
		{"named", "name text PRIMARY KEY, value text", "comment = '@critical named locks and elections'"},
	}
}

// cas carries out an LWT of keyspace music; now, which must be empty, is what was there instead, if it was not applied.
func cas(ctx context.Context, q *gocql.Query, now map[string]any) (applied bool, err error) {
	return q.Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCASContext(ctx, now)
}

// dropped reports whether err shows that keyspace music, or a table in it, does not exist.
func dropped(err error) bool {
	var refused gocql.RequestError
	return errors.As(err, &refused) && refused.Code() == gocql.ErrCodeInvalid && strings.Contains(refused.Message(), "does not exist")
}

// addColumns adds the columns to music.sessions that earlier versions did not have. If none is
// missing it sends no statement, since that would need a permission.
func addColumns(ctx context.Context, s *gocql.Session) error {
	missing := map[string]string{"lease": "bigint", "rules": "text", "version": "int"}
	iter := s.Query("SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'music' AND table_name = 'sessions'").IterContext(ctx)
	for name := ""; iter.Scan(&name); {
		delete(missing, name)
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read the columns of music.sessions: %w", err)
	}
	var changes []string
	for name, cqlType := range missing {
		changes = append(changes, "ALTER TABLE music.sessions ADD IF NOT EXISTS "+name+" "+cqlType)
	}
	return changeSchema(ctx, s, changes...)
}

// changeSchema carries out statements that do not depend on each other, and blocks until all nodes
// know of them: later statements that depend on them may be sent to any node. Without statements it does
// not block: while a cluster is upgraded its nodes may disagree for hours.
func changeSchema(ctx context.Context, s *gocql.Session, statements ...string) error {
	for _, ddl := range statements {
		err := s.Query(ddl).ExecContext(ctx)
		if refusal := gocql.RequestError(nil); errors.As(err, &refusal) && refusal.Code() == gocql.ErrCodeUnauthorized {
			return fmt.Errorf("create keyspace music: %w; the first proxy of a cluster needs CREATE ON ALL KEYSPACES for its role (docs/roles.md)", err)
		}
		if err != nil {
			return fmt.Errorf("create keyspace music: %w", err)
		}
	}
	if len(statements) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agreementLimit)
	defer cancel()
	for {
		err := s.AwaitSchemaAgreement(ctx)
		if err == nil {
			return nil
		}
		if !pause(ctx, laggardPoll) {
			return fmt.Errorf("create keyspace music: %w: %w", ctx.Err(), err)
		}
	}
}

// hasty is a table option: a read of one row asks one replica more than it needs, so that it need
// not wait for a node that has just died.
const hasty = " AND speculative_retry = 'ALWAYS'"

// defaultReplication returns the default replication of keyspace music, by the nodes of each data
// centre.
func defaultReplication(ctx context.Context, s *gocql.Session) (string, error) {
	nodes := map[string]int{}
	for _, query := range []string{"SELECT data_center FROM system.local", "SELECT data_center FROM system.peers_v2"} {
		iter := s.Query(query).IterContext(ctx)
		for dc := ""; iter.Scan(&dc); {
			if dc != "" { // the row of a node that is just joining has none
				nodes[dc]++
			}
		}
		if err := iter.Close(); err != nil {
			return "", fmt.Errorf("count the nodes: %w", err)
		}
	}
	var dcs []string
	for dc, n := range nodes {
		dcs = append(dcs, fmt.Sprintf("%s: %d", rewrite.QuoteString(dc), min(n, maxReplicas)))
	}
	sort.Strings(dcs)
	return "{'class': 'NetworkTopologyStrategy', " + strings.Join(dcs, ", ") + "}", nil
}
