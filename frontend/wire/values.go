package wire

import (
	"encoding/binary"
	"net/netip"
)

// Value returns b as a [value] of the protocol, with its length before it; nil is null.
func Value(b []byte) []byte {
	if b == nil {
		return []byte{0xff, 0xff, 0xff, 0xff}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// Address returns a CQL inet in wire form. An IPv4 address mapped into IPv6 is written as IPv4, as
// Cassandra does.
func Address(a netip.Addr) []byte { return a.Unmap().AsSlice() }

// Port returns a port as a CQL int in wire form.
func Port(port uint16) []byte { return binary.BigEndian.AppendUint32(nil, uint32(port)) }
