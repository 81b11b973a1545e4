package classify

import (
	"bytes"
	"strings"

	"music/frontend/catalog"
	"music/rewrite"
)

// TableKey is the key of a table in catalog.Tables: its keyspace, a zero byte, and its name.
type TableKey []byte

// Names returns keyspace and name.
func (k TableKey) Names() [2]string {
	ks, table, _ := bytes.Cut(k, []byte{0})
	return [2]string{string(ks), string(table)}
}

// String returns the table's name for people to read.
func (k TableKey) String() string {
	return strings.TrimSuffix(strings.Replace(string(k), "\x00", ".", 1), ".")
}

// read returns the kind of a SELECT on the table: some tables show the cluster's nodes.
func (k TableKey) read() Kind {
	switch string(k) {
	case "system\x00local":
		return Local
	case "system\x00peers", "system\x00peers_v2":
		return Peers
	}
	return Plain
}

// reserved reports whether only proxies may write the table.
func (k TableKey) reserved() bool {
	at := bytes.IndexByte(k, 0)
	if bytes.HasPrefix(k[at+1:], []byte(catalog.CompanionPrefix)) {
		return true
	}
	return string(k[:at]) == "music" && string(k[at+1:]) != "named"
}

// closed reports whether clients must not execute a statement on the table: it would change what
// only proxies may change, or read the cluster's secret. Allowed are reading all other tables,
// changing the replication of keyspace music, and dropping the companion of a table that is no
// longer critical.
func (k TableKey) closed(head *rewrite.Head) bool {
	if head.Verb != rewrite.Schema {
		return k.reserved() && (head.Verb != rewrite.Select || string(k) == "music\x00secrets")
	}
	what := head.Schema
	if bytes.HasPrefix(k, []byte("music\x00")) {
		return what.Kind != rewrite.SchemaKeyspace || what.Action != rewrite.Alter
	}
	return k.reserved() && (what.Kind != rewrite.SchemaTable || what.Action != rewrite.Drop)
}
