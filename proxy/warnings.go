package proxy

import (
	"context"
	"strconv"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// warnings is what the owner of a critical table should know of its keyspace and of the node (DESIGN.md 4): it is served all the
// same. What cannot be read is not warned of.
func (s *schema) warnings(ctx context.Context, t *dataTable) []string {
	var found []string
	replication := map[string]string{}
	err := s.session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", t.keyspace).
		Consistency(gocql.One).ScanContext(ctx, &replication)
	if err == nil && replicas(replication) < maxReplicas {
		found = append(found, "its keyspace has fewer than three replicas: the loss of one node stops its locks")
	}
	var sync string
	err = s.session.Query("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'").Consistency(gocql.One).ScanContext(ctx, &sync)
	if err == nil && sync == "periodic" {
		found = append(found, "commitlog_sync is periodic: nodes that die together lose their last acknowledged writes")
	}
	return found
}

// replicas is the number of replicas in all data centres together.
func replicas(replication map[string]string) int {
	sum := 0
	for name, value := range replication {
		full, _, _ := strings.Cut(value, "/") // "3/1": one of three is transient
		if n, err := strconv.Atoi(full); err == nil && name != "class" {
			sum += n
		}
	}
	return sum
}
