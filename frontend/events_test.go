package frontend

import (
	"net/netip"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

// registered connects a client that hears of these events.
func (r *rig) registered(d dialect, types ...primitive.EventType) *peer {
	r.t.Helper()
	client, backend := r.login(d)
	client.send(1, &message.Register{EventTypes: types})
	for _, t := range types {
		if t == primitive.EventTypeSchemaChange {
			assert.Equal(r.t, []primitive.EventType{t}, backend.answer(1).(*message.Register).EventTypes)
			backend.send(1, &message.Ready{})
		}
	}
	assert.IsType(r.t, &message.Ready{}, client.answer(1))
	return client
}

// Who has registered hears what becomes of proxies, and nobody else does.
func TestEventsOfProxies(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		all := r.registered(d, primitive.EventTypeSchemaChange, primitive.EventTypeStatusChange, primitive.EventTypeTopologyChange)
		status := r.registered(d, primitive.EventTypeStatusChange)
		topology := r.registered(d, primitive.EventTypeTopologyChange)
		schema := r.registered(d, primitive.EventTypeSchemaChange)
		none, _ := r.login(d)
		four, six := netip.MustParseAddrPort("192.0.2.2:9999"), netip.MustParseAddrPort("[fd00::7]:9999")
		r.server.Tell(ChangeNew, four)
		r.server.Tell(ChangeUp, four)
		r.server.Tell(ChangeDown, six)
		r.server.Tell(ChangeRemoved, six)

		inet := func(a netip.AddrPort) *primitive.Inet {
			return &primitive.Inet{Addr: a.Addr().AsSlice(), Port: int32(a.Port())}
		}
		born := &message.TopologyChangeEvent{ChangeType: primitive.TopologyChangeTypeNewNode, Address: inet(four)}
		up := &message.StatusChangeEvent{ChangeType: primitive.StatusChangeTypeUp, Address: inet(four)}
		down := &message.StatusChangeEvent{ChangeType: primitive.StatusChangeTypeDown, Address: inet(six)}
		gone := &message.TopologyChangeEvent{ChangeType: primitive.TopologyChangeTypeRemovedNode, Address: inet(six)}
		for client, want := range map[*peer][]message.Message{all: {born, up, down, gone}, status: {up, down}, topology: {born, gone}, schema: nil, none: nil} {
			for _, event := range want {
				assert.Equal(t, event.(interface{ String() string }).String(), client.answer(-1).(interface{ String() string }).String())
			}
			client.silent()
		}
	})
}

// A client that does not read delays nobody who is told after it, nor who tells: that one also sees to it that the proxy does not listen while its node is down.
func TestEventsForAClientThatDoesNotRead(t *testing.T) {
	for _, d := range []dialect{{version: v4}, {version: v5}} {
		r := newPipedRig(t)
		silent, other := r.registered(d, primitive.EventTypeTopologyChange), r.registered(d, primitive.EventTypeTopologyChange)
		told := make(chan struct{})
		go func() {
			for _, change := range []Change{ChangeNew, ChangeRemoved} {
				r.server.Tell(change, netip.MustParseAddrPort("192.0.2.2:9999"))
			}
			close(told)
		}()
		taken(t, told)
		for _, client := range []*peer{other, silent} {
			for _, change := range []primitive.TopologyChangeType{primitive.TopologyChangeTypeNewNode, primitive.TopologyChangeTypeRemovedNode} {
				assert.Equal(t, change, client.answer(-1).(*message.TopologyChangeEvent).ChangeType)
			}
		}
	}
}
