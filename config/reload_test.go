package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"music/config"
)

// A running proxy takes over what it can, keeps the rest, and says which is which.
func TestReload(t *testing.T) {
	running := config.Default()
	running.Music.Critical = []string{"bank.accounts"}
	next := running
	next.Limits.MaxConnections, next.Limits.Label, next.Log.Level = 7, 16, "warn"
	next.Music.Critical, next.Music.Retain, next.Listen.TLSCert = []string{"bank.notes"}, time.Second, "cert.pem"

	now, taken, restart := config.Reload(running, next)
	assert.Equal(t, []string{"critical", "max-connections", "max-label-size", "log-level"}, taken)
	assert.Equal(t, []string{"tls-cert", "retain", "critical"}, restart)
	want := running
	want.Limits.MaxConnections, want.Limits.Label, want.Log.Level = 7, 16, "warn"
	want.Music.Critical = []string{"bank.accounts", "bank.notes"}
	assert.Equal(t, want, now)
	assert.Equal(t, []string{"bank.accounts"}, running.Music.Critical)

	_, taken, restart = config.Reload(now, now)
	assert.Empty(t, taken)
	assert.Empty(t, restart)
}

// A file with another secret in it is one that waits for a restart, as that of the password is.
func TestReloadNamesSecretsThatHaveChanged(t *testing.T) {
	running := config.Default()
	running.Cassandra.PasswordFile, running.Cassandra.Password = "p", "before"
	running.Peers.SecretFile, running.Peers.Secret = "s", "before"
	next := running
	next.Cassandra.Password, next.Peers.Secret = "after", "after"
	now, taken, restart := config.Reload(running, next)
	assert.Equal(t, running, now)
	assert.Empty(t, taken)
	assert.Equal(t, []string{"password", "peer-secret-file"}, restart)
}
