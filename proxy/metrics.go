package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"music/config"
	"music/frontend/traffic"
	"music/proxy/connlimit"
)

// metrics exports the frontend's counters to Prometheus.
type metrics struct {
	stats                         *traffic.Stats
	requests, failures            *prometheus.Desc
	accepted, open, lost, refused *prometheus.Desc
}

// newRegistry returns a registry with the metrics of the frontend and of the process. It sets
// stats.Latency.
func newRegistry(stats *traffic.Stats) *prometheus.Registry {
	m := &metrics{
		stats:    stats,
		requests: prometheus.NewDesc("music_requests_total", "Requests of clients, by opcode and by what became of them; fenced: sent under a lock, answered, refused: by this proxy itself.", []string{"opcode", "fate"}, nil),
		failures: prometheus.NewDesc("music_errors_total", "Errors that this proxy itself has sent to clients, by their first word.", []string{"word"}, nil),
		accepted: prometheus.NewDesc("music_connections_accepted_total", "Client connections ever accepted.", nil, nil),
		open:     prometheus.NewDesc("music_connections_open", "Client connections now.", nil, nil),
		lost:     prometheus.NewDesc("music_connections_backend_lost_total", "Client connections that ended because Cassandra was lost.", nil, nil),
		refused:  prometheus.NewDesc("music_connections_rejected_total", "Client connections that ended because the client violated the protocol or a limit.", nil, nil),
	}
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "music_request_seconds",
		Help:    "Time of a sampled request, split into the proxy's part and Cassandra's.",
		Buckets: prometheus.ExponentialBuckets(2e-6, 2.5, 16),
	}, []string{"where"})
	inProxy, inBackend := latency.WithLabelValues("proxy"), latency.WithLabelValues("cassandra")
	stats.Latency = func(proxy, backend time.Duration) {
		inProxy.Observe(proxy.Seconds())
		inBackend.Observe(backend.Seconds())
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "music_build_info", Help: "1; the labels say which release runs.",
		ConstLabels: prometheus.Labels{"release": builtRelease(), "go": runtime.Version()},
	})
	build.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(m, build, latency, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.stats.Requests(func(opcode primitive.OpCode, fate traffic.Fate, n uint64) {
		out <- prometheus.MustNewConstMetric(m.requests, prometheus.CounterValue, float64(n), traffic.OpcodeName(opcode), fate.String())
	})
	m.stats.Failures(func(word string, n uint64) {
		out <- prometheus.MustNewConstMetric(m.failures, prometheus.CounterValue, float64(n), word)
	})
	out <- prometheus.MustNewConstMetric(m.accepted, prometheus.CounterValue, float64(m.stats.Accepted.Load()))
	out <- prometheus.MustNewConstMetric(m.open, prometheus.GaugeValue, float64(m.stats.Open.Load()))
	out <- prometheus.MustNewConstMetric(m.lost, prometheus.CounterValue, float64(m.stats.Lost.Load()))
	out <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(m.stats.Rejected.Load()))
}

// Bounds of the connections for metrics and health.
const (
	healthConns = 64 // open connections; one more closes the oldest
	healthRead  = 5 * time.Second
	healthWrite = 30 * time.Second
	healthIdle  = time.Minute
	healthHead  = 8 << 10 // bytes
)

// listenHealth listens for requests of metrics and health; it returns nil if that is off. If the
// address is the default and already in use, as by another proxy on the same machine, it only
// warns.
func listenHealth(ctx context.Context, l config.Listen, log zerolog.Logger) (net.Listener, error) {
	if l.Metrics == "" {
		return nil, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Metrics)
	switch {
	case err == nil:
		return connlimit.New(ln, connlimit.Limits{Untrusted: healthConns, PerAddress: healthConns}), nil
	case l.MetricsAsked:
		return nil, fmt.Errorf("listen for metrics and health at %s (setting metrics-listen): %w", l.Metrics, err)
	}
	log.Warn().Err(err).Str("metrics_listen", l.Metrics).Msg("metrics and health are not served: the default address of metrics-listen is in use; set it to a free address")
	return nil, nil
}

// serveHealth serves /metrics, /live (the process runs) and /ready (drivers are served) until ctx
// ends. Without a listener it does nothing.
func serveHealth(ctx context.Context, ln net.Listener, registry *prometheus.Registry, ready func() (good bool, remark string)) error {
	if ln == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { answerHealth(w, true, "") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		good, remark := ready()
		answerHealth(w, good, remark)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: healthRead, ReadTimeout: healthRead, WriteTimeout: healthWrite, IdleTimeout: healthIdle,
		MaxHeaderBytes: healthHead,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// answerHealth answers 200, or 503 if not good. The remark is for people to read.
func answerHealth(w http.ResponseWriter, good bool, remark string) {
	if remark != "" {
		remark = "\n" + remark
	}
	if !good {
		http.Error(w, "not ready"+remark, http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok"+remark)
}
