//go:build compat

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"music/integration/cassandra"
)

// prometheus is a real Prometheus, which scrapes the proxies of a test once a second.
type prometheus struct {
	test    *testing.T
	address string
	targets string // file
	watched []string
}

// startPrometheus starts it with the rules of docs/alerts.yml, whose times are shortened: windows
// of 20 s, 2 s before an alert fires, and a lock counts as old after 10 s. Everything else is as in
// the file.
func startPrometheus(t *testing.T) *prometheus {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		_, err := exec.LookPath(program)
		require.NoError(t, err, "on Debian: apt-get install prometheus")
	}
	rules, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	text := regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(string(rules), "[20s]")
	text = regexp.MustCompile(`for: \d+[mh]`).ReplaceAllString(text, "for: 2s")
	text = strings.Replace(text, "music_oldest_holder_seconds > 600", "music_oldest_holder_seconds > 10", 1)
	dir := t.TempDir()
	p := &prometheus{test: t, address: strings.Replace(ownAddress(t), ":9044", ":9090", 1), targets: filepath.Join(dir, "targets.json")}
	p.watch()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	config := write("prometheus.yml", fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [%s]\n"+
		"scrape_configs:\n- job_name: music\n  file_sd_configs: [{files: [%s], refresh_interval: 1s}]\n", write("rules.yml", text), p.targets))
	log := new(logBuffer)
	cmd := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", p.address)
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus:\n%s", log)
		}
	})
	eventually(t, time.Minute, "Prometheus answers", func() error { _, err := p.query("up"); return err })
	return p
}

// watch adds proxies to the scraped ones.
func (p *prometheus) watch(metrics ...string) {
	p.test.Helper()
	p.watched = append(p.watched, metrics...)
	text, err := json.Marshal([]map[string][]string{{"targets": p.watched}})
	require.NoError(p.test, err)
	if p.watched == nil {
		text = []byte("[]")
	}
	next := p.targets + ".next"
	require.NoError(p.test, os.WriteFile(next, text, 0o600))
	require.NoError(p.test, os.Rename(next, p.targets))
}

// query returns how many series an expression has.
func (p *prometheus) query(expression string) (series int, err error) {
	answer, err := http.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var read struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	if err := json.NewDecoder(answer.Body).Decode(&read); err != nil {
		return 0, err
	}
	if read.Status != "success" {
		return 0, errorf("%s: %s", expression, read.Error)
	}
	return len(read.Data.Result), nil
}

// fires waits until an alert has fired, once at least since Prometheus was started; again is called meanwhile.
func (p *prometheus) fires(alert string, again func()) {
	p.test.Helper()
	begun := time.Now()
	eventually(p.test, 3*time.Minute, alert+" fires", func() error {
		again()
		n, err := p.query(fmt.Sprintf(`max_over_time(ALERTS{alertname=%q,alertstate="firing"}[2h])`, alert))
		if err == nil && n == 0 {
			err = errorf("not yet")
		}
		return err
	})
	p.test.Logf("%s fires %.0f s after its fault", alert, time.Since(begun).Seconds())
}

// alertsFixture is several proxies, some with faults, under Prometheus.
type alertsFixture struct {
	*tableFixture
	*prometheus
	first, second, other, lone *process
	there                      client // at second
	node                       *cassandra.Node
}

// startAlerts starts two healthy proxies, one of another release, and one on its own in front of a
// node that tests can kill.
func startAlerts(t *testing.T) *alertsFixture {
	t.Helper()
	node := needEnvironment(t).direct()
	secret := peerSecret(t)
	a := &alertsFixture{prometheus: startPrometheus(t)}
	with := func(more ...string) []string {
		return append([]string{"--session-lease", "60s", "--max-wait", "60s", "--peer-listen", peerListen(t), "--peer-secret-file", secret, "--metrics-tables", "alerts.accounts"}, more...)
	}
	a.first = startWatched(t, node, with("--audit", "all", "--audit-file", "/dev/full")...)
	a.second = startWatched(t, node, with()...)
	a.tableFixture = &tableFixture{t: t, driver: withGocql2(4, ""), address: a.first.address, keyspace: "alerts"}
	a.direct = openGocql2(t, cluster2(node, "")).session
	a.create("@critical(lease=5m)")
	a.there = a.driver.open(t, a.second.address, a.keyspace)
	for _, c := range []client{a.client, a.there} {
		eventually(t, time.Minute, "the table can be locked", func() error { return a.do(c, "LOCK ACCOUNTS WHERE branch = 'ready' LEASE 1s").err() })
	}
	return a
}

// startWatched starts a proxy that runs for as long as this test.
func startWatched(t *testing.T, node string, args ...string) *process {
	t.Helper()
	p := newProcess(t, node, needEnvironment(t).address(), args...)
	p.limit = 20 * time.Minute
	p.begin(t)
	p.listens(t)
	return p
}

// startOther starts a proxy that reports another release; its program differs in that word only.
func (a *alertsFixture) startOther() client {
	a.t.Helper()
	built, err := needEnvironment(a.t).binary()
	require.NoError(a.t, err)
	program, err := os.ReadFile(built)
	require.NoError(a.t, err)
	release := regexp.MustCompile(`mod\tmusic\t[^\t\n]+`).FindIndex(program)
	require.NotNil(a.t, release)
	program[release[1]-1] = '!'
	path := filepath.Join(a.t.TempDir(), "music")
	require.NoError(a.t, os.WriteFile(path, program, 0o700))
	a.other = newProcess(a.t, needEnvironment(a.t).direct(), needEnvironment(a.t).address())
	a.other.cmd = exec.Command(path, a.other.args...)
	a.other.cmd.Stderr = a.other.log
	require.NoError(a.t, a.other.cmd.Start())
	a.t.Cleanup(func() {
		_ = a.other.cmd.Process.Kill()
		_ = a.other.cmd.Wait()
	})
	a.other.listens(a.t)
	return a.driver.open(a.t, a.other.address, a.keyspace)
}

// startLone starts a proxy in front of a node of its own.
func (a *alertsFixture) startLone() client {
	a.t.Helper()
	w := needEnvironment(a.t)
	c, err := cassandra.Start(a.t.Context(), cassandra.Options{
		Dir: filepath.Join(w.runDir, "integration-alerts"), RunDir: w.runDir, Nodes: 1, Heap: "256m", FastJIT: true, Faults: true,
		Address: func(int) string { return "127.0.15.1" }, Log: os.Stderr,
	})
	require.NoError(a.t, err)
	a.t.Cleanup(func() { assert.NoError(a.t, c.Wipe()) })
	a.node = c.Nodes()[0]
	a.lone = startWatched(a.t, a.node.Addr(), "--session-lease", "20s")
	return a.driver.open(a.t, a.lone.address, "music")
}

// held locks a branch and returns the reference.
func (a *alertsFixture) held(c client, branch, more string) int64 {
	a.t.Helper()
	return a.grant(a.works(c, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = '%s' %s", branch, more)), "HELD")
}

// Each alert fires when its fault occurs, under a real Prometheus and with real processes; without
// a fault none fires; and each query of the dashboard returns data.
func TestAlertsFire(t *testing.T) {
	a := startAlerts(t)
	a.watch(a.first.metrics, a.second.metrics)
	nothing := func() {}

	a.fires("MusicLogDropped", func() { a.works(a.client, "LOCK ACCOUNTS WHERE branch = 'audited' LEASE 1s") }) // its file is full
	time.Sleep(10 * time.Second)
	n, err := a.query(`ALERTS{alertname!="MusicLogDropped"}`)
	require.NoError(t, err)
	assert.Zero(t, n, "all is well")

	other := a.startOther()
	a.watch(a.other.metrics)
	a.fires("MusicVersionsDiffer", nothing)
	old, since := a.held(other, "old", "LEASE 5m"), time.Now()

	fenced := a.held(a.client, "fenced", "")
	a.works(a.client, "UNLOCK ACCOUNTS WHERE branch = 'fenced' FORCE REASON 'alerts'")
	a.fires("MusicFencedOff", func() {
		a.refused(a.client, "MUSIC_LOST", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'fenced' AND id = 'x'", fenced))
	})

	for i := range 20 {
		a.held(a.client, fmt.Sprint("lost", i), "LEASE 1s")
	}
	a.fires("MusicLocksLost", nothing)

	a.waitsLong()
	a.queues()
	a.breaksAnInvariant()
	a.unsettled()
	a.fires("MusicOldestHolder", nothing)
	time.Sleep(time.Until(since.Add(70 * time.Second)))
	a.works(other, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'old' USING LOCK %d", old))
	a.fires("MusicHeldLong", nothing)
	a.lonely()
	a.dashboard()

	silent := a.held(a.there, "silent", "LEASE 5m")
	require.NoError(t, a.second.cmd.Process.Signal(syscall.SIGSTOP))
	a.fires("MusicPeerSilent", func() {
		a.do(a.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'silent' AND id = 'x'", silent))
	})
	require.NoError(t, a.second.cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, a.other.cmd.Process.Kill())
	a.fires("MusicProxyDown", nothing)
	a.all()
}

// waitsLong has a client wait for more than 5 s.
func (a *alertsFixture) waitsLong() {
	ref := a.held(a.there, "long", "LEASE 1m")
	next := a.grant(a.works(a.there, "LOCK ACCOUNTS WHERE branch = 'long' WAIT 100ms LEASE 1m"), "QUEUED")
	time.Sleep(7 * time.Second)
	a.works(a.there, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'long' USING LOCK %d", ref))
	a.works(a.there, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'long' USING LOCK %d WAIT 10s", next))
	a.fires("MusicWaitingLong", func() {})
}

// queues has more than a thousand LOCKs wait.
func (a *alertsFixture) queues() {
	ref := a.held(a.client, "queue", "LEASE 5m")
	c := cluster2(a.first.address, a.keyspace)
	c.Timeout = time.Minute
	crowd := openGocql2(a.t, c).session
	done := make(chan struct{})
	const waiters = 1200
	for range waiters {
		go func() {
			_ = crowd.Query("LOCK ACCOUNTS WHERE branch = 'queue' WAIT 40s").Exec()
			done <- struct{}{}
		}()
	}
	a.fires("MusicQueueLong", func() {})
	crowd.Close()
	for range waiters {
		<-done
	}
	a.works(a.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'queue' USING LOCK %d", ref))
}

// breaksAnInvariant writes to a lock row directly at the node.
func (a *alertsFixture) breaksAnInvariant() {
	ref := a.held(a.there, "i12", "")
	a.works(a.there, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'i12' USING LOCK %d", ref))
	time.Sleep(time.Second) // a block of its own is over
	cql := fmt.Sprintf("UPDATE alerts.%s SET base = %d WHERE k1 = 'i12' IF EXISTS", a.companion(), time.Now().Add(48*time.Hour).UnixMicro())
	require.NoError(a.t, a.direct.Query(cql).Exec())
	a.fires("MusicInvariantBroken", func() { a.do(a.client, "LOCK ACCOUNTS WHERE branch = 'i12' WAIT 1s LEASE 1s") })
}

// unsettled has a key with a row that is too large to be written back.
func (a *alertsFixture) unsettled() {
	a.works(a.client, "CREATE TABLE alerts.large (id text PRIMARY KEY, parts map<int, text>) WITH comment = '@critical(lease=5m)'")
	for part := range 8 { // of 3 MiB, since a node takes messages of 4 MiB, and mutations of 16
		cql := fmt.Sprintf("UPDATE alerts.large SET parts[%d] = ? WHERE id = 'x'", part)
		require.NoError(a.t, a.direct.Query(cql, strings.Repeat("x", 3<<20)).Exec())
	}
	ref := a.grant(a.works(a.client, "LOCK alerts.large WHERE id = 'x' LEASE 5m"), "HELD")
	a.fires("MusicKeyNotSettled", func() {
		a.refused(a.client, "MUSIC_REFUSED", fmt.Sprintf("SELECT id FROM alerts.large WHERE id = 'x' USING LOCK %d", ref))
	})
}

// lonely does the faults of the proxy whose cluster is not that of the others.
func (a *alertsFixture) lonely() {
	c := a.startLone()
	a.watch(a.lone.metrics)
	a.fires("MusicProxiesDisagree", func() {})
	_, err := a.node.Fault(a.t.Context(), "skew 7000")
	require.NoError(a.t, err)
	a.fires("MusicClockOff", func() {})
	_, err = a.node.Fault(a.t.Context(), "skew 0")
	require.NoError(a.t, err)
	var given string
	for _, name := range []string{"kept", "given back"} {
		eventually(a.t, time.Minute, "a lock", func() error {
			o := c.run(statement{cql: "LOCK music.named WHERE name = '" + name + "'"})
			given = told(o, "lock_ref")
			return o.err()
		})
	}
	pause(a.t, a.node)
	go c.run(statement{cql: "UNLOCK music.named WHERE name = 'given back' USING LOCK " + given})
	a.fires("MusicLeaseNearEnd", func() {})
	a.fires("MusicSessionLost", func() {})
	a.fires("MusicNoQuorumForLocks", func() {})
	require.NoError(a.t, a.node.Resume())
}

// all checks that no alert has been forgotten.
func (a *alertsFixture) all() {
	text, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(a.t, err)
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	require.NoError(a.t, yaml.Unmarshal(text, &rules))
	for _, rule := range rules.Groups[0].Rules {
		a.fires(rule.Alert, func() {})
	}
}

// dashboard evaluates each query of the dashboard.
func (a *alertsFixture) dashboard() {
	text, err := os.ReadFile("../docs/dashboard.json")
	require.NoError(a.t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(a.t, json.Unmarshal(text, &board))
	require.NotEmpty(a.t, board.Panels)
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			expression := strings.NewReplacer("$__rate_interval", "20s", "$instance", ".*").Replace(target.Expr)
			n, err := a.query(expression)
			assert.NoError(a.t, err, panel.Title)
			assert.Positive(a.t, n, "%s: %s", panel.Title, expression)
		}
	}
}

// promtool accepts the rules, their unit tests and the metrics of a proxy.
func TestPromtool(t *testing.T) {
	metrics, err := http.Get("http://" + startProcess(t, needEnvironment(t).direct(), "--metrics-tables", "bank.accounts").metrics + "/metrics")
	require.NoError(t, err)
	defer func() { _ = metrics.Body.Close() }()
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = metrics.Body
	for _, cmd := range []*exec.Cmd{check, exec.Command("promtool", "check", "rules", "../docs/alerts.yml"), exec.Command("promtool", "test", "rules", "testdata/alerts.yml")} {
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", out)
		t.Logf("%s: %s", strings.Join(cmd.Args, " "), out)
	}
}
