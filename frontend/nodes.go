package frontend

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
)

// Node is a node of the cluster, other than the home node, that has a proxy: drivers are shown the proxy in its place (docs/design.md 3).
type Node struct {
	HostID   [16]byte
	Proxy    netip.AddrPort // what drivers are told
	Internal netip.AddrPort // peer and peer_port: where the node's own kind reaches it
	Native   netip.AddrPort // rpc_address, or native_address and native_port: where drivers would
}

// value is what Cassandra stores in a column that identifies the node; nil for any other.
func (n *Node) value(column string) []byte {
	switch column {
	case "host_id":
		return n.HostID[:]
	case "peer":
		return wireAddress(n.Internal.Addr())
	case "peer_port":
		return wirePort(n.Internal.Port())
	case "rpc_address", "native_address":
		return wireAddress(n.Native.Addr())
	case "native_port":
		return wirePort(n.Native.Port())
	}
	return nil
}

// fits tells whether a row, whose columns show these of the table, can be about the node.
func (n *Node) fits(sources []string, row [][]byte) bool {
	for i, source := range sources {
		if identifies(source) && row[i] != nil && !bytes.Equal(row[i], n.value(source)) {
			return false
		}
	}
	return true
}

// identifies tells whether a column of system.peers or peers_v2 tells which node a row is about.
func identifies(column string) bool {
	switch column {
	case "host_id", "peer", "peer_port", "rpc_address", "native_address", "native_port":
		return true
	}
	return false
}

// showsPlace tells whether a column of system.local, peers or peers_v2 holds an address or a port of the node. Columns that later
// releases may add are known by how all of them are called.
func showsPlace(column string) bool {
	return column == "peer" || strings.Contains(column, "address") || strings.HasSuffix(column, "_ip") || isPort(column)
}

// isPort tells whether a column of those tables is a port.
func isPort(column string) bool { return strings.HasSuffix(column, "_port") }

// nodeValue is what a node has in a column where drivers are shown its proxy: of an address, that of the node behind it; of a port,
// that of the first of nodes whose proxy has it. What no proxy has no node has.
func nodeValue(nodes []Node, column string, shown []byte) []byte {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case !identifies(column):
			continue // preferred_ip, preferred_port: shown as null
		case isPort(column) && bytes.Equal(shown, wirePort(n.Proxy.Port())), !isPort(column) && n.isAt(shown):
			return n.value(column)
		}
	}
	if isPort(column) {
		return wirePort(0)
	}
	return wireAddress(nowhere())
}

// nowhere is an address that no node has.
func nowhere() netip.Addr { return netip.IPv4Unspecified() }

// isAt tells whether an address in wire form is that of the node's proxy. IPv4 within IPv6 is IPv4, as to Cassandra.
func (n *Node) isAt(wire []byte) bool {
	address, ok := netip.AddrFromSlice(wire)
	return ok && address.Unmap() == n.Proxy.Addr()
}

// wireAddress is an inet as the protocol sends it.
func wireAddress(a netip.Addr) []byte { return a.Unmap().AsSlice() }

// wirePort is an int as the protocol sends it.
func wirePort(port uint16) []byte { return binary.BigEndian.AppendUint32(nil, uint32(port)) }
