package parser

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// framesFile has requests with every flag, and what Cassandra's own decoder reads of each. The
// frontend's tests compare it with what the proxy reads.
const framesFile = "../../frontend/testdata/frames.txt"

// The requests with flags that say what their bodies contain.
const (
	opQuery   = 7
	opPrepare = 9
	opExecute = 10
	opBatch   = 13
)

// The flags that announce a field, in the order of the fields (v5 spec section 4.1.4).
const (
	flagValues = 1 << iota
	flagSkipMetadata
	flagPageSize
	flagPagingState
	flagSerial
	flagTimestamp
	flagNames
	flagKeyspace
	flagNow
)

// tail follows every request: an unknown flag finds something that could be its field.
const tail = "\x00\x04evil\x00\x04evil\x00\x04evil"

// TestFramesAreReadAsCassandraDoes checks that the file of the frontend's tests has Cassandra's
// results. UPDATE_DOCS=1 writes it.
func TestFramesAreReadAsCassandraDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra's jars")
	}
	frames := frames()
	questions := make([]string, len(frames))
	for i, f := range frames {
		questions[i] = hex.EncodeToString(f.envelope)
	}
	var page strings.Builder
	for i, answer := range tell(t, fetched(t, "5.0.8"), "Frames", questions) {
		fmt.Fprintf(&page, "%s\t%s\t%s\n", frames[i].name, questions[i], answer)
	}
	if os.Getenv("UPDATE_DOCS") != "" {
		must(t, os.WriteFile(framesFile, []byte(page.String()), 0o600))
	}
	known, err := os.ReadFile(framesFile)
	must(t, err)
	assert.Equal(t, page.String(), string(known), "%s is not what Cassandra reads: run with UPDATE_DOCS=1 and see what has changed", framesFile)
}

// framed is a request with a name.
type framed struct {
	name     string
	envelope []byte
}

// frames returns requests of every version and kind with each flag alone, each pair of known ones,
// and all of them; and with each flag of the header.
func frames() (all []framed) {
	for version := byte(3); version <= 5; version++ {
		for _, opcode := range []byte{opQuery, opExecute, opBatch} {
			for _, flags := range flagSets(version) {
				all = append(all, newFramed(version, opcode, 0, uint32(flags)))
			}
		}
		for bit := range 8 {
			all = append(all, newFramed(version, opQuery, 1<<bit, flagKeyspace))
		}
		for bit := range 32 {
			if version == 5 || bit == 0 {
				all = append(all, newFramed(version, opPrepare, 0, 1<<bit))
			}
		}
	}
	return all
}

// flagSets returns the flags that a version has, each alone and with others.
func flagSets(version byte) (sets []uint64) {
	room, known := 8, 8
	if version >= 5 {
		room, known = 32, 9
	}
	for bit := range room {
		sets = append(sets, 1<<bit)
		for other := range min(bit, known) {
			if bit < known {
				sets = append(sets, 1<<bit|1<<other)
			}
		}
	}
	return append(sets, 0, 1<<known-1)
}

func newFramed(version, opcode, header byte, flags uint32) framed {
	body := append([]byte{}, beginning(version, opcode, header)...)
	if opcode == opPrepare {
		if version >= 5 {
			body = binary.BigEndian.AppendUint32(body, flags)
		}
	} else {
		body = append(body, parameters(version, flags)...)
	}
	body = append(body, tail...)
	envelope := []byte{version, header, 0, 1, opcode}
	envelope = binary.BigEndian.AppendUint32(envelope, uint32(len(body)))
	return framed{fmt.Sprintf("v%d op%d header%#02x flags%#x", version, opcode, header, flags), append(envelope, body...)}
}

// beginning returns what precedes the consistency: text, id, or a batch of both.
func beginning(version, opcode, header byte) []byte {
	const text, id = "\x00\x00\x00\x08DELETE x", "\x00\x10sixteen bytes id"
	var b string
	if header == 4 && version >= 4 {
		b = "\x00\x01\x00\x01k\x00\x00\x00\x01v" // a custom payload
	}
	switch {
	case opcode == opBatch:
		b += "\x01\x00\x02\x00" + text + "\x00\x01\x00\x00\x00\x01v" + "\x01" + id + "\x00\x00"
	case opcode == opExecute && version >= 5:
		b += id + id
	case opcode == opExecute:
		b += id
	default:
		b += text
	}
	return []byte(b)
}

// parameters returns consistency and flags, and a field for each flag that has one.
func parameters(version byte, flags uint32) []byte {
	b := []byte{0, 4}
	if version >= 5 {
		b = binary.BigEndian.AppendUint32(b, flags)
	} else {
		b = append(b, byte(flags))
	}
	for rest := flags; rest != 0; rest &= rest - 1 {
		switch 1 << bits.TrailingZeros32(rest) {
		case flagValues:
			b = append(b, values(flags)...)
		case flagPageSize:
			b = append(b, 0, 0, 0, 5)
		case flagPagingState:
			b = append(b, 255, 255, 255, 255)
		case flagSerial:
			b = append(b, 0, 9)
		case flagTimestamp:
			b = append(b, 0, 0, 0, 0, 0, 0, 0, 7)
		case flagKeyspace:
			b = append(b, "\x00\x04bank"...)
		case flagNow:
			b = append(b, 0, 0, 0, 6)
		}
	}
	return b
}

// values returns a null and a value, with names if the flags say so.
func values(flags uint32) []byte {
	if flags&flagNames != 0 {
		return []byte("\x00\x02\x00\x01n\x00\x00\x00\x01y\x00\x01m\x00\x00\x00\x01x")
	}
	return []byte("\x00\x02\xff\xff\xff\xff\x00\x00\x00\x01x")
}
