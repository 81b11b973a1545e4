package refusal

import (
	"encoding/binary"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
)

// Uncertain returns the error for a plain write of unknown outcome: a WRITE_TIMEOUT, which drivers
// know (v4 spec section 9, 0x1100), with no replica that has answered.
func Uncertain(version byte, t *catalog.Table, kind primitive.WriteType) *wire.Failure {
	return WriteTimeout(version, kind, "MUSIC_UNCERTAIN: whether this write to "+t.String()+" was carried out is unknown: read to find out")
}

// WriteTimeout returns a WRITE_TIMEOUT. From protocol 5 on one of type CAS ends with a number of
// contentions.
func WriteTimeout(version byte, kind primitive.WriteType, text string) *wire.Failure {
	consistency := primitive.ConsistencyLevelQuorum
	if kind == primitive.WriteTypeCas {
		consistency = primitive.ConsistencyLevelSerial
	}
	extra := binary.BigEndian.AppendUint16(nil, uint16(consistency))
	extra = binary.BigEndian.AppendUint32(extra, 0)
	extra = binary.BigEndian.AppendUint32(extra, 1)
	extra = binary.BigEndian.AppendUint16(extra, uint16(len(kind)))
	extra = append(extra, kind...)
	if kind == primitive.WriteTypeCas && version >= byte(primitive.ProtocolVersion5) {
		extra = binary.BigEndian.AppendUint16(extra, 0)
	}
	return &wire.Failure{Code: primitive.ErrorCodeWriteTimeout, Text: text, Extra: extra}
}
