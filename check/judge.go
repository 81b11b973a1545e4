package check

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"music/client"
)

// Judge returns a finding for each thing that was checked, in a fixed order. Where no proxy has answered
// there is nothing to say of all else.
func Judge(f *Facts) []Finding {
	if len(f.answering()) == 0 {
		return judgeProxies(f)
	}
	var all []Finding
	for _, topic := range []func(*Facts) []Finding{
		judgeProxies, judgePeers, judgeNodes, judgeReleases, judgeClocks, judgePaxos, judgeCommitLog, judgeReplicas, judgeReadRepair, judgeTables,
		judgeKeys, judgeRights, judgeClients, judgeUnseen,
	} {
		all = append(all, topic(f)...)
	}
	return all
}

// answering returns the proxies that have answered.
func (f *Facts) answering() []Proxy {
	return slices.DeleteFunc(slices.Clone(f.Proxies), func(p Proxy) bool { return p.Err != nil })
}

// addresses returns the addresses of proxies.
func addresses(proxies []Proxy) []string {
	var all []string
	for _, p := range proxies {
		all = append(all, p.Address)
	}
	slices.Sort(all)
	return all
}

// judgeProxies: each proxy answers, and all use one port.
func judgeProxies(f *Facts) []Finding {
	j := judgement{topic: "proxies"}
	for _, p := range f.Proxies {
		if p.Err != nil {
			j.add(Fault, unanswered(p.Err, "start it (music proxy --check says what it lacks), or the node behind it, without which it does not listen, or see whether its port is reached from here"), "the proxy at %s does not answer: %v", p.Address, p.Err)
		}
	}
	ports := map[string][]string{}
	for _, p := range f.Proxies {
		_, port, _ := strings.Cut(p.Address[strings.LastIndex(p.Address, "]")+1:], ":")
		ports[port] = append(ports[port], p.Address)
	}
	if len(ports) > 1 {
		j.add(Fault, "give all proxies the same port in listen: drivers use one for all", "proxies are on %d ports: %s", len(ports), some(addresses(f.Proxies)))
	}
	return j.fine("%d answer: %s", len(f.Proxies), some(addresses(f.Proxies)))
}

// NoAnswer is the finding if none of the given proxies could be asked.
func NoAnswer(err error) Finding {
	do := "start a proxy, or the node behind it, or say with --proxy where one is"
	return Finding{Level: Fault, Topic: "proxies", Text: err.Error(), Do: unanswered(err, do)}
}

// unanswered says what to do about a proxy that could not be asked: otherwise, unless err is known.
func unanswered(err error, otherwise string) string {
	switch {
	case errors.Is(err, client.ErrLogin):
		return "give the role and the file of its password: --username, --password-file"
	case errors.Is(err, client.ErrNoProxy):
		return "give the address of a proxy with --proxy, and not that of a node"
	}
	return otherwise
}

// judgePeers: each proxy gets answers from all others.
func judgePeers(f *Facts) []Finding {
	j := judgement{topic: "peers"}
	for _, p := range f.answering() {
		for _, silent := range p.Silent {
			do := "see whether that proxy lives, and whether its peer-listen is reached from this one"
			if strings.Contains(silent, "peer-listen is not set") {
				do = "set peer-listen on every proxy (docs/several-proxies.md)"
			}
			j.add(Fault, do, "the proxy at %s: %s", p.Address, silent)
		}
	}
	return j.fine("each proxy is answered by all others")
}

// judgeNodes: there is a proxy for each node, and a node for each proxy.
func judgeNodes(f *Facts) []Finding {
	j := judgement{topic: "nodes"}
	behind := map[string][]string{}
	for _, p := range f.answering() {
		behind[p.HostID] = append(behind[p.HostID], p.Address)
	}
	for _, host := range slices.Sorted(maps.Keys(behind)) {
		if all := behind[host]; len(all) > 1 {
			j.add(Warning, "give each proxy a node of its own as its first contact point", "the proxies at %s stand before one node, %s", some(all), host)
		}
	}
	sum := 0
	for _, n := range f.Nodes {
		sum += n
	}
	if known := max(len(behind), len(f.Members)); f.Nodes != nil && sum > known && known > 1 {
		j.add(Warning, "start a proxy before each node: drivers see only nodes that have one", "%d nodes and %d proxies", sum, known)
	}
	return j.fine("each proxy has a node of its own")
}

// judgeReleases: the releases of Cassandra, of the schema, and of the proxies fit together.
func judgeReleases(f *Facts) []Finding {
	j := judgement{topic: "releases"}
	nodes, schemas, versions := map[string][]string{}, map[string][]string{}, map[int]bool{}
	for _, p := range f.answering() {
		nodes[p.Release] = append(nodes[p.Release], p.Address)
		schemas[p.Schema] = append(schemas[p.Schema], p.Address)
	}
	for _, m := range f.Members {
		if m.Version > 0 {
			versions[m.Version] = true
		}
	}
	for _, release := range slices.Sorted(maps.Keys(nodes)) {
		if !serves(release) {
			j.add(Fault, "upgrade to 4.1.6, 5.0 or later", "Cassandra %s behind %s: its lightweight transactions have known holes", release, some(nodes[release]))
		}
	}
	if len(nodes) > 1 {
		j.add(Warning, "finish the upgrade", "Cassandra runs in releases %s", strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	if len(schemas) > 1 {
		j.add(Warning, "wait for it; where it stays: nodetool describecluster", "the nodes do not agree on the schema: %d versions", len(schemas))
	}
	if spoken := slices.Sorted(maps.Keys(versions)); len(spoken) > 1 {
		level, do := Warning, "finish the upgrade of the proxies"
		if spoken[len(spoken)-1]-spoken[0] > 1 {
			level, do = Fault, "run releases of the proxy that speak with each other; a row of a proxy that is gone for good: DELETE FROM music.proxies WHERE host_id = …"
		}
		j.add(level, do, "proxies speak versions %s to each other", strings.Trim(fmt.Sprint(spoken), "[]"))
	}
	return j.fine("Cassandra %s; one schema; proxies speak one version", strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
}

// serves reports whether a release of Cassandra supports locks, as in proxy/release.go.
func serves(release string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(release, "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return false
	}
	return major > 4 || major == 4 && (minor > 1 || minor == 1 && patch >= 6)
}

// Differences of clocks. At the larger one, proxies grant no locks any more (musiccore.ClockGap).
const (
	clocksApart = time.Second
	clocksOff   = 10 * time.Second
)

// judgeClocks: the nodes' clocks agree with each other, and with this machine's.
func judgeClocks(f *Facts) []Finding {
	j := judgement{topic: "clocks"}
	all := f.answering()
	if len(all) == 0 {
		return nil
	}
	byClock := func(a, b Proxy) int { return int(a.Ahead - b.Ahead) }
	first, last := slices.MinFunc(all, byClock), slices.MaxFunc(all, byClock)
	apart := (last.Ahead - first.Ahead).Round(time.Millisecond)
	const do = "let NTP or chrony set the clocks: chronyc tracking"
	switch {
	case apart >= clocksOff:
		j.add(Fault, do, "the clock of the node behind %s is %v ahead of that behind %s: proxies give no lock", last.Address, apart, first.Address)
	case apart >= clocksApart:
		j.add(Warning, do, "the clock of the node behind %s is %v ahead of that behind %s: at %v proxies give no lock", last.Address, apart, first.Address, clocksOff)
	}
	if here := (-first.Ahead).Round(time.Second).Abs(); len(j.all) == 0 && here >= clocksOff {
		j.add(Warning, do+", here too", "the clock of this machine and those of the nodes are %v apart", here)
	}
	return j.fine("the nodes' are within %v", max(apart, time.Millisecond))
}

// values returns the values of a setting, each with the proxies whose nodes have it.
func (f *Facts) values(setting string) map[string][]string {
	found := map[string][]string{}
	for _, p := range f.answering() {
		if value, seen := p.Settings[setting]; seen {
			found[value] = append(found[value], p.Address)
		}
	}
	return found
}

// judgePaxos: v2 on all nodes.
func judgePaxos(f *Facts) []Finding {
	j := judgement{topic: "paxos_variant"}
	found := f.values(j.topic)
	const do = "paxos_variant: v2 in cassandra.yaml of every node, as Cassandra's NEWS.txt says how to change it"
	switch {
	case len(found) == 0:
		return f.unseen(j.topic)
	case len(found) > 1:
		j.add(Fault, do, "nodes have different ones: %s", strings.Join(slices.Sorted(maps.Keys(found)), ", "))
	case found["v1"] != nil:
		j.add(Warning, do, "v1: while the ring changes two clients could both be given a lock")
	}
	return j.fine("%s on all nodes", strings.Join(slices.Sorted(maps.Keys(found)), ", "))
}

// judgeCommitLog: not periodic.
func judgeCommitLog(f *Facts) []Finding {
	j := judgement{topic: "commitlog_sync"}
	found := f.values(j.topic)
	if len(found) == 0 {
		return f.unseen(j.topic)
	}
	if periodic := found["periodic"]; periodic != nil {
		j.add(Warning, "commitlog_sync: batch (or group) in cassandra.yaml, and restart the node", "periodic behind %s: nodes that die together lose their last acknowledged writes", some(periodic))
	}
	return j.fine("%s", strings.Join(slices.Sorted(maps.Keys(found)), ", "))
}

// unseen adds that a topic could not be checked.
func (f *Facts) unseen(topic string) []Finding {
	return []Finding{{Level: Warning, Topic: topic, Text: "not seen with this login", Do: "GRANT SELECT ON system_views.settings TO the role that you log in as here"}}
}

// companionPrefix begins the name of each lock table; the id of the data table follows.
const companionPrefix = "music_lock_"

// markedCritical matches the mark in a comment, as package catalog does.
const markedCritical = `(?i)(^|[^\w@])@critical\b`

// critical returns the critical tables: those whose comment says so, and those that have a lock
// table.
func (f *Facts) critical() (all []Table) {
	marked := regexp.MustCompile(markedCritical)
	for _, t := range f.Tables {
		if marked.MatchString(t.Comment) || f.companion(t) != nil {
			all = append(all, t)
		}
	}
	return all
}

// companion returns the lock table of a table; nil if it has none.
func (f *Facts) companion(t Table) *Table {
	i := slices.IndexFunc(f.Tables, func(c Table) bool {
		return c.Keyspace == t.Keyspace && c.Name == companionPrefix+strings.ReplaceAll(t.ID, "-", "")
	})
	if i < 0 {
		return nil
	}
	return &f.Tables[i]
}

// judgeTables: each critical table has a lock table, and each lock table a table.
func judgeTables(f *Facts) []Finding {
	j := judgement{topic: "lock_tables"}
	ids := map[string]bool{}
	for _, t := range f.Tables {
		ids[strings.ReplaceAll(t.ID, "-", "")] = true
	}
	for _, t := range f.Tables {
		id, is := strings.CutPrefix(t.Name, companionPrefix)
		if _, err := hex.DecodeString(id); is && err == nil && !ids[id] {
			j.add(Warning, fmt.Sprintf("DROP TABLE %s.%s, unless its data is yet to be restored", t.Keyspace, t.Name), "%s.%s has lock rows of a table that is not there", t.Keyspace, t.Name)
		}
	}
	all := f.critical()
	for _, t := range all {
		if f.companion(t) == nil {
			j.add(Fault, "see the log of the proxies; the proxies' role needs CREATE on the keyspace (docs/roles.md)", "%s.%s is critical and has no lock table: it cannot be locked", t.Keyspace, t.Name)
		}
	}
	return j.fine("%d critical tables, each with its lock table", len(all))
}

// judgeReadRepair: BLOCKING for lock tables and critical tables.
func judgeReadRepair(f *Facts) []Finding {
	j := judgement{topic: "read_repair"}
	for _, t := range f.critical() {
		if t.ReadRepair == "NONE" {
			j.add(Warning, fmt.Sprintf("ALTER TABLE %s.%s WITH read_repair = 'BLOCKING'", t.Keyspace, t.Name),
				"NONE on %s.%s: a read may show an older state than one before it", t.Keyspace, t.Name)
		}
		if c := f.companion(t); c != nil && c.ReadRepair != "BLOCKING" {
			j.add(Fault, fmt.Sprintf("ALTER TABLE %s.%s WITH read_repair = 'BLOCKING', at a node", c.Keyspace, c.Name), "%s on %s.%s, a lock table", c.ReadRepair, c.Keyspace, c.Name)
		}
	}
	return j.fine("BLOCKING on all critical tables and their lock tables")
}

// enoughKeys is how many keys a sample must have to be meaningful.
const enoughKeys = 3

// judgeKeys: lock rows and data are of the same time. A key that was never locked has no lock row,
// and a deleted one no data; only if no key of the sample has both, they are not.
func judgeKeys(f *Facts) []Finding {
	j := judgement{topic: "lock_rows"}
	var told []string
	const do = "where data or lock rows were restored: docs/operations.md, Restoring"
	for _, k := range f.Keys {
		told = append(told, fmt.Sprintf("%s: of %d lock rows %d have no data, of %d keys with data %d have no lock row", k.Table, k.Locked.Looked, k.Locked.Lacking, k.Written.Looked, k.Written.Lacking))
		if k.Locked.Looked < enoughKeys || k.Written.Looked < enoughKeys {
			continue
		}
		if k.Locked.Lacking == k.Locked.Looked {
			j.add(Warning, do, "%s has data, and none of %d lock rows is of any, such as that of %s", k.Table, k.Locked.Looked, k.Locked.Example)
		}
		if k.Written.Lacking == k.Written.Looked {
			j.add(Warning, do, "%s has lock rows, and none of %d keys with data has one, such as %s", k.Table, k.Written.Looked, k.Written.Example)
		}
	}
	if len(told) == 0 {
		return nil
	}
	return j.fine("%s", strings.Join(told, "; "))
}

// judgeClients: clients of nodes connect from the addresses of proxies.
func judgeClients(f *Facts) []Finding {
	j := judgement{topic: "clients"}
	from, seen := map[string]bool{}, false // true = a proxy connects from there
	for _, p := range f.answering() {
		for _, c := range p.Clients {
			seen = true
			from[c.Address] = from[c.Address] || strings.HasPrefix(c.Driver, driverOfProxies)
		}
	}
	for _, p := range f.answering() {
		if past := p.past(from); len(past) > 0 && slices.Contains(slices.Collect(maps.Values(from)), true) {
			j.add(Warning, "point them at a proxy, or REVOKE MODIFY on the critical tables from their role: at a node nothing keeps them from writing without a lock",
				"connected to the node behind %s, past the proxies: %s", p.Address, some(past))
		}
	}
	if !seen {
		return []Finding{{Level: Warning, Topic: j.topic, Text: "not seen with this login", Do: "GRANT SELECT ON system_views.clients TO the role that you log in as here"}}
	}
	return j.fine("all connections to the nodes come from where proxies are")
}

// past returns the clients of a node that do not connect from one of these addresses.
func (p *Proxy) past(from map[string]bool) (all []string) {
	for _, c := range p.Clients {
		who := fmt.Sprintf("%s (role %s, %s)", c.Address, orUnknown(c.User), orUnknown(c.Driver))
		if !from[c.Address] && !slices.Contains(all, who) {
			all = append(all, who)
		}
	}
	return all
}

// orUnknown returns a text, or "unknown" if it is empty.
func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// judgeUnseen: what this login may not read.
func judgeUnseen(f *Facts) []Finding {
	j := judgement{topic: "unseen"}
	for _, u := range f.Unseen {
		j.add(Warning, "log in as a role that may read it, as a superuser may", "%s: %v", u.What, u.Err)
	}
	return j.all
}
