//go:build compat

package apps

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"music/integration/gotest"
)

// way is how an application reaches Cassandra.
type way struct {
	name     string
	address  string
	critical bool // its tables are altered to be critical
}

// ways returns all three, directly first.
func (w *world) ways() []way {
	node := w.node.Nodes()[0].Addr()
	return []way{{"direct", node, false}, {"relay", proxyAddress, false}, {"auto", proxyAddress, true}}
}

// suite is one application's tests, or a program of ours over an application's library.
type suite struct {
	name    string
	version string
	run     func(t *testing.T, w *world, by way) map[string]gotest.Verdict
}

// suites returns all that `make apps` builds.
func suites() []suite {
	return []suite{
		{"Temporal", "go.temporal.io/server 1.29.1", temporal},
		{"Jaeger", "jaegertracing/jaeger 1.76.0", jaeger},
		{"ShedLock", "shedlock-provider-cassandra 5.0.1", javaProgram("shedlock", "ShedLock")},
		{"cassandra-migration", "cassandra-migration 2.6.1_v4", javaProgram("migration", "Migration")},
		{"express-cassandra", "express-cassandra 2.9.1", program("express", comment, "node", "node/mapper.js")},
		{"cqlengine", "cassandra-driver 3.30.1", program("cqlengine", "@critical auto", "python3", "python/mapper.py")},
	}
}

// Each test of an application ends through the proxy as it does directly, except for what
// expected() names.
func TestApps(t *testing.T) {
	w := start(t)
	table := []string{"| suite | way | passed | failed | skipped |", "|---|---|---|---|---|"}
	for _, s := range suites() {
		t.Run(s.name, func(t *testing.T) {
			var direct map[string]gotest.Verdict
			for _, by := range w.ways() {
				t.Run(by.name, func(t *testing.T) {
					seen := s.run(t, w, by)
					count := map[string]int{}
					for _, v := range seen {
						count[v.Action]++
					}
					table = append(table, fmt.Sprintf("| %s, `%s` | %s | %d | %d | %d |", s.name, s.version, by.name, count["pass"], count["fail"], count["skip"]))
					if by.name == "direct" {
						direct = seen
					}
					assert.NotZero(t, count["pass"], "the tests did what they are for")
					compare(t, s.name, by.name, direct, seen)
				})
			}
		})
	}
	w.record(t, "suites", table)
}

// compare checks that the tests that end otherwise than directly are those that are expected to.
func compare(t *testing.T, name, by string, direct, seen map[string]gotest.Verdict) {
	t.Helper()
	wanted := expected()[name+" "+by]
	tests := maps.Clone(direct)
	maps.Copy(tests, seen)
	for _, test := range slices.Sorted(maps.Keys(tests)) {
		at, here := direct[test], seen[test]
		why, known := wanted[test]
		if by == "direct" {
			at = gotest.Verdict{Action: "pass"}
		}
		if at.Action == here.Action || by == "direct" && here.Action == "skip" {
			assert.False(t, known, "%s, %s, %s: ends as it does directly, but is expected to differ: %s", name, by, test, why)
			continue
		}
		t.Logf("%s, %s, %s: %s, directly %s: %s\n%s", name, by, test, here.Action, at.Action, why, here.Said)
		assert.True(t, known, "%s, %s, %s: %s, directly %s", name, by, test, here.Action, at.Action)
	}
}

// expected returns the tests that do not end as they do directly, of each suite and way, with the
// reason. docs/applications.md has the same reasons.
func expected() map[string]map[string]string {
	const (
		timestamp = "USING TIMESTAMP is refused under a lock, unless the table's comment says timestamp=ignore"
		truncate  = "TRUNCATE of a critical table is refused, unless its comment says unlocked=allow"
		metadata  = "TestCassandraMetadataPersistenceV2"
	)
	return map[string]map[string]string{
		"Temporal auto": {
			metadata: truncate,
			metadata + "/TestCreateWithPartialNamespaceDifferentNameSameID": truncate,
			metadata + "/TestCreateWithPartialNamespaceSameNameDifferentID": truncate,
			metadata + "/TestCreateWithPartialNamespaceSameNameSameID":      truncate,
		},
		"express-cassandra auto": {"truncate": truncate},
		"cqlengine auto":         {"timestamp": timestamp, "batch with a timestamp": timestamp},
	}
}
