package classify

import (
	"hash/maphash"

	"music/frontend/catalog"
	"music/rewrite"
)

// keptTexts is how many texts a Classifier keeps, and keptLength the longest of them, with the keyspace: a
// connection takes at most 10 KiB for them.
const (
	keptTexts  = 16
	keptLength = 512
)

// keptText is a text that was forwarded, with all that this depended on.
type keptText struct {
	text     []byte
	keyspace string
	names    uint64         // see catalog.Tables.Names
	table    *catalog.Table // the one that it names; nil if there was none
}

// Keep has Forwards return true for a whole text that is to be forwarded, as r says. It keeps only
// statements on one table that is in the schema. r must be what Classify has just returned.
func (c *Classifier) Keep(r *Result, text []byte, keyspace string) {
	switch r.Verb {
	case rewrite.Select, rewrite.Insert, rewrite.Update, rewrite.Delete:
	default:
		return
	}
	names := c.Tables.Names() // before the rest is looked up again, as it may have changed
	if r.Kind != Plain && r.Kind != Writes || len(text)+len(keyspace) > keptLength || !c.Tables.InSchema(r.Name) {
		return
	}
	if c.kept == nil {
		c.kept, c.seed = new([keptTexts]keptText), maphash.MakeSeed()
	}
	k := c.keptAt(text)
	k.text, k.keyspace, k.names, k.table = append(k.text[:0], text...), keyspace, names, c.lookup(r.Name)
}

// Forwards reports whether a whole text is to be forwarded. It answers only for a text for which
// Keep was called recently, while Classify would say the same: whether the text's table is critical
// is looked up at each call. Most clients repeat their statements, and this is much faster.
func (c *Classifier) Forwards(text []byte, keyspace string) bool {
	if c.kept == nil || len(text) > keptLength {
		return false
	}
	k := c.keptAt(text)
	return string(k.text) == string(text) && k.keyspace == keyspace && k.names == c.Tables.Names() &&
		(k.table == nil || k.table.Critical() == nil)
}

// keptAt returns where a text is kept, or would be.
func (c *Classifier) keptAt(text []byte) *keptText {
	return &c.kept[maphash.Bytes(c.seed, text)%keptTexts]
}
