package musiccore

import "time"

// Options are the numbers of docs/design.md 2. Their zero values are not the defaults: start from
// Defaults.
type Options struct {
	SessionLease time.Duration // L
	Drift        float64       // eps: how much the RATES of clocks that nobody slews may differ
	Margin       time.Duration // added to L*(1+eps) before a session is dead
	Grace        time.Duration // F: for a dead holder's client to come elsewhere
	ClientLease  time.Duration // silence that ends a held reference
	QueuedLease  time.Duration // silence that ends a queued, untold or late-granted reference
	Wait         time.Duration // LOCK without WAIT; also the bound of NOWAIT and of an UNLOCK's answer
	OpTimeout    time.Duration // an operation without an End is unsettled and over
	Window       Stamp         // W: the same at every proxy, or windows overlap
	Waiters      int           // waiters per key
	Idle         int           // lock rows kept of keys that nobody holds
	SettleTries  int           // "bounded effort" before a term is released dirty
	Retain       time.Duration // R: sections that are shorter share blocks (docs/protocol.md 3.17); 0: none do
}

// Defaults returns the values that docs/design.md 2 promises.
func Defaults() Options {
	return Options{
		SessionLease: 10 * time.Second,
		Drift:        0.01,
		Margin:       500 * time.Millisecond,
		Grace:        2 * time.Second,
		ClientLease:  30 * time.Second,
		QueuedLease:  10 * time.Second,
		Wait:         1500 * time.Millisecond,
		OpTimeout:    5 * time.Second,
		Window:       1 << 20,
		Waiters:      100_000,
		Idle:         4096,
		SettleTries:  2,
		Retain:       200 * time.Millisecond,
	}
}

// DeadAfter returns how long a beat must stand still before its session is dead: L*(1+eps)+margin.
// lease is what the session says of itself, 0 where it says nothing; the longer of that and the
// own L counts, since another proxy may run with another setting.
func (o Options) DeadAfter(lease time.Duration) time.Duration {
	return time.Duration(float64(max(lease, o.SessionLease))*(1+o.Drift)) + o.Margin
}
