package check

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/client"
)

// healthy is a cluster of three nodes of which nothing is to be said.
func healthy() *Facts {
	const id = "123e4567-e89b-12d3-a456-426614174000"
	three := map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}
	f := &Facts{
		Nodes:     map[string]int{"dc1": 3},
		Keyspaces: map[string]map[string]string{"music": three, "bank": three},
		Tables: []Table{
			{Keyspace: "bank", Name: "accounts", ID: id, Comment: "balances @critical", ReadRepair: "BLOCKING"},
			{Keyspace: "bank", Name: "music_lock_123e4567e89b12d3a456426614174000", ID: "223e4567-e89b-12d3-a456-426614174000", ReadRepair: "BLOCKING"},
			{Keyspace: "bank", Name: "notes", ID: "323e4567-e89b-12d3-a456-426614174000", Comment: "who is @criticality, x@critical", ReadRepair: "NONE"},
		},
		Roles: map[string]Role{"music": {Permissions: map[string][]string{
			"data/music": {"SELECT", "MODIFY"}, "data/bank": {"SELECT", "MODIFY", "CREATE"}, "data/system_views/settings": {"SELECT"},
		}}},
	}
	f.Keys = []Keys{{Table: "bank.accounts", Locked: Sample{Looked: 50, Lacking: 1, Example: "basel"}, Written: Sample{Looked: 9, Lacking: 8, Example: "bern"}}}
	for k := range 3 {
		address := fmt.Sprintf("10.0.1.%d:9042", k+1)
		f.Proxies = append(f.Proxies, Proxy{
			Address: address, HostID: fmt.Sprint(k), Centre: "dc1", Release: "5.0.8", Schema: "s", Ahead: time.Duration(k) * time.Millisecond,
			Settings: map[string]string{"paxos_variant": "v2", "commitlog_sync": "batch"},
			Clients:  []Connection{{address[:8], "music", "MUSIC proxy X"}, {address[:8], "app", "DataStax Python Driver"}},
		})
		f.Members = append(f.Members, Member{HostID: fmt.Sprint(k), Address: address, Version: 4})
	}
	return f
}

func TestAHealthyCluster(t *testing.T) {
	all := Judge(healthy())
	assert.Len(t, all, 13, "a line a topic")
	for _, f := range all {
		assert.Equal(t, Fine, f.Level, "%v", f)
		assert.NotEmpty(t, f.Text)
		assert.Empty(t, f.Do)
	}
	assert.Zero(t, Status(all))
}

// Each finding, by what has to be wrong with a healthy cluster.
func TestEveryFinding(t *testing.T) {
	down := errors.New("connection refused")
	var produced []string
	for _, c := range []struct {
		topic string
		level Level
		text  string
		spoil func(*Facts)
	}{
		{"proxies", Fault, "10.0.1.2:9042 does not answer: connection refused", func(f *Facts) { f.Proxies[1] = Proxy{Address: f.Proxies[1].Address, Err: down} }},
		{"proxies", Fault, "2 ports", func(f *Facts) { f.Proxies[1].Address = "10.0.1.2:9142" }},
		{"peers", Fault, "10.0.1.1:9042: the locks of the proxy at \"x\" are not shown", func(f *Facts) {
			f.Proxies[0].Silent = []string{`the locks of the proxy at "x" are not shown: it does not answer`}
		}},
		{"peers", Fault, "peer-listen is not set there", func(f *Facts) { f.Proxies[2].Silent = []string{"(peer-listen is not set there)"} }},
		{"nodes", Warning, "10.0.1.1:9042, 10.0.1.2:9042 stand before one node", func(f *Facts) { f.Proxies[1].HostID = "0" }},
		{"nodes", Warning, "5 nodes and 3 proxies", func(f *Facts) { f.Nodes["dc2"] = 2 }},
		{"releases", Fault, "Cassandra 4.1.5 behind 10.0.1.1:9042", func(f *Facts) { f.Proxies[0].Release = "4.1.5" }},
		{"releases", Warning, "releases 5.0.7, 5.0.8", func(f *Facts) { f.Proxies[0].Release = "5.0.7" }},
		{"releases", Warning, "2 versions", func(f *Facts) { f.Proxies[0].Schema = "other" }},
		{"releases", Warning, "versions 4 5 to each other", func(f *Facts) { f.Members[0].Version = 5 }},
		{"releases", Fault, "versions 4 6 to each other", func(f *Facts) { f.Members[0].Version = 6 }},
		{"clocks", Fault, "11s ahead of that behind 10.0.1.1:9042: proxies give no lock", func(f *Facts) { f.Proxies[2].Ahead = 11 * time.Second }},
		{"clocks", Warning, "2s ahead", func(f *Facts) { f.Proxies[2].Ahead = 2 * time.Second }},
		{"clocks", Warning, "this machine", func(f *Facts) {
			for i := range f.Proxies {
				f.Proxies[i].Ahead = time.Minute
			}
		}},
		{"paxos_variant", Warning, "v1", func(f *Facts) {
			for i := range f.Proxies {
				f.Proxies[i].Settings["paxos_variant"] = "v1"
			}
		}},
		{"paxos_variant", Fault, "different ones: v1, v2", func(f *Facts) { f.Proxies[0].Settings["paxos_variant"] = "v1" }},
		{"paxos_variant", Warning, "not seen", func(f *Facts) {
			for i := range f.Proxies {
				delete(f.Proxies[i].Settings, "paxos_variant")
			}
		}},
		{"commitlog_sync", Warning, "periodic behind 10.0.1.3:9042", func(f *Facts) { f.Proxies[2].Settings["commitlog_sync"] = "periodic" }},
		{"commitlog_sync", Warning, "not seen", func(f *Facts) {
			for i := range f.Proxies {
				delete(f.Proxies[i].Settings, "commitlog_sync")
			}
		}},
		{"replicas", Warning, "keyspace bank: nodes answer for 2 of 3", func(f *Facts) { f.Proxies[1].Err = down }},
		{"replicas", Fault, "keyspace bank: nodes answer for 1 of 3", func(f *Facts) { f.Proxies[1].Err, f.Proxies[2].Centre = down, "dc2" }},
		{"replicas", Warning, "keyspace bank has 2: the loss of one node", func(f *Facts) {
			f.Keyspaces["bank"] = map[string]string{"class": "SimpleStrategy", "replication_factor": "2"}
		}},
		{"replicas", Warning, "keyspace music has 1, fewer than bank (3)", func(f *Facts) { f.Keyspaces["music"] = map[string]string{"class": "x", "dc1": "1"} }},
		{"read_repair", Warning, "NONE on bank.accounts", func(f *Facts) { f.Tables[0].ReadRepair = "NONE" }},
		{"read_repair", Fault, "NONE on bank.music_lock_", func(f *Facts) { f.Tables[1].ReadRepair = "NONE" }},
		{"lock_tables", Warning, "lock rows of a table that is not there", func(f *Facts) { f.Tables = f.Tables[1:] }},
		{"lock_tables", Fault, "bank.accounts is critical and has no lock table", func(f *Facts) { f.Tables, f.Tables[0].Comment = f.Tables[:1], "@Critical" }},
		{"lock_rows", Warning, "bank.accounts has data, and none of 50 lock rows is of any, such as that of basel", func(f *Facts) { f.Keys[0].Locked.Lacking = 50 }},
		{"lock_rows", Warning, "bank.accounts has lock rows, and none of 9 keys with data has one, such as bern", func(f *Facts) { f.Keys[0].Written.Lacking = 9 }},
		{"rights", Fault, "role music has no MODIFY on KEYSPACE bank", func(f *Facts) { f.Roles["music"].Permissions["data/bank"] = []string{"SELECT", "CREATE"} }},
		{"rights", Warning, "no SELECT on system_views.settings", func(f *Facts) { delete(f.Roles["music"].Permissions, "data/system_views/settings") }},
		{"clients", Warning, "10.9.9.9 (role app, unknown)", func(f *Facts) {
			f.Proxies[1].Clients = append(f.Proxies[1].Clients, Connection{Address: "10.9.9.9", User: "app"})
		}},
		{"clients", Warning, "not seen", func(f *Facts) {
			for i := range f.Proxies {
				f.Proxies[i].Clients = nil
			}
		}},
		{"unseen", Warning, "music.proxies: connection refused", func(f *Facts) { f.see("music.proxies", down) }},
	} {
		t.Run(c.topic+" "+c.text, func(t *testing.T) {
			f := healthy()
			c.spoil(f)
			var found []Finding
			for _, x := range Judge(f) {
				if x.Topic == c.topic && x.Level != Fine {
					found = append(found, x)
				}
			}
			require.NotEmpty(t, found)
			for _, x := range found {
				produced = append(produced, x.Text)
			}
			assert.Equal(t, c.level, found[0].Level)
			assert.Contains(t, found[0].Text, c.text)
			assert.NotEmpty(t, found[0].Do, "what to do")
			assert.Equal(t, map[Level]int{Warning: 1, Fault: 2}[c.level], Status(found[:1]))
		})
	}
	verb := regexp.MustCompile(`%[a-z]`)
	for _, text := range formats(t) {
		made := regexp.MustCompile("(?s)^" + verb.ReplaceAllString(regexp.QuoteMeta(text), ".*") + "$")
		assert.True(t, slices.ContainsFunc(produced, made.MatchString), "nothing here produces %q", text)
	}
}

// Where no proxy answers nothing else is judged, and what to do depends on why.
func TestNobodyAnswers(t *testing.T) {
	for _, c := range []struct {
		err error
		do  string
	}{
		{errors.New("connection refused"), "the node behind it"},
		{fmt.Errorf("x: %w", client.ErrLogin), "--password-file"},
		{fmt.Errorf("%w: x", client.ErrNoProxy), "not that of a node"},
	} {
		f := healthy()
		for i := range f.Proxies {
			f.Proxies[i].Err = c.err
		}
		all := Judge(f)
		require.Len(t, all, len(f.Proxies))
		for _, x := range append(all, NoAnswer(c.err)) {
			assert.Equal(t, Fault, x.Level)
			assert.Equal(t, "proxies", x.Topic)
			assert.Contains(t, x.Text, c.err.Error())
			assert.Contains(t, x.Do, c.do)
		}
	}
}

// The page tells of each topic, and of no other.
func TestThePageHasEachTopic(t *testing.T) {
	page, err := os.ReadFile("../docs/command-line.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "| topic |")
	table, _, _ = strings.Cut(table, "\n\n")
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		told = append(told, m[1])
	}
	f := healthy()
	f.see("something", errNoRow)
	var topics []string
	for _, x := range Judge(f) {
		topics = append(topics, x.Topic)
	}
	assert.ElementsMatch(t, topics, told)
}

// Rights count where they were given on more than is asked for, or through another role.
func TestRightsFromAbove(t *testing.T) {
	f := healthy()
	f.Roles["music"] = Role{Permissions: map[string][]string{"data": {"SELECT", "MODIFY", "CREATE"}}}
	assert.Equal(t, Fine, judgeRights(f)[0].Level)
	f.Roles["music"] = Role{Superuser: true}
	assert.Equal(t, Fine, judgeRights(f)[0].Level)
}

// One proxy before a node of several sees too little to count replicas that are up.
func TestReplicasThroughOneProxy(t *testing.T) {
	f := healthy()
	f.Proxies, f.Members = f.Proxies[:1], f.Members[:1]
	assert.Equal(t, Fine, judgeReplicas(f)[0].Level)
	f.Nodes = map[string]int{"dc1": 1}
	assert.Equal(t, Fault, judgeReplicas(f)[0].Level, "of one node it sees all")
}
