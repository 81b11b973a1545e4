package topology

import (
	"bytes"
	"net/netip"
	"strings"

	"music/frontend/wire"
)

// Node is a node of the cluster, other than the home node, that has a proxy: drivers are shown the
// proxy in its place (docs/design.md 3).
type Node struct {
	HostID   [16]byte
	Proxy    netip.AddrPort // what drivers are told
	Internal netip.AddrPort // peer and peer_port: where the node's own kind reaches it
	Native   netip.AddrPort // rpc_address, or native_address and native_port: where drivers would
}

// value returns what Cassandra stores in a column that identifies the node; nil for any other.
func (n *Node) value(column string) []byte {
	switch column {
	case "host_id":
		return n.HostID[:]
	case "peer":
		return wire.Address(n.Internal.Addr())
	case "peer_port":
		return wire.Port(n.Internal.Port())
	case "rpc_address", "native_address":
		return wire.Address(n.Native.Addr())
	case "native_port":
		return wire.Port(n.Native.Port())
	}
	return nil
}

// fits reports whether a row, whose columns show these of the table, can be about the node.
func (n *Node) fits(sources []string, row [][]byte) bool {
	for i, source := range sources {
		if identifies(source) && row[i] != nil && !bytes.Equal(row[i], n.value(source)) {
			return false
		}
	}
	return true
}

// identifies reports whether a column of system.peers or peers_v2 tells which node a row is about.
func identifies(column string) bool {
	switch column {
	case "host_id", "peer", "peer_port", "rpc_address", "native_address", "native_port":
		return true
	}
	return false
}

// showsPlace reports whether a column of system.local, peers or peers_v2 holds an address or a port
// of the node. Columns that later releases may add are known by how all of them are called.
func showsPlace(column string) bool {
	return column == "peer" || strings.Contains(column, "address") || strings.HasSuffix(column, "_ip") || isPort(column)
}

// isPort reports whether a column of those tables is a port.
func isPort(column string) bool { return strings.HasSuffix(column, "_port") }

// nodeValue returns what a node has in a column where drivers are shown its proxy: of an address,
// that of the node behind it; of a port, that of the first of nodes whose proxy has it. What no
// proxy has, no node has.
func nodeValue(nodes []Node, column string, shown []byte) []byte {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case !identifies(column):
			continue // preferred_ip, preferred_port: shown as null
		case isPort(column) && bytes.Equal(shown, wire.Port(n.Proxy.Port())), !isPort(column) && n.isAt(shown):
			return n.value(column)
		}
	}
	if isPort(column) {
		return wire.Port(0)
	}
	return wire.Address(nowhere())
}

// nowhere returns an address that no node has.
func nowhere() netip.Addr { return netip.IPv4Unspecified() }

// isAt reports whether an address in wire form is that of the node's proxy. IPv4 within IPv6 is
// IPv4, as to Cassandra.
func (n *Node) isAt(inet []byte) bool {
	address, ok := netip.AddrFromSlice(inet)
	return ok && address.Unmap() == n.Proxy.Addr()
}

// ProxyAt returns the address of the proxy that stands for the node whose internal address, in wire
// form, it is given. known is false where that node has none, or is the home node.
func ProxyAt(nodes []Node, internal []byte) (proxy netip.Addr, known bool) {
	address, _ := netip.AddrFromSlice(internal)
	for i := range nodes {
		if nodes[i].Internal.Addr() == address.Unmap() {
			return nodes[i].Proxy.Addr(), true
		}
	}
	return netip.Addr{}, false
}
