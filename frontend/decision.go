package frontend

import (
	"fmt"

	"music/frontend/relay"
	"music/frontend/wire"
)

// decision is what becomes of a request. The zero value hands it on as the bytes received.
type decision struct {
	verdict  relay.Decision // what its direction does with it
	watch    *watch         // forward: what the proxy wants to know of the answer; nil: nothing
	action   action         // hold: what is done with the request
	unlisted *[2]string     // keyspace and name of a table that the request writes or locks, and that the schema did not have when it was read last
}

// action is what is done with a request that is held back.
type action interface {
	// perform is called with the whole request, right after it was decided about: what the decision has read still lies where it lay.
	perform(c *conn, e wire.Envelope) error
	String() string
}

// held returns the decision to hold a request back for an action.
func held(a action) decision { return decision{verdict: relay.Hold, action: a} }

// watched returns the decision to hand a request on and to look at its answer.
func watched(w *watch) decision { return decision{watch: w} }

// refused returns the decision to answer a request with an error: Cassandra does not hear of it.
func refused(f *wire.Failure) decision { return held(refuse{f}) }

// String describes the decision for people.
func (d decision) String() string {
	text := [...]string{relay.Forward: "forward", relay.NeedWhole: "need whole", relay.Hold: "hold", relay.Alone: "alone"}[d.verdict]
	if d.watch != nil {
		text += fmt.Sprintf(", look at the answer: %v", d.watch.kind)
	}
	if d.action != nil {
		text += ": " + d.action.String()
	}
	if d.unlisted != nil {
		text += fmt.Sprintf(" (table %s.%s is not in the schema)", d.unlisted[0], d.unlisted[1])
	}
	return text
}

// refuse answers a request with an error.
type refuse struct{ failure *wire.Failure }

// perform implements action.
func (a refuse) perform(c *conn, e wire.Envelope) error { return c.answer(e, a.failure) }

// String implements action.
func (a refuse) String() string { return "refuse, " + a.failure.Error() }
