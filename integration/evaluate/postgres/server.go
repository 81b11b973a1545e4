package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"

	"music/integration/child"
)

// ErrNone says that the machine has no PostgreSQL: `apt-get install postgresql`.
var ErrNone = errors.New("no postgres and initdb on the PATH, or no user to run them")

// Server is a PostgreSQL of this process.
type Server struct {
	*child.Process
	URL string
}

// StartServer makes a database below dir, which it removes first, and serves it at a socket there.
// The commit log is synced, as everywhere. The caller ends it by Kill.
func StartServer(ctx context.Context, dir string) (*Server, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil { //nolint:gosec // another user goes through it
		return nil, fmt.Errorf("postgres: %w", err)
	}
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, int(as.Uid), int(as.Gid))); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	initdb := exec.CommandContext(ctx, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync") //nolint:gosec // our own words
	initdb.Dir, initdb.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("postgres: initdb: %w\n%s", err, out)
	}
	cmd := exec.Command("postgres", "-D", data, "-k", data, "-c", "listen_addresses=", "-c", "max_connections=300") //nolint:gosec,noctx // our own words; it ends by Kill
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as}
	p, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &Server{Process: p, URL: "postgres:///postgres?user=postgres&host=" + url.QueryEscape(data)}
	if err := p.Ready(ctx, s.answers); err != nil {
		p.Kill()
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return s, nil
}

// answers asks for nothing.
func (s *Server) answers(ctx context.Context) error {
	c, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	return errors.Join(c.Ping(ctx), c.Close(ctx))
}

// unprivileged is whom PostgreSQL runs as, since it refuses to run as root: its own user, which its
// package makes, or nobody.
func unprivileged() (*syscall.Credential, error) {
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, ErrNone
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil && os.Geteuid() == 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, ErrNone
}
