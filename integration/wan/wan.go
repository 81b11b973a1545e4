// Package wan emulates a wide area network on one Linux machine, in user space: a network namespace for each site with one
// TUN device in it, between which this process routes the packets itself and holds each one for the one-way delay of its pair of
// sites. Whatever runs in a namespace sees real TCP over links with that delay, and its packets can be lost or cut off.
//
// Site k is the namespace NAMEk with the addresses 10.88.k.1, 10.88.k.2, …; the machine itself reaches all sites without delay.
// It needs root and /dev/net/tun.
package wan

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options says which network to make.
type Options struct {
	Name  string        // of the namespaces and devices, up to ten letters; two networks of one name cannot be
	RTT   []Link        // round trips between sites; pairs that are not named have none
	Sites int           // 1, 2, …; at most 250
	Off   time.Duration // taken off each one-way delay: what the machine itself needs
}

// Link is the round trip between two sites.
type Link struct {
	A, B int
	RTT  time.Duration
}

// addresses is how many addresses each site has.
const addresses = 8

// network is the first two octets of all addresses.
const network = "10.88"

// WAN is a network that runs. The caller must call Close.
type WAN struct {
	name    string
	made    []string // namespaces
	router  *router
	running sync.WaitGroup
}

// ErrInUse is returned by Start where another process has a network of that name, or one that was killed has left processes in it.
var ErrInUse = errors.New("in use")

// Start makes the sites and routes between them. What a network of this name has left that was killed is removed first. On an error
// nothing is left.
func Start(o Options) (*WAN, error) {
	w := &WAN{name: o.Name, router: newRouter(o)}
	if err := w.build(o); err != nil {
		return nil, errors.Join(fmt.Errorf("make a network: %w", err), w.Close())
	}
	w.router.start(&w.running)
	return w, nil
}

// Address returns the n-th address of a site, from 1.
func (w *WAN) Address(site, n int) string { return fmt.Sprintf("%s.%d.%d", network, site, n) }

// Namespace returns the name of a site's namespace, as `ip netns exec` takes it.
func (w *WAN) Namespace(site int) string { return namespace(w.name, site) }

// namespace returns the name of a site's namespace.
func namespace(name string, site int) string { return name + strconv.Itoa(site) }

// Cut drops all packets from one site to another, also those in flight, until Heal.
func (w *WAN) Cut(from, to int) { w.router.link(from, to).cut.Store(true) }

// Heal ends every Cut.
func (w *WAN) Heal() {
	for _, l := range w.router.links {
		l.cut.Store(false)
	}
}

// Lose drops that many packets of a million between two sites, in both directions.
func (w *WAN) Lose(a, b int, perMillion int64) {
	w.router.link(a, b).loss.Store(perMillion)
	w.router.link(b, a).loss.Store(perMillion)
}

// Lost returns how many packets Cut and Lose have dropped so far.
func (w *WAN) Lost() (n int64) {
	for _, l := range w.router.links {
		n += l.lost.Load()
	}
	return n
}

// Close removes everything. Programs that still run in the namespaces lose their network.
func (w *WAN) Close() error {
	var faults []error
	w.router.close()
	w.running.Wait()
	for _, name := range w.made {
		faults = append(faults, ip("netns", "del", name))
	}
	w.made = nil
	w.router.closeDevices()
	return errors.Join(faults...)
}

// build makes the namespaces and their devices; site 0 is the machine itself. Its device comes first: only one process at a time has
// it, so that namespaces of this name are nobody's, then.
func (w *WAN) build(o Options) error {
	for site := range o.Sites + 1 {
		t, err := openTun(namespace(o.Name, site))
		if err != nil {
			return err
		}
		w.router.devices = append(w.router.devices, t)
		inside, n := []string{}, 1
		if site > 0 {
			if err := w.move(t.name, site); err != nil {
				return err
			}
			inside, n = []string{"-n", w.Namespace(site)}, addresses
		}
		if err := w.address(inside, t.name, site, n); err != nil {
			return err
		}
	}
	return nil
}

// move makes a site's namespace and puts its device there.
func (w *WAN) move(device string, site int) error {
	name := w.Namespace(site)
	if err := removeStale(name); err != nil {
		return err
	}
	if err := ip("netns", "add", name); err != nil {
		return err
	}
	w.made = append(w.made, name)
	return errors.Join(ip("link", "set", "dev", device, "netns", name), ip("-n", name, "link", "set", "dev", "lo", "up"))
}

// removeStale removes a namespace that a killed network has left, if there is one. It does not end what still runs in there.
func removeStale(name string) error {
	pids, err := exec.Command("ip", "netns", "pids", name).Output() //nolint:gosec,noctx // our own words; it ends at once
	if err != nil {
		return nil // there is none
	}
	if len(pids) > 0 {
		return fmt.Errorf("namespace %s: %w by processes that a killed run has left; end them by `ip netns pids %s | xargs kill -9`", name, ErrInUse, name)
	}
	return ip("netns", "del", name)
}

// address gives a device its addresses. The first one makes the whole network reachable.
func (w *WAN) address(inside []string, device string, site, n int) error {
	for a := 1; a <= n; a++ {
		bits := "/32"
		if a == 1 {
			bits = "/16"
		}
		if err := ip(append(inside, "addr", "add", w.Address(site, a)+bits, "dev", device)...); err != nil {
			return err
		}
	}
	return ip(append(inside, "link", "set", "dev", device, "mtu", "1500", "txqueuelen", "20000", "up")...)
}

// ip runs iproute2.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput() //nolint:gosec,noctx // our own words; it ends at once
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// site returns the site of an address.
func site(address [4]byte) (int, bool) {
	first := netip.MustParseAddr(network + ".0.0").As4()
	return int(address[2]), address[0] == first[0] && address[1] == first[1]
}

// monotonic returns the clock of the links, in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return ts.Nano()
}
