package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// operation is one statement with a lock, and ordinary statements on an ordinary table that need
// the same rights: a role may do it if it may do all of those, and otherwise gets the error of the
// first one that Cassandra refuses. KEY is a key that is held under REF; a key that begins with
// FREE is not locked.
type operation struct {
	cql    string
	values []any
	direct []string
}

// The ordinary statements: of MODIFY, SELECT, both, AUTHORIZE and ALTER.
const (
	plainModify    = "UPDATE bank.twin SET balance = 1 WHERE branch = 'b' AND id = 'x'"
	plainSelect    = "SELECT * FROM bank.twin WHERE branch = 'b'"
	plainCondition = "UPDATE bank.twin SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = 7"
	plainAuthorize = "REVOKE AUTHORIZE ON TABLE bank.twin FROM reader"
	plainAlter     = "ALTER TABLE bank.twin WITH comment = 'the other one'"
)

// operations returns all kinds of statements that the proxy adds to CQL.
func operations() []operation {
	mod, sel, cond := []string{plainModify}, []string{plainSelect}, []string{plainCondition}
	return []operation{
		{cql: "LOCK bank.accounts WHERE branch = 'FREE'", direct: mod},
		{cql: "SELECT LOCK bank.accounts WHERE branch = ? NOWAIT", values: []any{"FREE"}, direct: mod},
		{cql: "LOCK bank.accounts WHERE branch IN ('FREE1', 'FREE2')", direct: mod},
		{cql: "LOCK bank.accounts WHERE branch IN ('FREE1', 'KEY') SKIP LOCKED LIMIT 1", direct: mod},
		{cql: "SELECT LOCK bank.accounts WHERE branch IN ?", values: []any{[]string{"FREE1", "FREE2"}}, direct: mod},
		{cql: "LOCK bank.accounts WHERE branch = 'KEY' USING LOCK REF", direct: mod},
		{cql: "UNLOCK bank.accounts WHERE branch = 'KEY' USING LOCK REF", direct: mod},
		{cql: "UNLOCK bank.accounts WHERE branch = 'KEY' FORCE REASON 'because'", direct: []string{plainAuthorize}},
		{cql: "LIST LOCKS ON bank.accounts", direct: sel},
		{cql: "SELECT * FROM bank.accounts WHERE branch = 'KEY'", direct: sel},
		{cql: "SELECT * FROM bank.accounts WHERE branch = 'KEY' USING LOCK REF", direct: sel},
		{cql: "SELECT * FROM bank.accounts WHERE branch = 'FREE' FOR UPDATE", direct: []string{plainModify, plainSelect}},
		{cql: "SELECT balance FROM bank.accounts WHERE branch = ? FOR UPDATE NOWAIT", values: []any{"FREE"}, direct: []string{plainModify, plainSelect}},
		{cql: "INSERT INTO bank.accounts (branch, id, balance) VALUES ('KEY', 'y', 5) USING LOCK REF", direct: mod},
		{cql: "UPDATE bank.accounts USING LOCK REF SET balance = ? WHERE branch = ? AND id = ?", values: []any{int64(5), "KEY", "x"}, direct: mod},
		{cql: "DELETE FROM bank.accounts USING LOCK REF WHERE branch = 'KEY'", direct: mod},
		{cql: "BEGIN BATCH USING LOCK REF UPDATE bank.accounts SET balance = 5 WHERE branch = 'KEY' AND id = 'x'; DELETE FROM bank.accounts WHERE branch = 'KEY' AND id = 'y'; APPLY BATCH", direct: mod},
		{cql: "UPDATE bank.accounts USING LOCK REF SET balance = 5 WHERE branch = 'KEY' AND id = 'x' IF balance = 1", direct: cond},
		{cql: "UPDATE bank.accounts USING LOCK REF SET balance = 5 WHERE branch = 'KEY' AND id = 'x' IF balance = 2", direct: cond},
		{cql: "INSERT INTO bank.accounts (branch, id) VALUES ('KEY', 'x') IF NOT EXISTS USING LOCK REF", direct: cond},
		{cql: "DELETE FROM bank.accounts USING LOCK REF WHERE branch = ? AND id = ? IF balance >= ?", values: []any{"KEY", "x", int64(1)}, direct: cond},
		{cql: "BEGIN BATCH USING LOCK REF UPDATE bank.accounts SET balance = 5 WHERE branch = 'KEY' AND id = 'x' IF balance = 1; DELETE FROM bank.accounts WHERE branch = 'KEY' AND id = 'y'; APPLY BATCH", direct: cond},
		{cql: "BEGIN BATCH USING LOCK REF UPDATE bank.accounts SET balance = 5 WHERE branch = 'KEY' AND id = 'x' IF balance = 2; APPLY BATCH", direct: cond},
		{cql: "ALTER TABLE bank.accounts WITH comment = '@critical(lease=7m)'", direct: []string{plainAlter}},
	}
}

// at returns the operation on a key.
func (d operation) at(key, ref string) statement {
	words := strings.NewReplacer("KEY", key, "FREE", "free "+key, "REF", ref)
	s := statement{cql: words.Replace(d.cql)}
	for _, v := range d.values {
		switch value := v.(type) {
		case string:
			v = words.Replace(value)
		case []string:
			var all []string
			for _, text := range value {
				all = append(all, words.Replace(text))
			}
			v = all
		}
		s.values = append(s.values, v)
	}
	return s
}

// matrix tries every statement as every role: what the proxy allows is what Cassandra allows, and
// what is refused changes nothing.
func (b *rightsFixture) matrix(t *testing.T) {
	root := b.login(b.proxy.address, "cassandra", "cassandra", 4)
	require.NoError(t, root.run(statement{cql: "CREATE TABLE bank.twin (branch text, id text, balance bigint, PRIMARY KEY (branch, id))"}).err())
	roles := map[string][]string{
		"nothing": nil, "selects": {"SELECT ON bank.accounts", "SELECT ON bank.twin"}, "modifies": {"MODIFY ON bank.accounts", "MODIFY ON bank.twin"},
		"both":   {"SELECT ON bank.accounts", "MODIFY ON bank.accounts", "SELECT ON bank.twin", "MODIFY ON bank.twin"},
		"clerks": {"SELECT ON KEYSPACE bank", "MODIFY ON KEYSPACE bank"}, "owns": {"AUTHORIZE ON KEYSPACE bank", "ALTER ON KEYSPACE bank", "ALL ON KEYSPACE music"},
	}
	for role, rights := range roles {
		b.grant("CREATE ROLE " + role + " WITH PASSWORD = 'p' AND LOGIN = true")
		for _, right := range rights {
			b.grant("GRANT " + right + " TO " + role)
		}
	}
	allowed := 0
	for n, role := range append(slices.Sorted(maps.Keys(roles)), "cassandra") {
		password := "p"
		if role == "cassandra" {
			password = role
		}
		version := 3 + n%3
		proxied, direct := b.login(b.proxy.address, role, password, version), b.login(b.node, role, password, version)
		for i, d := range operations() {
			if b.try(t, root, proxied, direct, d, fmt.Sprintf("%s %d", role, i)) {
				allowed++
			}
		}
		proxied.close()
		direct.close()
	}
	assert.Greater(t, allowed, len(operations()), "some may")
	assert.Less(t, allowed, len(roles)*len(operations())*3/4, "many may not")
}

// try reports whether a client may do an operation on a key of its own, and checks that Cassandra says the same.
func (b *rightsFixture) try(t *testing.T, root, proxied, direct *gocql2, d operation, key string) bool {
	t.Helper()
	o := root.run(statement{cql: "LOCK bank.accounts WHERE branch = '" + key + "'"})
	require.Equal(t, "held", told(o, "state"), "%v", o)
	ref := told(o, "lock_ref")
	require.NoError(t, root.run(statement{cql: "INSERT INTO bank.accounts (branch, id, balance) VALUES ('" + key + "', 'x', 1) USING LOCK " + ref}).err())
	before := b.contents(t, key)
	got := proxied.run(d.at(key, ref)).failure
	var want *failure
	for _, cql := range d.direct {
		if want = direct.run(statement{cql: cql}).failure; want != nil {
			want.text = strings.ReplaceAll(want.text, "bank.twin", "bank.accounts")
			break
		}
	}
	assert.Equal(t, want, got, "%s: %s", key, d.cql)
	if want != nil {
		assert.Equal(t, before, b.contents(t, key), "%s: %s", key, d.cql)
	}
	return got == nil
}

// contents returns what the critical table has for the keys of an operation, with their lock rows,
// and its definition. Locks of other keys may end meanwhile.
func (b *rightsFixture) contents(t *testing.T, key string) string {
	t.Helper()
	var companion string
	tables := b.admin.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'bank'").Iter()
	for name := ""; tables.Scan(&name); {
		if strings.HasPrefix(name, "music_lock_") {
			companion = name
		}
	}
	require.NoError(t, tables.Close())
	require.NotEmpty(t, companion)
	var all strings.Builder
	for _, cql := range []string{
		"SELECT JSON branch, id, balance, writetime(balance) FROM bank.accounts", "SELECT JSON * FROM bank." + companion,
		"SELECT JSON comment FROM system_schema.tables WHERE keyspace_name = 'bank' AND table_name = 'accounts'",
	} {
		iter := b.admin.Query(cql).Iter()
		for row := ""; iter.Scan(&row); {
			if strings.Contains(row, key+`"`) || strings.Contains(row, "free "+key) || strings.Contains(row, "comment") {
				all.WriteString(row + "\n")
			}
		}
		require.NoError(t, iter.Close())
	}
	return all.String()
}
