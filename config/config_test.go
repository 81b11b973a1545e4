package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// valid returns the smallest configuration that a proxy starts with.
func valid() config.Config {
	c := config.Default()
	c.Cassandra.ContactPoints = []string{"10.0.0.1"}
	return c
}

// load runs Load as a command line and an environment would.
func load(t *testing.T, args, environ []string) (config.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("music", pflag.ContinueOnError)
	config.AddFlags(flags)
	require.NoError(t, flags.Parse(args))
	return config.Load(flags, environ)
}

// write puts a text into a file of its own and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestDefaultLacksOnlyContactPoints(t *testing.T) {
	assert.EqualError(t, config.Default().Validate(),
		`contact-points "": not set; allowed: one or more of host, host:port, [IPv6]:port`)
	assert.NoError(t, valid().Validate())
}

func TestLoadDefaults(t *testing.T) {
	c, err := load(t, []string{"--contact-points=10.0.0.1"}, nil)
	require.NoError(t, err)
	assert.Equal(t, valid(), c)
}

func TestPrecedence(t *testing.T) {
	path := write(t, "contact-points: [file]\nport: 1\nlocal-dc: file\nlog-level: warn\nmetrics-listen: ''\nlocks: off\n")
	environ := []string{"MUSIC_CONFIG=" + path, "MUSIC_PORT=2", "MUSIC_LOCAL_DC=env", "MUSIC_CONTACT_POINTS=env", "HOME=/"}

	c, err := load(t, []string{"--contact-points=a,b", "--contact-points", "c", "--port=3"}, environ)

	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, c.Cassandra.ContactPoints, "flag over environment and file; repeated flags add up")
	assert.Equal(t, 3, c.Cassandra.Port, "flag over environment and file")
	assert.Equal(t, "env", c.Cassandra.LocalDC, "environment over file")
	assert.Equal(t, "warn", c.Log.Level, "file over default")
	assert.Equal(t, "auto", c.Log.Format, "default")
	assert.Empty(t, c.Listen.Metrics, "an empty text is a value")
	assert.False(t, c.Music.Locks)
}

func TestFlagNamesTheFileBeforeTheEnvironment(t *testing.T) {
	path := write(t, "contact-points: [flag]")
	c, err := load(t, []string{"--config", path}, []string{"MUSIC_CONFIG=/no/such/file"})
	require.NoError(t, err)
	assert.Equal(t, []string{"flag"}, c.Cassandra.ContactPoints)
}

func TestEverySettingFromTheFile(t *testing.T) {
	secret := write(t, "a secret that nobody guesses\n")
	path := write(t, strings.ReplaceAll(`
contact-points: ["10.0.0.1", "10.0.0.2:9043"]
port: 9142
username: music
password: "0123"
local-dc: dc1
connect-timeout: 1s
cassandra-tls: on
cassandra-tls-ca: node-ca.pem
cassandra-tls-cert: role.pem
cassandra-tls-key: role-key.pem
cassandra-tls-verify-host: off
listen: 0.0.0.0:9042
advertise: 10.0.0.7
metrics-listen: 10.0.0.7:9044
tls-cert: proxy.pem
tls-key: proxy-key.pem
tls-client-ca: clients.pem
peer-listen: 0.0.0.0:9043
peer-advertise: 10.0.0.7
peer-secret-file: SECRET
peer-tls-cert: cert.pem
peer-tls-key: key.pem
peer-tls-ca: ca.pem
locks: on
music-replication: "{'class': 'NetworkTopologyStrategy', 'dc1': 3}"
session-lease: 5s
client-lease: 1m
max-wait: 250ms
lock-commit: quorum
retain: 0s
critical: ["bank.*", "shop.orders"]
expect-proxies: 3
max-connections: 20
max-frame-size: 1MiB
max-label-size: 100
max-statement-size: 2KiB
max-prepared-size: 3MiB
max-prepared-per-connection: 1MiB
max-waiters-per-key: 4
max-waits-per-connection: 5
max-message-memory: 1GiB
message-timeout: 7s
handshake-timeout: 3s
backend-timeout: 20s
shutdown-timeout: 0s
log-level: trace
log-format: text
audit: refused
audit-file: /var/log/audit
`, "SECRET", secret))
	want := config.Config{
		Cassandra: config.Cassandra{
			ContactPoints: []string{"10.0.0.1", "10.0.0.2:9043"},
			Port:          9142, Username: "music", Password: "0123", LocalDC: "dc1", ConnectTimeout: time.Second,
			TLS: true, TLSCA: "node-ca.pem", TLSCert: "role.pem", TLSKey: "role-key.pem",
		},
		Listen: config.Listen{
			Address: "0.0.0.0:9042", Advertise: "10.0.0.7", Metrics: "10.0.0.7:9044", MetricsAsked: true,
			TLSCert: "proxy.pem", TLSKey: "proxy-key.pem", TLSClientCA: "clients.pem",
		},
		Peers: config.Peers{
			Listen: "0.0.0.0:9043", Advertise: "10.0.0.7", Secret: "a secret that nobody guesses", SecretFile: secret,
			TLSCert: "cert.pem", TLSKey: "key.pem", TLSCA: "ca.pem",
		},
		Music: config.Music{
			Locks: true, Replication: "{'class': 'NetworkTopologyStrategy', 'dc1': 3}",
			SessionLease: 5 * time.Second, ClientLease: time.Minute, MaxWait: 250 * time.Millisecond, LockCommit: "quorum", Critical: []string{"bank.*", "shop.orders"},
			ExpectProxies: 3,
		},
		Limits: config.Limits{
			MaxConnections: 20, MaxFrameSize: 1 << 20, Label: 100, Statement: 2 << 10, Prepared: 3 << 20, PreparedEach: 1 << 20, Waiters: 4, Waits: 5,
			Messages: 1 << 30, MessageTimeout: 7 * time.Second,
			HandshakeTimeout: 3 * time.Second, BackendTimeout: 20 * time.Second,
		},
		Log: config.Log{Level: "trace", Format: "text", Audit: "refused", AuditFile: "/var/log/audit"},
	}
	c, err := load(t, []string{"--config", path}, nil)
	require.NoError(t, err)
	assert.Equal(t, want, c)
}

func TestKeyWithoutValueLeavesTheDefault(t *testing.T) {
	c, err := load(t, []string{"--config", write(t, "contact-points: [10.0.0.1]\nport:\n")}, nil)
	require.NoError(t, err)
	assert.Equal(t, valid(), c)
}

func TestPasswordFile(t *testing.T) {
	path := write(t, "hunter2\r\n")
	c, err := load(t, []string{"--contact-points=a", "--username=u", "--password-file", path}, nil)
	require.NoError(t, err)
	assert.Equal(t, config.Secret("hunter2"), c.Cassandra.Password)
	assert.NoError(t, c.Validate(), "what Load accepts, Validate accepts")
}

func TestKubernetesServiceLinksAreNoSettings(t *testing.T) {
	c, err := load(t, []string{"--contact-points=10.0.0.1"}, []string{
		"MUSIC_PORT=tcp://10.96.0.1:9042",
		"MUSIC_SERVICE_HOST=10.96.0.1",
		"MUSIC_SERVICE_PORT=9042",
		"MUSIC_SERVICE_PORT_CQL=9042",
		"MUSIC_PORT_9042_TCP=tcp://10.96.0.1:9042",
		"MUSIC_PORT_9042_TCP_PROTO=tcp",
		"MUSIC_PROXY_PORT=tcp://10.96.0.2:9042",
		"MUSIC_PROXY_SERVICE_HOST=10.96.0.2",
	})
	require.NoError(t, err)
	assert.Equal(t, valid(), c)
}

func TestAddresses(t *testing.T) {
	c := config.Cassandra{Port: 9042, ContactPoints: []string{"a", "b:1", "::1", "[::1]:2", "10.0.0.1"}}
	assert.Equal(t, []string{"a:9042", "b:1", "[::1]:9042", "[::1]:2", "10.0.0.1:9042"}, c.Addresses())
}

func TestAdvertiseHost(t *testing.T) {
	cases := map[config.Listen]string{
		{Address: "10.0.0.7:9042"}:                         "10.0.0.7",
		{Address: "0.0.0.0:9042", Advertise: "10.0.0.7"}:   "10.0.0.7",
		{Address: "10.0.0.7:9042", Advertise: "192.0.2.1"}: "192.0.2.1",
		{Address: "[::1]:9042"}:                            "::1",
		{Address: "[::]:9042"}:                             "",
		{Address: ":9042"}:                                 "",
		{Address: "nonsense"}:                              "",
	}
	for listen, want := range cases {
		assert.Equal(t, want, listen.AdvertiseHost(), "%+v", listen)
	}
}

func TestSecretsStaySecret(t *testing.T) {
	c := valid()
	c.Cassandra.Username = "music"
	c.Cassandra.Password = "hunter2"
	encoded, err := json.Marshal(c)
	require.NoError(t, err)

	shown := string(encoded) + c.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		shown += fmt.Sprintf(verb, c) + fmt.Sprintf(verb, c.Cassandra.Password)
	}

	assert.NotContains(t, shown, "hunter2")
	assert.NotContains(t, shown, fmt.Sprintf("%x", "hunter2"))
	assert.Contains(t, c.String(), "password: ***\n")
	assert.Contains(t, valid().String(), "password: \n", "none is not shown as one")
	assert.Equal(t, "hunter2", string(c.Cassandra.Password))
}

func TestFlagsKeepTheSecret(t *testing.T) {
	flags := pflag.NewFlagSet("music", pflag.ContinueOnError)
	config.AddFlags(flags)
	require.NoError(t, flags.Parse([]string{"--password=hunter2"}))
	assert.Equal(t, "***", flags.Lookup("password").Value.String())
	assert.NotContains(t, flags.FlagUsages(), "hunter2")
}

func TestStringTellsEverySetting(t *testing.T) {
	flags := pflag.NewFlagSet("music", pflag.ContinueOnError)
	config.AddFlags(flags)
	told := "\nconfig: \n" + config.Default().String()
	flags.VisitAll(func(f *pflag.Flag) {
		assert.Contains(t, told, "\n"+f.Name+": "+f.Value.String())
	})
}

func TestSizeText(t *testing.T) {
	cases := map[config.Size]string{0: "0", 4096: "4KiB", 4097: "4097", 16 << 20: "16MiB", 3 << 30: "3GiB", 1536 << 10: "1536KiB"}
	for size, want := range cases {
		assert.Equal(t, want, size.String())
	}
}

// Only an address that was given is asked for: a default that is taken must not keep the proxy from serving.
func TestMetricsThatWereAskedFor(t *testing.T) {
	for arg, want := range map[string]bool{"--port=9042": false, "--metrics-listen=127.0.0.1:9044": true, "--metrics-listen=": false} {
		c, err := load(t, []string{"--contact-points=a", arg}, nil)
		require.NoError(t, err)
		assert.Equal(t, want, c.Listen.MetricsAsked, arg)
	}
}
