package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Why a value is refused that is fine as a text.
var (
	errMissing    = errors.New("not set")
	errAddress    = errors.New("not an address to listen on")
	errHost       = errors.New("not an IP address or host name")
	errEverywhere = errors.New("stands for every address, which no driver can connect to")
	errAdvertise  = errors.New("not set, and listen names every address: say at which one others find this proxy")
	errSameListen = errors.New("the same as listen")
	errNoMap      = errors.New("not a replication map")
	errNoUser     = errors.New("not set, but a password is")
	errNoPassword = errors.New("not set, but a username is")
)

// fault is one setting with a value that it cannot have.
type fault struct {
	setting, value, allowed string
	why                     error
}

// newFault keeps a secret value out of the fault that it describes.
func newFault(name string, f field, value string, why error) fault {
	if f.secret {
		value = Secret(value).String()
	}
	return fault{setting: name, value: value, allowed: f.allowed, why: why}
}

// Error names the setting, its value, what is wrong with it and what is allowed, on one line.
func (f fault) Error() string {
	return fmt.Sprintf("%s %q: %v; allowed: %s", f.setting, f.value, f.why, f.allowed)
}

// Unwrap returns what is wrong with the value.
func (f fault) Unwrap() error { return f.why }

// Validate returns nil for a configuration that a proxy can start with, and else an error that
// tells of every fault, one a line: the setting, its value and what is allowed.
func (c Config) Validate() error {
	return errors.Join(c.faultsBut(nil)...)
}

// faultsBut returns the faults of all settings but those of the given names.
func (c Config) faultsBut(skip map[string]bool) []error {
	var faults []error
	for _, s := range settings() {
		f := s.field(&c)
		err := f.check()
		if err == nil && s.check != nil {
			err = s.check(&c)
		}
		if err != nil && !skip[s.name] {
			faults = append(faults, newFault(s.name, f, f.get(), err))
		}
	}
	return faults
}

// checkContactPoints asks for at least one node, each an address that can be dialled.
func checkContactPoints(c *Config) error {
	if len(c.Cassandra.ContactPoints) == 0 {
		return errMissing
	}
	for _, point := range c.Cassandra.ContactPoints {
		host, port := splitPoint(point)
		if err := checkHost(host); err != nil {
			return fmt.Errorf("%q: %w", point, err)
		}
		if n, err := parsePort(port); port != "" && (err != nil || n == 0) {
			return fmt.Errorf("%q: the port is %w", point, errRange)
		}
	}
	return nil
}

// checkUsername refuses a password without a username.
func checkUsername(c *Config) error {
	if c.Cassandra.Username == "" && (c.Cassandra.Password != "" || c.Cassandra.PasswordFile != "") {
		return errNoUser
	}
	return nil
}

// checkPassword refuses a username without a password: an empty one is a forgotten one.
func checkPassword(c *Config) error {
	if c.Cassandra.Username != "" && c.Cassandra.Password == "" && c.Cassandra.PasswordFile == "" {
		return errNoPassword
	}
	return nil
}

// checkListen asks for an address to serve drivers on.
func checkListen(c *Config) error { return checkBind(c.Listen.Address) }

// checkAdvertise requires an address that drivers can dial if listen does not give one.
func checkAdvertise(c *Config) error {
	if c.Listen.Advertise != "" {
		return checkHost(c.Listen.Advertise)
	}
	host, _, err := net.SplitHostPort(c.Listen.Address)
	if err == nil && unspecified(host) {
		return errAdvertise
	}
	return nil
}

// checkMetrics asks for an address of its own, or none.
func checkMetrics(c *Config) error {
	if c.Listen.Metrics == "" {
		return nil
	}
	if c.Listen.Metrics == c.Listen.Address && !strings.HasSuffix(c.Listen.Address, ":0") {
		return errSameListen
	}
	return checkBind(c.Listen.Metrics)
}

// checkReplication catches what was meant as something else; whether the classes and data centres
// exist only the cluster can tell.
func checkReplication(c *Config) error {
	r := strings.TrimSpace(c.Music.Replication)
	if r == "" || strings.HasPrefix(r, "{") && strings.HasSuffix(r, "}") && strings.Contains(r, "'class'") {
		return nil
	}
	return errNoMap
}

// checkBind accepts host:port with an empty host and port 0 too.
func checkBind(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errAddress
	}
	if _, err := parsePort(port); err != nil {
		return errAddress
	}
	if !unspecified(host) && checkHost(host) != nil {
		return errAddress
	}
	return nil
}

// checkHost accepts what a client can connect to: an address or a name, without a port.
func checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.IsUnspecified() {
			return errEverywhere
		}
		return nil
	}
	if !hostName(host) {
		return errHost
	}
	return nil
}

// hostName reports whether a text can be a name of a host. One whose last label is a number is an
// address with a mistake in it.
func hostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notInHostName) {
			return false
		}
	}
	_, err := strconv.Atoi(labels[len(labels)-1])
	return err != nil
}

// notInHostName tells the runes of which names of hosts are not made; underscores occur in
// practice.
func notInHostName(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	digit := '0' <= r && r <= '9'
	return !letter && !digit && r != '-' && r != '_'
}

// parsePort reads a port by its number; 0 is one.
func parsePort(s string) (uint64, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("parse a port: %w", err)
	}
	return port, nil
}
