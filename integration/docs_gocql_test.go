package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withNamedLock does some work while it holds the lock of a name.
func withNamedLock(ctx context.Context, s *gocql.Session, name string, work func(ref int64) error) error {
	const first = "SELECT LOCK music.named WHERE name = ? WAIT ? TOKEN ?"
	const again = "SELECT LOCK music.named WHERE name = ? USING LOCK ? WAIT ?"
	token, ref := gocql.TimeUUID(), int64(0)
	for held := false; !held; {
		ask := s.Query(first, name, 1500, token)
		if ref != 0 { // every proxy knows a reference, and only one knows the token
			ask = s.Query(again, name, ref, 1500)
		}
		var err error
		row := map[string]any{}
		held, err = ask.MapScanCASContext(ctx, row)
		if err != nil {
			return fmt.Errorf("lock %s: %w", name, err)
		}
		ref, _ = row["lock_ref"].(int64)
		if row["state"] == "LOST" {
			token, ref = gocql.TimeUUID(), 0
		}
	}
	workErr := work(ref)
	released, err := s.Query("SELECT UNLOCK music.named WHERE name = ? USING LOCK ?", name, ref).
		MapScanCASContext(context.WithoutCancel(ctx), map[string]any{}) // also when ctx has ended during the work
	if err == nil && !released {
		err = fmt.Errorf("lock %s: it was lost before the end of the work", name)
	}
	return errors.Join(workErr, err)
}

// moveMoney moves an amount between two accounts of a branch whose lock is held.
func moveMoney(ctx context.Context, s *gocql.Session, ref int64, branch, from, to string, amount int64) error {
	balances := map[string]int64{}
	var id string
	var balance int64
	rows := s.Query("SELECT id, balance FROM accounts WHERE branch = ? USING LOCK ?", branch, ref).IterContext(ctx)
	for rows.Scan(&id, &balance) {
		balances[id] = balance
	}
	if err := rows.Close(); err != nil {
		return err
	}
	const set = "UPDATE accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?"
	batch := s.Batch(gocql.LoggedBatch)
	batch.Query(set, ref, balances[from]-amount, branch, from)
	batch.Query(set, ref, balances[to]+amount, branch, to)
	return batch.ExecContext(ctx)
}

// The Go functions that docs/recipes.md shows do what they say.
func TestDocsGoCodeWorks(t *testing.T) {
	name := fmt.Sprintf("docs_gocql_%d", time.Now().UnixNano())
	admin := openGocql2(t, cluster2(needProxy(t), "")).session
	for _, ddl := range []string{
		"CREATE KEYSPACE " + name + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE " + name + ".accounts (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '@critical'",
	} {
		require.NoError(t, admin.Query(ddl).Exec())
	}
	t.Cleanup(func() { assert.NoError(t, admin.Query("DROP KEYSPACE "+name).Exec()) })
	s := openGocql2(t, cluster2(needProxy(t), name)).session

	last := int64(0)
	for range 2 {
		require.NoError(t, withNamedLock(t.Context(), s, name, func(ref int64) error {
			assert.Greater(t, ref, last)
			last = ref
			return nil
		}))
	}
	row := map[string]any{}
	_, err := s.Query("SELECT LOCK accounts WHERE branch = ?", "zurich").MapScanCAS(row)
	require.NoError(t, err)
	ref := row["lock_ref"].(int64)
	for id, balance := range map[string]int64{"x": 100, "y": 0} {
		require.NoError(t, s.Query("INSERT INTO accounts (branch, id, balance) VALUES (?, ?, ?) USING LOCK ?", "zurich", id, balance, ref).Exec())
	}
	require.NoError(t, moveMoney(t.Context(), s, ref, "zurich", "x", "y", 30))
	found, err := s.Query("SELECT id, balance FROM accounts WHERE branch = ? USING LOCK ?", "zurich", ref).Iter().SliceMap()
	require.NoError(t, err)
	assert.Equal(t, []map[string]any{{"id": "x", "balance": int64(70)}, {"id": "y", "balance": int64(30)}}, found)
}

// Go code in the documents is the code above, which the test runs.
func TestDocsGoCodeIsTheTestedOne(t *testing.T) {
	source, err := os.ReadFile("docs_gocql_test.go")
	require.NoError(t, err)
	shown := 0
	for _, p := range docPages(t) {
		for _, part := range p.of(kindGo) {
			shown++
			assert.True(t, strings.Contains(string(source), strings.Join(part.lines, "\n")), "%s:%d is not in docs_gocql_test.go", p.path, part.first+1)
		}
	}
	assert.Positive(t, shown)
}
