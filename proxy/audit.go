package proxy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/rs/zerolog"

	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

// auditLevel is how much the audit tells; each level tells all that those before it do.
type auditLevel int

// The levels, in the order of auditLevels.
const (
	auditNone    auditLevel = iota
	auditRefused            // what was refused, fenced off, or ended by force
	auditEnds               // ends of locks; short ones summed
	auditAll                // each grant and each end
)

// auditLevels returns the levels in the words of the setting audit.
func auditLevels() []string { return []string{"none", "refused", "ends", "all"} }

// audit writes the lines of docs/audit.md. Its methods may be called by many at once, and share no
// lock as long as locks are given and given back.
type audit struct {
	level  auditLevel
	log    zerolog.Logger
	tables *criticalTables
	proxy  string                          // the address that drivers are told
	sums   atomic.Pointer[map[sumKey]*sum] // as many as roles use tables; a map that is there does not change

	mu    sync.Mutex                                    // guards what follows, and who replaces sums
	roles *simplelru.LRU[string, *zerolog.BurstSampler] // how many refusals each has had
}

// newAudit writes to log, as far as the setting (a word of auditLevels) says.
func newAudit(log zerolog.Logger, setting, proxy string, tables *criticalTables) *audit {
	roles, err := simplelru.NewLRU[string, *zerolog.BurstSampler](rolesKept, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	a := &audit{level: auditLevel(slices.Index(auditLevels(), setting)), log: log, tables: tables, proxy: proxy, roles: roles}
	a.sums.Store(&map[sumKey]*sum{})
	return a
}

// hasNoLine reports whether what happened to a lock gets no line of its own, which tell writes: it
// is told by no audit of this level, or was now added to a sum. by is the client that has ended the
// lock with UNLOCK or FORCE; nobody where it has ended otherwise. It neither blocks nor allocates.
func (a *audit) hasNoLine(n *musiccore.Note, by *musiccore.Client) bool {
	switch {
	case a.level < noteLevel(n.Kind):
	case a.level < auditAll && isShort(n) && (by.Role == n.Client.Role || *by == musiccore.Client{}):
		a.sum(n)
	default:
		return false
	}
	return true
}

// noteLevel returns the lowest level that tells of what happened.
func noteLevel(kind musiccore.NoteKind) auditLevel {
	switch kind {
	case musiccore.NoteForced:
		return auditRefused
	case musiccore.NoteEnded, musiccore.NoteOrphaned, musiccore.NotePreempted, musiccore.NoteTakenOver:
		return auditEnds
	case musiccore.NoteGranted:
		return auditAll
	}
	return auditAll + 1 // nothing that happened to a lock
}

// isShort reports whether a section has ended of which there are too many for a line each.
func isShort(n *musiccore.Note) bool {
	return n.Kind == musiccore.NoteEnded && n.State == musiccore.StateReleased && (n.InBlock || n.Client.OneWrite)
}

// tell writes a line for what happened to a lock, and by whom.
func (a *audit) tell(n musiccore.Note, by musiccore.Client) {
	line := a.line(n.Key, n.Ref, n.Client)
	switch n.Kind {
	case musiccore.NoteGranted:
		line.Str("owner", n.Owner).Dur("waited_ms", n.Duration).Msg("lock granted")
	case musiccore.NoteEnded:
		line = line.Str("owner", n.Owner).Stringer("how", n.State).Dur("held_ms", n.Duration)
		if by != (musiccore.Client{}) {
			line = line.Str("ended_by_role", by.Role).Str("ended_by_client", by.Address)
		}
		line.Msg("lock ended")
	case musiccore.NoteOrphaned:
		line.Str("owner", n.Owner).Dur("held_ms", n.Duration).Msg("lock left behind: this proxy's session has ended, and its client may go on with it elsewhere")
	case musiccore.NotePreempted:
		line.Msg("holder of a dead session passed over")
	case musiccore.NoteTakenOver:
		line.Msg("lock of a dead session taken over")
	case musiccore.NoteForced:
		line.Str("owner", n.Owner).Str("reason", n.Reason).Msg("lock forced")
	}
}

// sumPeriod is how often sums are told.
const sumPeriod = time.Minute

// sumKey is what short sections are summed by.
type sumKey struct {
	table    [16]byte
	role     string
	oneWrite bool
}

// sum is what has not been told yet of short sections.
type sum struct {
	sections atomic.Uint64
	held     atomic.Int64 // ns
}

// sum adds a section that has ended.
func (a *audit) sum(n *musiccore.Note) {
	key := sumKey{n.Key.Table, n.Client.Role, n.Client.OneWrite}
	s := (*a.sums.Load())[key]
	if s == nil {
		s = a.newSum(key)
	}
	s.sections.Add(1)
	s.held.Add(int64(n.Duration))
}

// newSum returns the sum of a key that was not there before, unless another goroutine has made it
// meanwhile.
func (a *audit) newSum(key sumKey) *sum {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := *a.sums.Load()
	if s := old[key]; s != nil {
		return s
	}
	all := maps.Clone(old)
	all[key] = new(sum)
	a.sums.Store(&all)
	return all[key]
}

// run tells the sums once a period until ctx ends.
func (a *audit) run(ctx context.Context) {
	for pause(ctx, sumPeriod) {
		a.flush()
	}
}

// flush tells the sums of what has ended since they were told last.
func (a *audit) flush() {
	for k, s := range *a.sums.Load() {
		if n := s.sections.Swap(0); n > 0 {
			kind := map[bool]string{true: "one write", false: "handed over"}[k.oneWrite]
			a.named(a.begin().Str("role", k.role), k.table).Str("sections_of", kind).Uint64("sections", n).
				Dur("held_ms", time.Duration(s.held.Swap(0))).Msg("short sections ended")
		}
	}
}

// refusals is how many refused attempts of a role are told in a minute; rolesKept of how many roles
// at a time.
const (
	refusals  = 20
	rolesKept = 1000
)

// refused tells of an attempt that was refused, unless the role has had too many just now.
func (a *audit) refused(r frontend.Refusal) {
	switch {
	case a.level < auditRefused:
	case r.Lost:
		a.line(r.Key, r.Ref, r.By).Msg("operation fenced off")
	case a.sampler(r.By.Role).Sample(zerolog.InfoLevel):
		a.line(r.Key, r.Ref, r.By).Str("why", r.Why).Msg("attempt refused")
	}
}

// sampler says which refusals of a role are told.
func (a *audit) sampler(role string) *zerolog.BurstSampler {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, known := a.roles.Get(role)
	if !known {
		s = &zerolog.BurstSampler{Burst: refusals, Period: time.Minute}
		a.roles.Add(role, s)
	}
	return s
}

// begin begins a line with what each has. Its level is written as that of the log's lines is, but a
// file of its own has all lines whatever the level of the log.
func (a *audit) begin() *zerolog.Event {
	return a.log.Log().Stringer(zerolog.LevelFieldName, zerolog.InfoLevel).Bool("audit", true).Str("proxy", a.proxy)
}

// line begins a line about one lock: who, where, and on which lock.
func (a *audit) line(k musiccore.Key, r musiccore.LockRef, by musiccore.Client) *zerolog.Event {
	e := a.named(a.begin().Str("role", by.Role).Str("client", by.Address).Int64("lock_ref", int64(r)), k.Table)
	t := a.tables.table(k.Table)
	switch {
	case t == nil:
		return e.Hex("key", []byte(k.PK))
	case k.PK == "":
		return e.Str("key", "")
	}
	return e.Str("key", catalog.KeyText(t.Key, k.PK))
}

// named adds the name of a table; of one that is not critical any more, its id.
func (a *audit) named(e *zerolog.Event, table [16]byte) *zerolog.Event {
	if t := a.tables.table(table); t != nil {
		return e.Stringer("table", t)
	}
	return e.Hex("table", table[:])
}
