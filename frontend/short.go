package frontend

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
)

// ShortError is Cassandra's word that too few replicas live for what the proxy had to ask of a key before the client's own operation
// (v4 spec section 9, 0x1000).
type ShortError struct {
	Text            string // Cassandra's own
	Consistency     uint16 // as on the wire
	Required, Alive int
}

// Error is what Cassandra said.
func (e *ShortError) Error() string { return e.Text }

// failure tells a client what Cassandra would have told of its operation, which was not sent.
func (e *ShortError) failure() *wire.Failure {
	extra := binary.BigEndian.AppendUint16(nil, e.Consistency)
	extra = binary.BigEndian.AppendUint32(extra, uint32(e.Required))
	return &wire.Failure{
		Code: primitive.ErrorCodeUnavailable, Extra: binary.BigEndian.AppendUint32(extra, uint32(e.Alive)),
		Text: e.Text + ": what the last holder left behind cannot be settled; nothing was done",
	}
}
