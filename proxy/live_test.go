package proxy

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend"
)

// The defaults of the frontend are those of the settings.
func TestDefaultLimits(t *testing.T) {
	l := config.Default().Limits
	l.Messages = 1 << 30 // whatever memory this process may use
	assert.Equal(t, frontend.DefaultLimits(), limitsOf(l))
}

// What a configuration that comes later says holds at once: limits as they are there, of critical
// patterns only more.
func TestConfigurationsAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reloads, cfg := make(chan config.Config), config.Default()
		p := new(process)
		cfg.Music.Critical = []string{"bank.accounts"}
		p.applySettings(cfg)
		require.True(t, p.critical.grown.Swap(false))
		p.running.Go(func() { p.follow(ctx, reloads) })

		cfg.Music.Critical, cfg.Limits.Label = []string{`"bank".notes`, "bank.accounts"}, 16
		reloads <- cfg
		synctest.Wait()
		assert.Equal(t, 16, p.limits.Load().Label)
		assert.True(t, p.critical.grown.Swap(false))
		two := config.Music{Critical: []string{"bank.accounts", "bank.notes"}}.CriticalRules()
		assert.Equal(t, two, p.critical.now().CriticalRules())

		cfg.Music.Critical, cfg.Limits.Label = nil, 256
		reloads <- cfg
		synctest.Wait()
		assert.Equal(t, 256, p.limits.Load().Label)
		assert.False(t, p.critical.grown.Load())
		assert.Equal(t, two, p.critical.now().CriticalRules(), "they never shrink")
		assert.True(t, p.critical.names("bank", "notes"))
		cancel()
		p.running.Wait()
	})
}

// A configuration that comes later and allows more clients is looked at like the first one: the process may not
// be able to open as many files. One that allows no more says nothing again.
func TestMoreConnectionsThanFilesAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log bytes.Buffer
		reloads, cfg := make(chan config.Config), config.Default()
		p := &process{log: zerolog.New(&log)}
		p.applySettings(cfg)
		p.running.Go(func() { p.follow(ctx, reloads) })
		for _, c := range []struct {
			more int
			said bool
		}{{0, false}, {1 << 40, true}, {1 << 40, false}, {-1, false}} {
			next := cfg
			next.Limits.MaxConnections += c.more
			log.Reset()
			reloads <- next
			synctest.Wait()
			assert.Equal(t, c.said, bytes.Contains(log.Bytes(), []byte("ulimit -n")), "%+v: %s", c, log.String())
		}
		cancel()
		p.running.Wait()
	})
}
