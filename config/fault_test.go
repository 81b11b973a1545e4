package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

func TestValidateRefuses(t *testing.T) {
	long := 24 * time.Hour
	cases := []struct {
		want  string // how the one fault begins
		spoil func(*config.Config)
	}{
		{`contact-points "": not set`, func(c *config.Config) { c.Cassandra.ContactPoints = nil }},
		{`contact-points "10.0.0.256": "10.0.0.256": not an IP`, func(c *config.Config) { c.Cassandra.ContactPoints = []string{"10.0.0.256"} }},
		{`contact-points "a,b c": "b c": not an IP`, func(c *config.Config) { c.Cassandra.ContactPoints = []string{"a", "b c"} }},
		{`contact-points "0.0.0.0": "0.0.0.0": stands for every`, func(c *config.Config) { c.Cassandra.ContactPoints = []string{"0.0.0.0"} }},
		{`contact-points "a:0": "a:0": the port`, func(c *config.Config) { c.Cassandra.ContactPoints = []string{"a:0"} }},
		{`contact-points "a:x": "a:x": the port`, func(c *config.Config) { c.Cassandra.ContactPoints = []string{"a:x"} }},
		{`port "0": out of range; allowed: 1 to 65535`, func(c *config.Config) { c.Cassandra.Port = 0 }},
		{`port "65536": out of range`, func(c *config.Config) { c.Cassandra.Port = 65536 }},
		{`username "": not set, but a password`, func(c *config.Config) { c.Cassandra.Password = "p" }},
		{`password "": not set, but a username`, func(c *config.Config) { c.Cassandra.Username = "u" }},
		{`connect-timeout "0s": out of range; allowed: 100ms to 1m`, func(c *config.Config) { c.Cassandra.ConnectTimeout = 0 }},
		{`cassandra-tls-ca "ca.pem": set, but cassandra-tls is off`, func(c *config.Config) { c.Cassandra.TLSCA = "ca.pem" }},
		{`tls-client-ca "ca.pem": set without tls-cert`, func(c *config.Config) { c.Listen.TLSClientCA = "ca.pem" }},
		{`listen "9042": not an address`, func(c *config.Config) { c.Listen.Address = "9042" }},
		{`listen "a:65536": not an address`, func(c *config.Config) { c.Listen.Address = "a:65536" }},
		{`listen "a b:1": not an address`, func(c *config.Config) { c.Listen.Address = "a b:1" }},
		{`advertise "": not set, and listen names`, func(c *config.Config) { c.Listen.Address = "0.0.0.0:9042" }},
		{`advertise "": not set, and listen names`, func(c *config.Config) { c.Listen.Address = "[::]:9042" }},
		{`advertise "": not set, and listen names`, func(c *config.Config) { c.Listen.Address = ":9042" }},
		{`advertise "::": stands for every`, func(c *config.Config) { c.Listen.Advertise = "::" }},
		{`advertise "10.0.0.7:9042": not an IP`, func(c *config.Config) { c.Listen.Advertise = "10.0.0.7:9042" }},
		{`metrics-listen "x": not an address`, func(c *config.Config) { c.Listen.Metrics = "x" }},
		{`metrics-listen "127.0.0.1:9042": the same as`, func(c *config.Config) { c.Listen.Metrics = c.Listen.Address }},
		{`peer-listen "9043": not an address`, func(c *config.Config) { c.Peers.Listen = "9043" }},
		{`peer-listen "10.0.0.7:9043": not on loopback`, func(c *config.Config) { c.Peers.Listen = "10.0.0.7:9043" }},
		{`peer-listen "proxy-1:9043": not on loopback`, func(c *config.Config) { c.Peers.Listen = "proxy-1:9043" }},
		{`peer-advertise "": not set, and listen names`, func(c *config.Config) { c.Peers.Listen, c.Peers.Secret = ":9043", secretOfPeers }},
		{`peer-advertise "10.0.0.7:9043": not an IP`, func(c *config.Config) { c.Peers.Advertise = "10.0.0.7:9043" }},
		{`peer-secret-file "": the secret has fewer than 16 bytes`, func(c *config.Config) { c.Peers.Secret = "swordfish" }},
		{`music-replication "3": not a replication map`, func(c *config.Config) { c.Music.Replication = "3" }},
		{`session-lease "24h": out of range`, func(c *config.Config) { c.Music.SessionLease = long }},
		{`client-lease "24h": out of range; allowed: 1s to 1h`, func(c *config.Config) { c.Music.ClientLease = long }},
		{`max-wait "0s": out of range; allowed: 100ms to 1m`, func(c *config.Config) { c.Music.MaxWait = 0 }},
		{`retain "11s": out of range`, func(c *config.Config) { c.Music.Retain = 11 * time.Second }},
		{`critical "bank.*,accounts": not keyspace.table`, func(c *config.Config) { c.Music.Critical = []string{"bank.*", "accounts"} }},
		{`critical "bank.*,system_of_record.orders": a keyspace with a name like those of Cassandra`, func(c *config.Config) { c.Music.Critical = []string{"bank.*", "system_of_record.orders"} }},
		{`critical "bank.a-b": not keyspace.table`, func(c *config.Config) { c.Music.Critical = []string{"bank.a-b"} }},
		{`expect-proxies "0": out of range; allowed: 1 to 10000`, func(c *config.Config) { c.Music.ExpectProxies = 0 }},
		{`max-connections "0": out of range`, func(c *config.Config) { c.Limits.MaxConnections = 0 }},
		{`max-frame-size "16": out of range; allowed: 4KiB to 256MiB`, func(c *config.Config) { c.Limits.MaxFrameSize = 16 }},
		{`handshake-timeout "24h": out of range`, func(c *config.Config) { c.Limits.HandshakeTimeout = long }},
		{`shutdown-timeout "24h": out of range`, func(c *config.Config) { c.Limits.ShutdownTimeout = long }},
		{`log-level "loud": not a known value; allowed: trace, debug, info, warn, error`, func(c *config.Config) { c.Log.Level = "loud" }},
		{`log-format "xml": not a known value; allowed: auto, json, text`, func(c *config.Config) { c.Log.Format = "xml" }},
	}
	for _, tc := range cases {
		t.Run(tc.want, func(t *testing.T) {
			c := valid()
			tc.spoil(&c)
			err := c.Validate()
			require.Error(t, err)
			assert.True(t, strings.HasPrefix(err.Error(), tc.want), "got: %v", err)
			assert.NotContains(t, err.Error(), "\n", "one fault, one line")
		})
	}
}

// secretOfPeers is long enough.
const secretOfPeers = "a secret that nobody guesses"

// Half of what TLS needs is no TLS: each part that is there is told of.
func TestValidateRefusesHalfOfTLS(t *testing.T) {
	c := valid()
	c.Peers.TLSCert, c.Peers.TLSKey = "cert.pem", "key.pem"
	err := c.Validate()
	require.Error(t, err)
	for _, setting := range []string{"peer-tls-cert", "peer-tls-key", "peer-tls-ca"} {
		assert.Contains(t, err.Error(), setting)
	}
}

// A file of TLS that nobody would read, or half of what it needs, is told of: the connection would not be what it looks like.
func TestValidateRefusesTLSThatIsNone(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil    func(*config.Config)
		settings []string
	}{
		"driver certificate":          {func(c *config.Config) { c.Listen.TLSCert = "c" }, []string{`\ntls-cert "c"`, `\ntls-key ""`}},
		"driver key":                  {func(c *config.Config) { c.Listen.TLSKey = "k" }, []string{`\ntls-cert ""`, `\ntls-key "k"`}},
		"node certificate":            {func(c *config.Config) { c.Cassandra.TLS, c.Cassandra.TLSCert = true, "c" }, []string{`\ncassandra-tls-cert "c"`, `\ncassandra-tls-key ""`}},
		"clients' certificate":        {func(c *config.Config) { c.Cassandra.TLS, c.Cassandra.TLSClientsKey = true, "k" }, []string{`\ncassandra-tls-clients-cert ""`, `\ncassandra-tls-clients-key "k"`}},
		"clients' certificate, plain": {func(c *config.Config) { c.Cassandra.TLSClientsCert, c.Cassandra.TLSClientsKey = "c", "k" }, []string{`\ncassandra-tls-clients-cert "c": set, but`}},
		"clients' certificate is ours": {func(c *config.Config) {
			c.Cassandra.TLS, c.Cassandra.TLSCert, c.Cassandra.TLSKey = true, "c", "k"
			c.Cassandra.TLSClientsCert, c.Cassandra.TLSClientsKey = "c", "k2"
		}, []string{`\ncassandra-tls-clients-cert "c": the same as the proxy's own`}},
		"clients' role without certificate": {func(c *config.Config) { c.Cassandra.TLSClientsRole = "app" }, []string{`\ncassandra-tls-clients-role "app": set without`}},
		"clients' role is ours": {func(c *config.Config) {
			c.Cassandra.TLS, c.Cassandra.TLSClientsCert, c.Cassandra.TLSClientsKey, c.Cassandra.TLSClientsRole = true, "c", "k", "music"
			c.Cassandra.Username, c.Cassandra.Password = "music", "p"
		}, []string{`\ncassandra-tls-clients-role "music": the proxy's own role`}},
		"node certificate, plain": {func(c *config.Config) { c.Cassandra.TLSCert, c.Cassandra.TLSKey = "c", "k" }, []string{`\ncassandra-tls-cert "c": set, but`}},
	} {
		c := valid()
		tc.spoil(&c)
		err := c.Validate()
		require.Error(t, err, name)
		for _, setting := range tc.settings {
			assert.Contains(t, "\n"+err.Error(), strings.ReplaceAll(setting, `\n`, "\n"), name)
		}
	}
}

func TestValidateAccepts(t *testing.T) {
	cases := map[string]func(*config.Config){
		"several points": func(c *config.Config) {
			c.Cassandra.ContactPoints = []string{"n1.example.", "10.0.0.2:9043", "::1", "db_1"}
		},
		"a free port":        func(c *config.Config) { c.Listen.Address, c.Listen.Metrics = "127.0.0.1:0", "127.0.0.1:0" },
		"advertised name":    func(c *config.Config) { c.Listen.Address, c.Listen.Advertise = ":9042", "proxy-1.example" },
		"no metrics":         func(c *config.Config) { c.Listen.Metrics = "" },
		"metrics everywhere": func(c *config.Config) { c.Listen.Metrics = ":9044" },
		"login":              func(c *config.Config) { c.Cassandra.Username, c.Cassandra.Password = "u", "p" },
		"login from a file":  func(c *config.Config) { c.Cassandra.Username, c.Cassandra.PasswordFile = "u", "/file" },
		"peers on loopback":  func(c *config.Config) { c.Peers.Listen = "127.0.0.1:9043" },
		"peers by a secret":  func(c *config.Config) { c.Peers.Listen, c.Peers.Secret = "10.0.0.7:9043", secretOfPeers },
		"peers by a file":    func(c *config.Config) { c.Peers.Listen, c.Peers.SecretFile = "10.0.0.7:9043", "/file" },
		"peers by TLS": func(c *config.Config) {
			c.Peers = config.Peers{Listen: ":9043", Advertise: "proxy-1", TLSCert: "c", TLSKey: "k", TLSCA: "a"}
		},
		"TLS towards drivers": func(c *config.Config) {
			c.Listen.TLSCert, c.Listen.TLSKey, c.Listen.TLSClientCA = "c", "k", "a"
		},
		"TLS towards Cassandra": func(c *config.Config) { c.Cassandra.TLS = true },
		"TLS, and who we are":   func(c *config.Config) { c.Cassandra.TLS, c.Cassandra.TLSCert, c.Cassandra.TLSKey = true, "c", "k" },
		"TLS, and who signs":    func(c *config.Config) { c.Cassandra.TLS, c.Cassandra.TLSCA = true, "a" },
		"the shortest wait":     func(c *config.Config) { c.Music.MaxWait = 100 * time.Millisecond },
		"replication":           func(c *config.Config) { c.Music.Replication = " {'class': 'SimpleStrategy', 'replication_factor': 1}" },
		"lowest and highest":    func(c *config.Config) { c.Limits.MaxConnections, c.Limits.MaxFrameSize = 1, 256<<20 },
		"relay":                 func(c *config.Config) { c.Music.Locks = false },
		"text for the people":   func(c *config.Config) { c.Log = config.Log{Level: "error", Format: "text", Audit: "all"} },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			c := valid()
			change(&c)
			assert.NoError(t, c.Validate())
		})
	}
}

func TestLoadTellsEveryFaultAtOnce(t *testing.T) {
	path := write(t, "contact-point: [a]\ncassandra: {port: 1}\nport: {a: 1}\nclient-lease: 30\nusername: 007\n")
	_, err := load(t,
		[]string{"--config", path, "--max-frame-size=16MB", "--locks=maybe", "--log-level=loud"},
		[]string{"MUSIC_MAX_CONNECTIONS=many", "MUSIC_PROT=9042", "MUSIC_SESSION_LEASE=0s"})

	want := []string{
		`configuration file ` + path + `: "cassandra": no such setting (music proxy --help has all)`,
		`configuration file ` + path + `: "contact-point": no such setting (music proxy --help has all)`,
		`environment variable MUSIC_PROT: no such setting (music proxy --help has all)`,
		`port "map[a:1]": not a single value; allowed: 1 to 65535`,
		`username "7": not a text: put it in quotes; allowed: a role; empty where no login is asked for`,
		`locks "maybe": not a known value; allowed: on, off`,
		`client-lease "30": not a duration with its unit; allowed: 1s to 1h`,
		`max-connections "many": not a whole number; allowed: 1 to 1000000`,
		`max-frame-size "16MB": not a size like 16MiB, 64KiB or 4096; allowed: 4KiB to 256MiB`,
		`contact-points "": not set; allowed: one or more of host, host:port, [IPv6]:port`,
		`session-lease "0s": out of range; allowed: 1s to 5m`,
		`log-level "loud": not a known value; allowed: trace, debug, info, warn, error`,
	}
	require.Error(t, err)
	assert.Equal(t, want, strings.Split(err.Error(), "\n"))
}

func TestLoadRefusesFiles(t *testing.T) {
	cases := map[string]struct{ path, want string }{
		"missing":        {"/no/such/file", "configuration file /no/such/file: open"},
		"two documents":  {write(t, "contact-points: [a]\n---\ncritical: [bank.*]\n"), "more than one document"},
		"a list":         {write(t, "- contact-points: [a]\n"), "write each on a line of its own"},
		"no colon":       {write(t, "contact-points a\n"), "write each on a line of its own"},
		"not YAML":       {write(t, "a: b: c"), "mapping values are not allowed"},
		"key twice":      {write(t, "port: 1\nport: 2"), "already defined"},
		"number in list": {write(t, "contact-points: [a, 10.5]"), `contact-points "[a 10.5]": not a text`},
		"list for one":   {write(t, "port: [1]"), `port "[1]": not a single value`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, []string{"--config", tc.path}, nil)
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func TestLoadRefusesPasswords(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"missing file": {[]string{"--password-file=/no/such/file"}, `password-file "/no/such/file": read the secret: open`},
		"empty file":   {[]string{"--password-file", write(t, "\n")}, "the file is empty"},
		"both":         {[]string{"--password-file", write(t, "a"), "--password=hunter2"}, "given together with password"},
		"a number":     {[]string{"--config", write(t, "password: 1234567")}, `password "***": not a text`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, append(tc.args, "--contact-points=a", "--username=u"), nil)
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "\n", "one fault, one line")
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, err.Error(), "1234567")
		})
	}
}

func TestSizesThatAreRead(t *testing.T) {
	cases := map[string]config.Size{"16MiB": 16 << 20, "64 KiB": 64 << 10, "4096": 4096, "4096B": 4096, "0GiB": 0}
	for text, want := range cases {
		c, _ := load(t, []string{"--max-frame-size", text}, nil)
		assert.Equal(t, want, c.Limits.MaxFrameSize, text)
	}
}

func TestSizesThatAreNot(t *testing.T) {
	for _, text := range []string{"", "MiB", "16M", "16mib", "-1KiB", "1.5MiB", "9999999999GiB", "99999999999999999999"} {
		_, err := load(t, []string{"--max-frame-size", text}, nil)
		assert.ErrorContains(t, err, `max-frame-size "`+text+`": not a size`)
	}
}
