package topology

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
)

// An address that is listed often means its node once: what a request takes grows with its lists, not with their product.
func TestAddressesThatAreListedOften(t *testing.T) {
	const n = 2000
	proxy := netip.MustParseAddrPort("192.0.2.8:9042")
	node := Node{HostID: [16]byte{1}, Proxy: proxy, Internal: netip.MustParseAddrPort("10.0.0.1:7000"), Native: netip.MustParseAddrPort("10.0.0.2:9042")}
	list := binary.BigEndian.AppendUint32(nil, n)
	for range n {
		list = append(list, wire.Value(wire.Address(proxy.Addr()))...)
	}
	lists := strings.Repeat("'192.0.2.8', ", n-1) + "'192.0.2.8'"
	for where, values := range map[string][][]byte{
		"peer IN ? AND native_address IN ?":                             {wire.Value(list), wire.Value(list)},
		"peer IN (" + lists + ") AND native_address IN (" + lists + ")": nil,
	} {
		s, f := Read([]byte("SELECT host_id FROM system.peers_v2 WHERE "+where), "peers_v2")
		require.Nil(t, f)
		p := wire.Parameters{Values: values}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text := string(NewRequest(s, []Node{node}, proxy).Query(&p, nil))
		runtime.ReadMemStats(&after)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), where[:9])
		for _, value := range p.Values {
			text += string(value)
		}
		assert.Equal(t, n, strings.Count(text, "10.0.0.1")+strings.Count(text, "\x0a\x00\x00\x01"))
		assert.Equal(t, n, strings.Count(text, "10.0.0.2")+strings.Count(text, "\x0a\x00\x00\x02"))
	}
}

// A value that many markers name is translated once: twice it would be the address of no node, and a long list takes its time each time.
func TestAddressesBoundByName(t *testing.T) {
	proxy := netip.MustParseAddrPort("192.0.2.8:9042")
	node := Node{HostID: [16]byte{1}, Proxy: proxy, Internal: netip.MustParseAddrPort("10.0.0.1:7000"), Native: netip.MustParseAddrPort("10.0.0.2:9042")}
	shown := wire.Value(wire.Address(proxy.Addr()))
	p := wire.Parameters{Names: [][]byte{[]byte("other"), []byte("address"), []byte("address")}, Values: [][]byte{shown, shown, shown}}
	s, f := Read([]byte("SELECT host_id FROM system.peers WHERE peer IN (:address, :address)"), "peers")
	require.Nil(t, f)
	NewRequest(s, []Node{node}, proxy).Query(&p, nil)
	assert.Equal(t, [][]byte{shown, wire.Value([]byte{10, 0, 0, 1}), shown}, p.Values, "of equal names the first counts")

	const n = 1000
	list := binary.BigEndian.AppendUint32(nil, n)
	for range n {
		list = append(list, wire.Value(wire.Address(proxy.Addr()))...)
	}
	p = wire.Parameters{Names: [][]byte{[]byte("peer")}, Values: [][]byte{wire.Value(list)}}
	s, f = Read([]byte("SELECT host_id FROM system.peers WHERE "+strings.Repeat("peer IN ? AND ", n)+"peer IN ?"), "peers")
	require.Nil(t, f)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	NewRequest(s, []Node{node}, proxy).Query(&p, nil)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
	assert.Equal(t, n, strings.Count(string(p.Values[0]), "\x0a\x00\x00\x01"))
}
