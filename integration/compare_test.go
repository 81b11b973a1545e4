package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// corpus returns all statements of ordinary CQL that are compared.
func corpus() []statement {
	return slices.Concat(typeStatements(), plainStatements(), batchStatements(), errorStatements(), pagingStatements())
}

// record runs the corpus in a new keyspace, which is made at node, and returns what the driver
// showed, one text for each statement.
func record(t *testing.T, d driver, node, address string) []string {
	t.Helper()
	const keyspace = "compat"
	admin := openGocql2(t, cluster2(node, ""))
	defer admin.close()
	for _, ddl := range []string{
		"DROP KEYSPACE IF EXISTS compat", "CREATE KEYSPACE compat WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		// A level that neither one node nor three can serve.
		"CREATE KEYSPACE IF NOT EXISTS lonely WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 5}",
		"CREATE TABLE IF NOT EXISTS lonely.t (k int PRIMARY KEY)",
	} {
		require.NoError(t, admin.run(statement{cql: ddl}).err())
	}
	c := d.open(t, address, keyspace)
	defer c.close()
	var told []string
	for i, s := range corpus() {
		if s.least > d.version {
			continue
		}
		told = append(told, fmt.Sprintf("%d %s: %.300s\n%s", i, s.name, s.cql, c.run(s)))
	}
	return told
}

// differences returns the statements whose outcomes differ.
func differences(direct, proxied []string) []string {
	var all []string
	for i := range direct {
		if direct[i] != proxied[i] {
			all = append(all, fmt.Sprintf("direct  %.1500s\nproxied %.1500s", direct[i], proxied[i]))
		}
	}
	return all
}

// goDrivers returns the Go drivers in every version, and in every compression once:
// TestFramesAreEqual has all pairs of the two.
func goDrivers() []driver {
	return []driver{
		withGocql2(3, "+lz4"), withGocql2(4, ""), withGocql2(4, "+snappy"), withGocql2(5, ""), withGocql2(5, "+lz4"), withGocql1("+snappy"),
	}
}

// Ordinary CQL has the same outcomes through the proxy as at the node, with each Go driver.
func TestOrdinaryCQLIsEqual(t *testing.T) {
	proxy, node := needProxy(t), needEnvironment(t).direct()
	for _, d := range goDrivers() {
		t.Run(d.name, func(t *testing.T) {
			direct, proxied := record(t, d, node, node), record(t, d, node, proxy)
			for _, difference := range differences(direct, proxied) {
				assert.Fail(t, "a difference", "%v", difference)
			}
			checkCorpusWorked(t, d, direct)
		})
	}
}

// checkCorpusWorked checks that the comparison was not of errors only: a statement fails if and
// only if Cassandra is to refuse it.
func checkCorpusWorked(t *testing.T, d driver, told []string) {
	t.Helper()
	for _, s := range corpus() {
		if s.least > d.version {
			continue
		}
		failed := strings.Contains(told[0], "\nerror ")
		assert.True(t, failed == s.fails && !strings.Contains(told[0], "\nerror 0x0000"), "failed: %v, should fail with the server's error: %v: %.600s", failed, s.fails, told[0])
		told = told[1:]
	}
}
