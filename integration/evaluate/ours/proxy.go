package ours

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"music/integration/cassandra"
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

// Proxy is a process of the product. Whoever starts it calls Kill.
type Proxy struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

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
	// With its parent's death it ends, too, however that comes; what the terminal sends to its parent does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Proxy{cmd: cmd, gone: make(chan struct{})}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	if err := listens(ctx, o.Listen+":9042"); err != nil {
		p.Kill()
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	return p, nil
}

// free tells what keeps the proxy from its port. In a namespace nothing else listens that is not ours.
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

// live starts the process and stays until it has ended, on one thread: the kernel takes the end of that for the parent's death.
func (p *Proxy) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // however it ends
		close(p.gone)
	}
}

// listens returns when a connection is taken.
func listens(ctx context.Context, address string) error {
	ctx, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	for tick := time.Tick(20 * time.Millisecond); ; {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Signal sends a signal, as SIGSTOP and SIGCONT for a pause.
func (p *Proxy) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process at once, and returns when it is gone.
func (p *Proxy) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.gone
}

// Pid is the number of the process.
func (p *Proxy) Pid() int { return p.cmd.Process.Pid }
