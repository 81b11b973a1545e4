package safety

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// preface is what stands above the table.
const preface = `# Safety: systems and faults

Which lock services keep *entry consistency under failures*, as the MUSIC paper defines it (III): Balasubramanian et al., "MUSIC: Multi-Site
Critical Sections over Geo-Distributed State". "The paper" is this one, and Roman numerals are its sections.

Each system runs on three Cassandra nodes in an emulated network of three sites; its clients are processes of their own, in a
site of their own beside a node. One fault strikes, and is mended again. What the clients saw is judged: **violated** is an acknowledged operation of
a section after one of a later section, or after the section was taken away; an acknowledged put that is lost; or a value that comes late or from
nowhere. **blocked** is nobody getting in for 40 s at the beginning, for as long as six leases while the fault lasts, or within 30 s afterwards;
**held** is neither.
"held (3)" is held in three tries, "blocked in 1 of 3" is held in the other two, and "violated (2)" is violated in the second: a cell is tried until
that, at most as often as was asked for. So held is not a proof; violated is. A try in which a client could not connect, or something did not start
again, tells nothing and is repeated.

Clients that were not answered do nothing more on their key, as the paper demands (III-A). Every lease is 5 s, and whoever is silent for longer may be
replaced, where a system has such a thing; a holder that can renew does so every second. A proxy of the product is dead after 3 s of silence, and its
locks go on 2 s later. The bakery's numbers live for an hour, as its code has it, since they cannot be renewed: whoever stands still or dies blocks
the key. Where values are ordinary rows, as with the locks of the blog posts and the slides, they have the clocks of the clients, as drivers do it: in
the column clocks that alone loses puts, of a holder whose clock goes back, or is behind that of another, whatever the lock does. The housekeeper of
LWT and heartbeat is one service, on a machine of its own. CassaEV and racing LWTs exclude nobody, and are here to be compared with. Waiters of MUSIC,
also of that on ZooKeeper, force out whoever has been the first for 5 s, dead or not: its later puts must be refused, then. A client that was not
answered and lives keeps its session, so that systems of sessions, as ZooKeeper and etcd, wait for it. A proxy of the product whose clock is more than
10 s off Cassandra's gives no new locks ([leases and clocks](../guarantees.md#leases-and-clocks)): where nobody else gets in, that counts as blocked.
ZooKeeper and etcd have a server at each site, and a client uses that of its own; what is lost between nodes strikes only what a system has in
Cassandra. A client of Curator, ShedLock or etcd is a program beside its process: it is paused and killed with it, but its clock is not set right
again. A fault that needs one message to be late at one instant, as a put that has passed its check, is shown by the tests of the system that it
breaks.

A run goes on where it was stopped: the tries of all runs count, whatever the product was then, until ` + "`" + `--again` + "`" + ` begins the cells anew.

`

// page returns the table as Markdown.
func (t *table) page() string {
	var b strings.Builder
	b.WriteString(preface)
	systems, faults := t.names()
	b.WriteString("| system | " + strings.Join(faults, " | ") + " |\n|---" + strings.Repeat("|---", len(faults)) + "|\n")
	for _, s := range systems {
		b.WriteString("| " + s)
		for _, f := range faults {
			b.WriteString(" | " + t.cell(s, f))
		}
		b.WriteString(" |\n")
	}
	if strings.Contains(b.String(), mark) {
		b.WriteString("\n" + strings.TrimSpace(mark) + ": tried when the system had other settings than are told here; the next run begins the cell anew.\n")
	}
	b.WriteString("\n## The systems\n\n")
	for _, name := range systems {
		s, _ := find(name)
		fmt.Fprintf(&b, "- **%s**: %s.\n", name, s.How)
	}
	b.WriteString("\n## The faults\n\n")
	for _, f := range Faults() {
		fmt.Fprintf(&b, "- **%s**: %s.\n", f.Name, f.How)
	}
	b.WriteString("\n## What was violated\n\nEach is tried again by the command, in integration/evaluate; its cell begins anew, here or where --out says. What strikes when depends " +
		"on the seed, what meets what also on the machine.\n\n")
	for _, c := range t.Cells {
		if c.Verdict == Violated {
			fmt.Fprintf(&b, "- %s, %s: %s ([history](%s)): `go run ./safety/table --system '%s' --fault '%s' --seed %d`\n",
				c.System, c.Fault, strings.Join(c.Violations, "; "), c.History, c.System, c.Fault, c.Seed)
		}
	}
	fmt.Fprintf(&b, "\nWritten on %s by `make evaluate ONLY=safety` or `go run ./safety/table` in integration/evaluate, the product at %s,\non a machine of %d cores that up to %.0f processes wanted: on one\n"+
		"that is too busy, a system can be blocked by that alone.\n", t.When, t.commits(), cmp.Or(t.Cores, runtime.NumCPU()), t.Load)
	return b.String()
}

// commits returns those at which cells were tried last.
func (t *table) commits() string {
	var all []string
	for _, c := range t.Cells {
		if commit := cmp.Or(c.Commit, "an earlier commit"); !slices.Contains(all, commit) {
			all = append(all, commit)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// names returns the systems and faults of the table in the order of this package.
func (t *table) names() (systems, faults []string) {
	for _, s := range Systems() {
		if slices.ContainsFunc(t.Cells, func(c Cell) bool { return c.System == s.Name }) {
			systems = append(systems, s.Name)
		}
	}
	for _, f := range Faults() {
		if slices.ContainsFunc(t.Cells, func(c Cell) bool { return c.Fault == f.Name }) {
			faults = append(faults, f.Name)
		}
	}
	return systems, faults
}

// cell returns what stands in one.
func (t *table) cell(system, fault string) string {
	i := slices.IndexFunc(t.Cells, func(c Cell) bool { return c.System == system && c.Fault == fault })
	if i < 0 {
		return "–"
	}
	c := t.Cells[i]
	if s, known := find(system); known && c.Tries > 0 && c.old(s) {
		return c.text() + mark
	}
	return c.text()
}

// mark is that of a cell which is of the system as it was tried before.
const mark = " †"

// text returns what stands in the cell.
func (c *Cell) text() string {
	switch {
	case c.Verdict == Violated:
		return fmt.Sprintf("**[violated](%s)** (%d)", c.History, c.Tries)
	case c.Tries == 0:
		return "not tried: " + inCell(c.Failed)
	}
	text := fmt.Sprintf("held (%d)", c.Tries)
	if c.Blocked > 0 {
		text = fmt.Sprintf("blocked in %d of %d", c.Blocked, c.Tries)
	}
	if c.Failed != "" {
		text += "; one told nothing: " + inCell(c.Failed)
	}
	return text
}

// inCell returns a text that does not end the cell of a table.
func inCell(text string) string { return strings.NewReplacer("\n", " ", "|", "/").Replace(text) }
