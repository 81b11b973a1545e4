package proxy

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// errRelease means that locks cannot be given with this release of Cassandra.
var errRelease = errors.New("locks need Cassandra 4.1.6, 5.0 or later: the LWTs of earlier ones have known holes; --locks off relays to any")

// checkRelease returns the release of a node, and an error if its LWTs are not reliable
// (docs/design.md 3).
func checkRelease(ctx context.Context, s *gocql.Session) (release string, err error) {
	if err := s.Query("SELECT release_version FROM system.local").Consistency(gocql.One).ScanContext(ctx, &release); err != nil {
		return "", fmt.Errorf("read the release of Cassandra: %w", err)
	}
	if !releaseServes(release) {
		return "", fmt.Errorf("release %s of Cassandra: %w", release, errRelease)
	}
	return release, nil
}

// releaseTellsElements reports whether a release can select the stamps and TTLs of the elements of
// a collection, or the fields of a UDT, that is not frozen. 4.1 cannot, so these cannot be written
// back (docs/protocol.md 6, C11).
func releaseTellsElements(release string) bool {
	return majorOf(release) >= 5
}

// releaseHasMasks reports whether columns may be masked in a release.
func releaseHasMasks(release string) bool {
	return majorOf(release) >= 5
}

// releaseHasTransactions reports whether tables of a release may have a transactional mode, in which
// Cassandra executes ordinary writes as transactions.
func releaseHasTransactions(release string) bool {
	return majorOf(release) >= 6
}

// releaseNumbersChanges reports whether the schema's version is the number of its last change, the same at
// every node; each then writes its tables of the schema by its own clock (CEP-21: DistributedSchema,
// initializeKeyspaceInstances). Before, the write times are the same at every node.
func releaseNumbersChanges(release string) bool {
	return majorOf(release) >= 6
}

// majorOf returns the first number of a release; 0 if it cannot be parsed.
func majorOf(release string) (major int) {
	if n, _ := fmt.Sscanf(release, "%d.", &major); n != 1 {
		return 0
	}
	return major
}

// releaseServes reports whether locks can be given with a release; false if it cannot be parsed.
func releaseServes(release string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(release, "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return false
	}
	return major > 4 || major == 4 && (minor > 1 || minor == 1 && patch >= 6)
}
