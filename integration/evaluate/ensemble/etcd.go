package ensemble

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"music/integration/cassandra"
)

// etcdModule returns the directory of the module of etcd's client, which requires more than all of the rest together.
func etcdModule(run string) string {
	return filepath.Join(filepath.Dir(run), "integration", "evaluate", "etcd")
}

// built builds a package of etcd's module, unless it has been built, and returns the program. What is of this tree is built each
// time.
func built(ctx context.Context, name, of string, again bool) (string, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(run, "evaluate", name)
	if _, err := os.Stat(program); err == nil && !again {
		return program, nil
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-C", etcdModule(run), "-o", program, of).CombinedOutput() //nolint:gosec // our own words
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return program, nil
}

// HasEtcd reports whether Etcd has no more to do.
func HasEtcd() bool {
	run, err := cassandra.DefaultRunDir()
	if err == nil {
		_, err = os.Stat(filepath.Join(run, "evaluate", "etcd"))
	}
	return err == nil
}

// Etcd builds the etcd that its module requires, once for each checkout, which takes minutes.
func Etcd(ctx context.Context) (Kind, error) {
	program, err := built(ctx, "etcd", "go.etcd.io/etcd/server/v3", false)
	return Kind{&etcd{program}}, err
}

// EtcdClient builds the client that speaks to package remote, and returns the program.
func EtcdClient(ctx context.Context) (string, error) {
	return built(ctx, "etcd-client", "./client", true)
}

// Ports of a member, on its own address.
const etcdPort, etcdPeerPort = "2379", "2380"

// etcd is the program.
type etcd struct{ program string }

// start starts a server.
func (e *etcd) start(m Member) (*Server, error) {
	if err := m.prepare(); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	name := func(i int) string { return fmt.Sprintf("m%d", i+1) }
	var cluster []string
	for i, member := range m.Members {
		cluster = append(cluster, name(i)+"=http://"+join(member, etcdPeerPort))
	}
	client, peer := "http://"+join(m.address(), etcdPort), "http://"+join(m.address(), etcdPeerPort)
	p, err := m.start(e.program, "--name", name(m.Index), "--data-dir", m.Dir,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", strings.Join(cluster, ","), "--log-level", "warn")
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return &Server{Process: p, Endpoint: join(m.address(), etcdPort), m: m, kind: e}, nil
}

// version asks the program.
func (e *etcd) version(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, e.program, "--version").Output() //nolint:gosec // built by us; it is unknown otherwise
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "etcd Version: ")
}

// answers returns nil if the member is healthy, which it is only with a leader.
func (*etcd) answers(ctx context.Context, endpoint string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint+"/health", http.NoBody)
	if err != nil {
		return err
	}
	text, err := body(r)
	if err == nil && !strings.Contains(text, `"health":"true"`) {
		err = fmt.Errorf("health: %s", text)
	}
	return err
}

// leads compares the member with the leader it knows.
func (*etcd) leads(ctx context.Context, endpoint string) (bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+endpoint+"/v3/maintenance/status", strings.NewReader("{}"))
	if err != nil {
		return false, err
	}
	text, err := body(r)
	if err != nil {
		return false, err
	}
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = json.Unmarshal([]byte(text), &status)
	return status.Leader == status.Header.Member, err
}

// body sends a request and returns the body of the answer.
func body(r *http.Request) (string, error) {
	answer, err := http.DefaultClient.Do(r) //nolint:gosec // to our own server
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
