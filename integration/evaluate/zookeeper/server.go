package zookeeper

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"music/integration/cassandra"
	"music/integration/child"
)

// pom names the jars. go:embed works on package-level variables only.
//
//go:embed pom.xml
var pom []byte

// Jars is where the jars of ZooKeeper are, and the java that runs them.
type Jars struct{ Java, Lib string }

// libOf is where Fetch puts the jars.
func libOf(run string) string { return filepath.Join(run, "zookeeper", "lib") }

// Fetched reports whether Fetch has no more to do than to look for java.
func Fetched() bool {
	run, err := cassandra.DefaultRunDir()
	if err == nil {
		_, err = os.Stat(libOf(run))
	}
	return err == nil
}

// Fetch fetches the jars with Maven, once for each checkout.
func Fetch(ctx context.Context, log io.Writer) (Jars, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return Jars{}, err
	}
	d, err := cassandra.Fetch(ctx, run, log)
	if err != nil {
		return Jars{}, err
	}
	jars := Jars{Java: d.Java, Lib: libOf(run)}
	if Fetched() {
		return jars, nil
	}
	if err := os.MkdirAll(filepath.Dir(jars.Lib), 0o750); err != nil {
		return Jars{}, fmt.Errorf("fetch zookeeper: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(jars.Lib), "fetch-")
	if err != nil {
		return Jars{}, fmt.Errorf("fetch zookeeper: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	file := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(file, pom, 0o600); err != nil {
		return Jars{}, fmt.Errorf("fetch zookeeper: %w", err)
	}
	out, err := exec.CommandContext(ctx, "mvn", "-B", "-q", "-f", file, "dependency:copy-dependencies", //nolint:gosec // our own words
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(tmp, "lib")).CombinedOutput()
	if err != nil {
		return Jars{}, fmt.Errorf("fetch zookeeper: %w\n%s", err, out)
	}
	return jars, os.Rename(filepath.Join(tmp, "lib"), jars.Lib)
}

// clientPort is that of every server, on its own address.
const clientPort = "2181"

// Server is a ZooKeeper of its own, without others.
type Server struct {
	*child.Process
	Address string // host:port
}

// StartServer starts one on an address, with its files in dir, which it removes first. It returns when
// a client gets in. The caller ends it by Kill.
func StartServer(ctx context.Context, jars Jars, dir, address string, log io.Writer) (*Server, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o750)); err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	config := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=1000\ndataDir=%s\nclientPort=%s\nclientPortAddress=%s\nadmin.enableServer=false\nmaxClientCnxns=0\n", dir, clientPort, address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	cmd := exec.Command(jars.Java, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars.Lib+"/*", //nolint:gosec,noctx // it ends by Kill
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	s := &Server{Process: p, Address: net.JoinHostPort(address, clientPort)}
	if err := p.Ready(ctx, s.answers); err != nil {
		p.Kill()
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return s, nil
}

// answers reports whether a session can be had.
func (s *Server) answers(context.Context) error {
	c, _, err := zk.Connect([]string{s.Address}, 5*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer c.Close()
	_, _, err = c.Exists("/")
	return err
}
