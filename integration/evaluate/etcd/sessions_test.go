package etcd

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
)

// counting is a server that has every lock free and counts leases.
type counting struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	granted, revoked, gone atomic.Int64 // gone: the lease that has ended
}

func (s *counting) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if lease := r.Success[0].GetRequestPut().GetLease(); lease == s.gone.Load() {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	nobody := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}}}
	return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 2}, Succeeded: true, Responses: []*pb.ResponseOp{{}, nobody}}, nil
}

func (s *counting) DeleteRange(context.Context, *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (s *counting) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: s.granted.Add(1), TTL: r.TTL}, nil
}

func (s *counting) LeaseRevoke(context.Context, *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	s.revoked.Add(1)
	return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (s *counting) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: 10}); err != nil {
			return err
		}
	}
}

// A section costs no lease: one that was left is there for the next, and two at a time have one each.
func TestSectionsShareLeases(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, counts := grpc.NewServer(), new(counting)
	pb.RegisterKVServer(s, counts)
	pb.RegisterLeaseServer(s, counts)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	c, err := New(Options{Endpoints: []string{l.Addr().String()}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for range 3 {
		one, err := c.Enter(t.Context(), "k")
		require.NoError(t, err)
		two, free, err := c.TryEnter(t.Context(), "other")
		require.NoError(t, err)
		require.True(t, free)
		require.NoError(t, one.Leave(t.Context()))
		require.NoError(t, two.Leave(t.Context()))
	}
	assert.Equal(t, int64(2), counts.granted.Load())
	assert.Zero(t, counts.revoked.Load())

	counts.gone.Store(2) // the next to be used
	held, err := c.Enter(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, int64(2), counts.granted.Load(), "the other one is still there")
	require.NoError(t, held.Leave(t.Context()))
	require.ErrorIs(t, held.Leave(t.Context()), concurrency.ErrLockReleased)
	assert.Zero(t, counts.revoked.Load(), "to leave twice takes no session from another")
}
