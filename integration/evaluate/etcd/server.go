package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"music/integration/cassandra"
	"music/integration/child"
)

// Build builds the etcd that this module requires, and returns the path of the program. It is built
// once for each checkout, which takes minutes.
func Build(ctx context.Context) (string, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(run, "evaluate", "etcd")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	module := filepath.Join(filepath.Dir(run), "integration", "evaluate", "etcd")
	out, err := exec.CommandContext(ctx, "go", "build", "-C", module, "-o", program, "go.etcd.io/etcd/server/v3").CombinedOutput() //nolint:gosec // our own words
	if err != nil {
		return "", fmt.Errorf("build etcd: %w\n%s", err, out)
	}
	return program, nil
}

// Ports of a member, on its own address.
const clientPort, peerPort = ":2379", ":2380"

// ServerOptions say which member to start. All of a cluster have the same Members.
type ServerOptions struct {
	Program string   // as Build returns it
	Dir     string   // of this member; removed first
	Members []string // addresses, without port
	Index   int      // of this one among them
	Log     io.Writer
}

// Server is a member.
type Server struct {
	*child.Process
	Endpoint string // for clients
}

// StartServer starts a member; Ready says when it answers. The caller ends it by Kill.
func StartServer(o ServerOptions) (*Server, error) {
	if err := errors.Join(os.RemoveAll(o.Dir), os.MkdirAll(o.Dir, 0o700)); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	name := func(i int) string { return fmt.Sprintf("m%d", i+1) }
	var cluster []string
	for i, member := range o.Members {
		cluster = append(cluster, name(i)+"=http://"+member+peerPort)
	}
	mine := "http://" + o.Members[o.Index]
	cmd := exec.Command(o.Program, "--name", name(o.Index), "--data-dir", o.Dir, //nolint:gosec,noctx // our own words; it ends by Kill
		"--listen-client-urls", mine+clientPort, "--advertise-client-urls", mine+clientPort,
		"--listen-peer-urls", mine+peerPort, "--initial-advertise-peer-urls", mine+peerPort,
		"--initial-cluster", strings.Join(cluster, ","), "--log-level", "warn")
	cmd.Stdout, cmd.Stderr = o.Log, o.Log
	p, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return &Server{Process: p, Endpoint: o.Members[o.Index] + clientPort}, nil
}

// Ready returns when the cluster answers this member's clients.
func (s *Server) Ready(ctx context.Context) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}})
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer func() { _ = c.Close() }()
	return s.Process.Ready(ctx, func(ctx context.Context) error {
		_, err := c.Get(ctx, "ready")
		return err
	})
}
