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
	Proxy    netip.AddrPort // the address that drivers are shown
	Internal netip.AddrPort // peer and peer_port: where other nodes reach the node
	Native   netip.AddrPort // rpc_address, or native_address and native_port: where drivers would reach it without a proxy
}

// value returns the value that Cassandra stores in a column that identifies the node; nil for any
// other column.
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

// fits reports whether a row can be about the node. sources are the table's columns that the row's
// columns show.
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
// of a node. It goes by the names, so that it also knows columns that later releases may add.
func showsPlace(column string) bool {
	return column == "peer" || strings.Contains(column, "address") || strings.HasSuffix(column, "_ip") || isPort(column)
}

// isPort reports whether a column of those tables is a port.
func isPort(column string) bool { return strings.HasSuffix(column, "_port") }

// nodeValue translates an address or a port that drivers are shown back to the one that Cassandra
// has in the column: that of the first of nodes whose proxy has it. If no proxy has it, the result
// is one that no node has.
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

// isAt reports whether an address in wire form is that of the node's proxy. An IPv4 address mapped
// into IPv6 is the IPv4 address, as for Cassandra.
func (n *Node) isAt(inet []byte) bool {
	address, ok := netip.AddrFromSlice(inet)
	return ok && address.Unmap() == n.Proxy.Addr()
}

// ProxyAt returns the address of the proxy of the node with this internal address, which is in wire
// form. known is false if the node has no proxy or is the home node.
func ProxyAt(nodes []Node, internal []byte) (proxy netip.Addr, known bool) {
	address, _ := netip.AddrFromSlice(internal)
	for i := range nodes {
		if nodes[i].Internal.Addr() == address.Unmap() {
			return nodes[i].Proxy.Addr(), true
		}
	}
	return netip.Addr{}, false
}
