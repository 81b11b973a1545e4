package ensemble_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/ensemble"
)

var long = flag.Bool("evaluate.long", false, "fetch ZooKeeper and build etcd where that has not been done")

// Each member of three can be made the leader, and the ensemble keeps what was written.
func TestLead(t *testing.T) {
	for name, k := range map[string]struct {
		has   bool
		kind  func(context.Context) (ensemble.Kind, error)
		write func(ctx context.Context, endpoint, key string) error
	}{
		"ZooKeeper": {ensemble.HasZooKeeper(), func(ctx context.Context) (ensemble.Kind, error) { return ensemble.ZooKeeper(ctx, t.Output()) }, create},
		"etcd":      {ensemble.HasEtcd(), ensemble.Etcd, put},
	} {
		t.Run(name, func(t *testing.T) {
			if !k.has && !*long {
				t.Skip("it is not at hand: -evaluate.long")
			}
			kind, err := k.kind(t.Context())
			require.NoError(t, err)
			dir := t.TempDir()
			all, err := kind.StartAll(t.Context(), 3, func(i int) ensemble.Member {
				return ensemble.Member{
					Members: []string{"127.0.41.1", "127.0.41.2", "127.0.41.3"}, Index: i, Dir: filepath.Join(dir, fmt.Sprint(i)), Fast: true,
				}
			})
			require.NoError(t, err)
			defer all.Kill()
			writes := 0
			for _, member := range []int{0, 2, 1} {
				require.NoError(t, all.Lead(t.Context(), member, func(ctx context.Context) error {
					writes++
					return k.write(ctx, all[member].Endpoint, fmt.Sprint("k", writes))
				}))
				at, err := all.Leader(t.Context())
				require.NoError(t, err)
				assert.Equal(t, member, at)
			}
			require.NoError(t, all.Lead(t.Context(), 1, nil), "who leads already is left alone")
		})
	}
}

// create writes to ZooKeeper.
func create(_ context.Context, endpoint, key string) error {
	c, _, err := zk.Connect([]string{endpoint}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Create("/"+key, nil, 0, zk.WorldACL(zk.PermAll))
	return err
}

// put writes to etcd, which answers an error for as long as nobody leads.
func put(ctx context.Context, endpoint, key string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+endpoint+"/v3/kv/put", strings.NewReader(`{"key": "a2V5`+fmt.Sprintf("%x", key)+`"}`))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("put: %s", answer.Status)
	}
	_ = answer.Body.Close()
	return err
}
