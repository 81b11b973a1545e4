package ensemble

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"music/integration/cassandra"
)

// pom names the jars. go:embed works on package-level variables only.
//
//go:embed zookeeper.xml
var pom []byte

// libOf is where ZooKeeper's jars are put.
func libOf(run string) string { return filepath.Join(run, "zookeeper", "lib") }

// HasZooKeeper reports whether ZooKeeper has no more to do than to look for java.
func HasZooKeeper() bool {
	run, err := cassandra.DefaultRunDir()
	if err == nil {
		_, err = os.Stat(libOf(run))
	}
	return err == nil
}

// ZooKeeper fetches the jars with Maven, once for each checkout.
func ZooKeeper(ctx context.Context, log io.Writer) (Kind, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return Kind{}, err
	}
	d, err := cassandra.Fetch(ctx, run, log)
	if err != nil {
		return Kind{}, err
	}
	z := Kind{&zookeeper{java: d.Java, lib: libOf(run)}}
	if HasZooKeeper() {
		return z, nil
	}
	if err := os.MkdirAll(filepath.Dir(libOf(run)), 0o750); err != nil {
		return Kind{}, fmt.Errorf("fetch zookeeper: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(libOf(run)), "fetch-")
	if err != nil {
		return Kind{}, fmt.Errorf("fetch zookeeper: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := cassandra.CopyJars(ctx, pom, tmp); err != nil {
		return Kind{}, fmt.Errorf("fetch zookeeper: %w", err)
	}
	return z, os.Rename(filepath.Join(tmp, "lib"), libOf(run))
}

// clientPort is that of every server, on its own address.
const clientPort = "2181"

// heap is what ZooKeeper's own scripts give a server. It keeps the last 500 proposals, each as bytes and as a request: those of 256 kB
// alone are 250 MB.
const heap = "-Xmx1000m"

// zookeeper is where the jars are, and the java that runs them.
type zookeeper struct{ java, lib string }

// start starts a server.
func (z *zookeeper) start(m Member) (*Server, error) {
	if err := m.prepare(); err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	config := filepath.Join(m.Dir, "zoo.cfg")
	for path, text := range map[string]string{config: m.zooCfg(), filepath.Join(m.Dir, "myid"): fmt.Sprintln(m.Index + 1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("zookeeper: %w", err)
		}
	}
	words := []string{z.java, heap, "-XX:+UseSerialGC"}
	if m.Fast {
		words = append(words, "-XX:TieredStopAtLevel=1")
	}
	p, err := m.start(append(words, "-cp", z.lib+"/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)...)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return &Server{Process: p, Endpoint: join(m.address(), clientPort), m: m, kind: z}, nil
}

// version is what the jar is called.
func (z *zookeeper) version(context.Context) string {
	jars, _ := filepath.Glob(filepath.Join(z.lib, "zookeeper-[0-9]*.jar")) // the pattern is ours
	for _, jar := range jars {
		return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jar), "zookeeper-"), ".jar")
	}
	return ""
}

// zooCfg is a member's configuration. What is written is synced, as it is by default.
func (m Member) zooCfg() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tickTime=1000\ninitLimit=60\nsyncLimit=10\ndataDir=%s\nclientPort=%s\nclientPortAddress=%s\n", m.Dir, clientPort, m.address())
	b.WriteString("admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n")
	if len(m.Members) > 1 {
		for i, member := range m.Members {
			fmt.Fprintf(&b, "server.%d=%s:2888:3888\n", i+1, member)
		}
	}
	return b.String()
}

// answers returns nil if the server serves, alone or in a quorum.
func (*zookeeper) answers(ctx context.Context, endpoint string) error {
	_, err := mode(ctx, endpoint)
	return err
}

// leads implements kind.
func (*zookeeper) leads(ctx context.Context, endpoint string) (bool, error) {
	m, err := mode(ctx, endpoint)
	return m == "leader", err
}

// mode returns what a server is, in its own word.
func mode(ctx context.Context, endpoint string) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("srvr")); err != nil {
		return "", err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(text), "Mode: ")
	word, _, _ := strings.Cut(rest, "\n")
	if !found {
		return "", fmt.Errorf("zookeeper: %s", text)
	}
	return word, nil
}
