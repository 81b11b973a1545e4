package musiccore

import "time"

// Options are the numbers of docs/design.md 2. Their zero values are not the defaults: start from
// Defaults.
type Options struct {
	SessionLease time.Duration // L
	Drift        float64       // eps: how much the RATES of unslewed clocks may differ
	Margin       time.Duration // added to L*(1+eps) before a session is dead
	Grace        time.Duration // F: for a dead session's client to go on at another proxy
	ClientLease  time.Duration // silence that ends a held reference, where Core.ClientLease says nothing else
	QueuedLease  time.Duration // silence that ends a queued, untold or late-granted reference
	Wait         time.Duration // LOCK without WAIT; also the bound of NOWAIT and of an UNLOCK's answer
	OpTimeout    time.Duration // an operation without an End is unsettled and over
	Window       Stamp         // W: the same at every proxy, or windows overlap
	Waiters      int           // waiters per key
	Idle         int           // lock rows kept of keys without a holder
	SettleTries  int           // how often a Synch is tried before a term is released dirty
	Retain       time.Duration // R: shorter sections share blocks (docs/protocol.md 3.17); 0: none do
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

// DeadAfter returns how long the beat of a session must not change before the session is dead:
// L*(1+eps)+margin. lease is the one written beside the beat, 0 if none is; the longer of that and
// the own L counts, since another proxy may have another setting.
func (o Options) DeadAfter(lease time.Duration) time.Duration {
	return time.Duration(float64(max(lease, o.SessionLease))*(1+o.Drift)) + o.Margin
}
