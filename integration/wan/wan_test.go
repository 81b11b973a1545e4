package wan

import (
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// skipUnlessAble skips the test if this process may not make networks.
func skipUnlessAble(t *testing.T) {
	t.Helper()
	_, noIP := exec.LookPath("ip")
	if _, err := os.Stat("/dev/net/tun"); err != nil || os.Geteuid() != 0 || noIP != nil {
		t.Skip("NO EMULATED NETWORK: it needs root, /dev/net/tun and iproute2")
	}
}

// startOrSkip makes a network of three sites, or skips the test if this process may not.
func startOrSkip(t *testing.T) *WAN {
	t.Helper()
	skipUnlessAble(t)
	w, err := Start(Options{Name: "wantest", Sites: 3, RTT: []Link{{1, 2, 40 * time.Millisecond}, {1, 3, 10 * time.Millisecond}}})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, w.Close())
	})
	return w
}

// echo answers every byte, at an address inside a site.
func echo(t *testing.T, w *WAN, site int) string {
	t.Helper()
	address := w.Address(site, 1) + ":7"
	var l net.Listener
	err := Inside(w.Namespace(site), func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		return err
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return address
}

// roundTrip returns the median of several round trips.
func roundTrip(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	var all []time.Duration
	for range 15 {
		began := time.Now()
		_, err := c.Write([]byte{1})
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// A round trip between two sites takes at least as long as was asked for.
func TestSitesAreAsFarAsSaid(t *testing.T) {
	w := startOrSkip(t)
	far, near := echo(t, w, 2), echo(t, w, 3)
	for address, want := range map[string]time.Duration{far: 40 * time.Millisecond, near: 10 * time.Millisecond} {
		c, err := w.Dialer(1).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		got := roundTrip(t, c)
		t.Logf("%s: %v", address, got)
		if got < want { // never less; how much more depends on the machine
			assert.Fail(t, "nearer than it should be", "%s, %v: %v", address, want, got)
		}
	}
}

// Nothing passes a cut, and everything passes after it is healed.
func TestCutOffAndBack(t *testing.T) {
	w := startOrSkip(t)
	c, err := w.Dialer(1).DialContext(t.Context(), "tcp", echo(t, w, 3))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	roundTrip(t, c)
	w.Cut(3, 1)
	_, _ = c.Write([]byte{1})
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	n, err := c.Read(make([]byte, 1))
	assert.Error(t, err, "%d bytes came through a cut", n)
	w.Heal()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err = io.ReadFull(c, make([]byte, 1))
	assert.NoError(t, err, "TCP did not go on")
}

// What a killed network has left is removed, unless something runs in there: then the error says what to type.
func TestWhatAKilledNetworkHasLeft(t *testing.T) {
	skipUnlessAble(t)
	const name = "wanleft1"
	require.NoError(t, ip("netns", "add", name))
	t.Cleanup(func() { _ = ip("netns", "del", name) })
	left := exec.CommandContext(t.Context(), "ip", "netns", "exec", name, "sh", "-c", "echo here; cat")
	in, err := left.StdinPipe()
	require.NoError(t, err)
	out, err := left.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, left.Start())
	_, err = io.ReadFull(out, make([]byte, len("here\n")))
	require.NoError(t, err)
	err = removeStale(name)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "`ip netns pids wanleft1 | xargs kill -9`")
	require.NoError(t, in.Close())
	require.NoError(t, left.Wait())
	device, err := openTun(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = device.file.Close() })
	w := &WAN{name: "wanleft"}
	require.NoError(t, w.move(device.name, 1), "in its place")
	require.Equal(t, []string{name}, w.made)
}

// A device that another process has is told from one that cannot be made.
func TestADeviceIsNotSharedByTwo(t *testing.T) {
	skipUnlessAble(t)
	first, err := openTun("wanleft0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.file.Close() })
	_, err = openTun("wanleft0")
	require.ErrorIs(t, err, ErrInUse)
	_, err = openTun("a name that is too long for a device")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrInUse)
}
