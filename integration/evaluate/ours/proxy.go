package ours

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"music/integration/cassandra"
	"music/integration/child"
)

// Build builds the product of this tree, and returns the path of the program.
func Build(ctx context.Context) (string, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(run, "evaluate", "music")
	out, err := exec.CommandContext(ctx, "go", "build", "-C", filepath.Dir(run), "-o", program, "./cmd/music").CombinedOutput() //nolint:gosec // our own words
	if err != nil {
		return "", fmt.Errorf("build the product: %w\n%s", err, out)
	}
	return program, nil
}

// Commit returns the commit of the tree that Build builds, and whether the tree was changed since, but
// for the report that is being written.
func Commit() string {
	at, err := exec.Command("git", "describe", "--always").Output() //nolint:noctx // it ends at once
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(at))
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)docs/evaluation").Output() //nolint:noctx // likewise
	if err != nil || len(changed) > 0 {
		commit += "-dirty"
	}
	return commit
}

// ProxyOptions say which proxy to start. Program, Node and Listen are required.
type ProxyOptions struct {
	Program   string    // as Build returns it
	Node      string    // a contact point
	Listen    string    // address without port, where drivers are served at 9042, and other proxies at 9043
	Secret    string    // a file by which proxies know each other; none: this proxy is the only one
	Namespace string    // of the network that it lives in; none: that of this process
	Settings  []string  // further flags of `music proxy`
	Log       io.Writer // of what it says; none: nowhere. To be written from several goroutines where it is not a file
}

// Proxy is a process of the product. Who starts it calls Kill.
type Proxy struct{ *child.Process }

// isSetting reports whether a variable of the environment would be taken for a setting of the proxy: those of tests are none.
func isSetting(variable string) bool { return strings.HasPrefix(variable, "MUSIC_") }

// StartProxy starts one and returns when it serves drivers.
func StartProxy(ctx context.Context, o ProxyOptions) (*Proxy, error) {
	if err := o.free(ctx); err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	words := []string{
		o.Program, "proxy", "--contact-points", o.Node, "--listen", o.Listen + ":9042", "--metrics-listen", "", "--audit", "none",
	}
	if o.Namespace != "" {
		words = append([]string{"ip", "netns", "exec", o.Namespace}, words...)
	}
	if o.Secret != "" {
		words = append(words, "--peer-listen", o.Listen+":9043", "--peer-secret-file", o.Secret)
	}
	words = append(words, o.Settings...)
	cmd := exec.Command(words[0], words[1:]...) //nolint:gosec,noctx // our own words; it ends by Kill
	cmd.Stdout, cmd.Stderr = o.Log, o.Log
	cmd.Env = slices.DeleteFunc(os.Environ(), isSetting)
	p, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	ctx, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	if err := p.Ready(ctx, o.serves); err != nil {
		p.Kill()
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	return &Proxy{p}, nil
}

// free returns what keeps the proxy from its port. In a namespace nothing else listens that is not ours.
func (o ProxyOptions) free(ctx context.Context) error {
	if o.Namespace != "" {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen+":9042")
	if err != nil {
		return err
	}
	return l.Close()
}

// serves returns an error where no connection is taken.
func (o ProxyOptions) serves(ctx context.Context) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", o.Listen+":9042")
	if err != nil {
		return err
	}
	return c.Close()
}
