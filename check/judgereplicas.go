package check

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// musicKeyspace is the proxies' own keyspace.
const musicKeyspace = "music"

// anywhere stands for the data centre of a replication strategy without data centres.
const anywhere = ""

// copies is the number of replicas by data centre.
func copies(replication map[string]string) map[string]int {
	found := map[string]int{}
	for name, value := range replication {
		full, _, _ := strings.Cut(value, "/") // "3/1": one of three is transient
		n, err := strconv.Atoi(full)
		switch {
		case err != nil || name == "class":
		case name == "replication_factor":
			found[anywhere] = n
		default:
			found[name] = n
		}
	}
	return found
}

// total returns the number of all replicas.
func total(replicas map[string]int) int {
	sum := 0
	for _, n := range replicas {
		sum += n
	}
	return sum
}

// up returns how many nodes answer through their proxies, by data centre and anywhere.
func (f *Facts) up() map[string]int {
	found, seen := map[string]int{}, map[string]bool{}
	for _, p := range f.answering() {
		if !seen[p.HostID] {
			seen[p.HostID] = true
			found[p.Centre]++
			found[anywhere]++
		}
	}
	return found
}

// judgeReplicas compares the replicas of each keyspace that locks need with the nodes that are up.
// If one proxy serves several nodes, only what it reports is known.
func judgeReplicas(f *Facts) []Finding {
	j := judgement{topic: "replicas"}
	keyspaces := map[string]bool{musicKeyspace: true}
	for _, t := range f.critical() {
		keyspaces[t.Keyspace] = true
	}
	up := f.up()
	alone := up[anywhere] == 1 && (f.Nodes == nil || total(f.Nodes) > 1)
	var told []string
	for _, name := range slices.Sorted(maps.Keys(keyspaces)) {
		replicas := copies(f.Keyspaces[name])
		n := total(replicas)
		told = append(told, fmt.Sprintf("%s %d", name, n))
		if !alone {
			f.judgeUp(&j, name, replicas, up)
		}
		if n < 3 {
			j.add(Warning, "ALTER KEYSPACE "+name+" WITH replication = {…} with three replicas, then nodetool repair --full "+name,
				"keyspace %s has %d: the loss of one node stops its locks", name, n)
		}
		if own := copies(f.Keyspaces[musicKeyspace]); total(own) < n {
			j.add(Warning, "ALTER KEYSPACE music with as many replicas, then nodetool repair --full music",
				"keyspace music has %d, fewer than %s (%d): locks end with nodes that the data would survive", total(own), name, n)
		}
	}
	return j.fine("%s; nodes are up for all", strings.Join(told, ", "))
}

// judgeUp adds where too few nodes are up for the replicas.
func (f *Facts) judgeUp(j *judgement, name string, replicas, up map[string]int) {
	reached, n := 0, total(replicas)
	for centre, want := range replicas {
		reached += min(want, up[centre])
	}
	const do = "start the nodes that are down and their proxies; nodes there are too few of: lower the replication factor"
	switch {
	case reached < n/2+1:
		j.add(Fault, do, "keyspace %s: nodes answer for %d of %d replicas: nothing is read or written under a lock", name, reached, n)
	case reached < n:
		j.add(Warning, do, "keyspace %s: nodes answer for %d of %d replicas", name, reached, n)
	}
}
