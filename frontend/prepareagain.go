package frontend

import (
	"bytes"
	"crypto/md5" //nolint:gosec // G501: Cassandra's ids, not a secret
	"encoding/binary"
	"unicode/utf8"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/classify"
	"music/frontend/wire"
)

// unqualifiedBody returns the body of a PREPARE, in memory of its own, if its text names a table without a keyspace; else nil.
// rest is the body after the text.
func unqualifiedBody(r *classify.Result, text, rest []byte) []byte {
	if !r.Unqualified {
		return nil
	}
	return append(longString(text), rest...)
}

// oneForAll reports whether Cassandra may have given a text that names a table without a keyspace the id that it
// has in every keyspace: what is executed under that id is what was prepared first, in whichever keyspace. A node
// does so as long as it does not know the release of each node of the ring (5.0: useNewPreparedStatementBehaviour).
// Of a text that is not UTF-8 Cassandra hashes what it makes of it.
func (p *preparing) oneForAll(id []byte) bool {
	if p.body == nil {
		return false
	}
	text := p.body[4 : 4+binary.BigEndian.Uint32(p.body)]
	shared := md5.Sum(text) //nolint:gosec // G401: as above
	return bytes.Equal(id, shared[:]) || !utf8.Valid(text)
}

// prepareAgain has Cassandra prepare a statement once more whose answer e has an id of oneForAll, and returns no
// answer then: Cassandra has stored the statement under the keyspace's id, too, which it returns the second time,
// with the columns of that keyspace's table. To the second such answer it returns an error.
func (c *conn) prepareAgain(e wire.Envelope, w watch) wire.Envelope {
	if w.preparing.asked {
		return c.errorInstead(e, oneIDForAll())
	}
	w.preparing.asked = true
	c.watch(e.Stream, &w) // the stream is still open
	c.send(ownRequest(wire.Header{Version: c.version, Stream: e.Stream}, primitive.OpCodePrepare, w.preparing.body))
	return wire.Envelope{}
}

// oneIDForAll returns the error for a PREPARE for which Cassandra returns an id of oneForAll twice.
func oneIDForAll() *wire.Failure {
	return wire.Invalid("MUSIC_UNAVAILABLE: Cassandra gives this text, which names a table without its keyspace, the same id in all keyspaces: prepare it again, or name the keyspace (and write the text in UTF-8)")
}
