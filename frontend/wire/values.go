package wire

import (
	"encoding/binary"
	"net/netip"
)

// Value returns a [value] of the protocol: b behind its length.
func Value(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// Address returns a CQL inet in wire form. IPv4 within IPv6 is IPv4, as to Cassandra.
func Address(a netip.Addr) []byte { return a.Unmap().AsSlice() }

// Port returns a port as a CQL int in wire form.
func Port(port uint16) []byte { return binary.BigEndian.AppendUint32(nil, uint32(port)) }
