package proxy

import (
	"github.com/rs/zerolog"

	"music/musiccore"
)

// audit writes a line for every grant and every end of a lock (DESIGN.md 5).
type audit struct {
	log    zerolog.Logger
	schema *schema
}

// grant audits the answer to a LOCK on its way to the client.
func (a *audit) grant(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) func(musiccore.Answer) {
	return func(answer musiccore.Answer) {
		if answer.Err == nil && answer.Grant.Applied && q.Ref == 0 {
			a.line(k, answer.Grant).Str("owner", q.Owner).Msg("lock granted")
		}
		done(answer)
	}
}

// end audits the answer to an UNLOCK on its way to the client.
func (a *audit) end(k musiccore.Key, r musiccore.LockRef, done func(musiccore.Answer)) func(musiccore.Answer) {
	return func(answer musiccore.Answer) {
		if answer.Err == nil && answer.Grant.Applied {
			answer.Grant.Ref = r
			a.line(k, answer.Grant).Msg("lock given back")
		}
		done(answer)
	}
}

func (a *audit) line(k musiccore.Key, g musiccore.Grant) *zerolog.Event {
	e := a.log.Info().Bool("audit", true).Hex("key", []byte(k.PK)).Int64("lock_ref", int64(g.Ref))
	if t := a.schema.table(k.Table); t != nil {
		e = e.Stringer("table", t)
	}
	return e
}
