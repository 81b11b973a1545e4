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

// auditLevel is how much is audited; each level includes those before it.
type auditLevel int

// The levels, in the order of auditLevels.
const (
	auditNone    auditLevel = iota
	auditRefused            // operations refused or fenced off, and locks ended by force
	auditEnds               // ends of locks; those of short sections are summed up
	auditAll                // each grant and each end
)

// auditLevels returns the levels as words of the setting audit.
func auditLevels() []string { return []string{"none", "refused", "ends", "all"} }

// audit writes the lines of docs/audit.md. It is safe for concurrent use, and takes no lock for the
// grants and ends of short sections.
type audit struct {
	level  auditLevel
	log    zerolog.Logger
	tables *criticalTables
	proxy  string                          // the address that drivers are shown
	sums   atomic.Pointer[map[sumKey]*sum] // one for each role and table; the map is replaced, never changed

	mu    sync.Mutex                                    // guards roles, and the replacement and the end of sums
	roles *simplelru.LRU[string, *zerolog.BurstSampler] // bounds the lines about each role's refusals
}

// newAudit returns an audit that writes to log. setting is one of auditLevels.
func newAudit(log zerolog.Logger, setting, proxy string, tables *criticalTables) *audit {
	roles, err := simplelru.NewLRU[string, *zerolog.BurstSampler](rolesKept, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	a := &audit{level: auditLevel(slices.Index(auditLevels(), setting)), log: log, tables: tables, proxy: proxy, roles: roles}
	a.sums.Store(&map[sumKey]*sum{})
	return a
}

// takes reports whether nothing of a note is left to write: it is not audited at this level, or was
// added to a sum. If it returns false, the caller must call tell. by is the client
// that has ended the lock with UNLOCK or FORCE; zero if it has ended otherwise. It neither blocks
// nor allocates.
func (a *audit) takes(n *musiccore.Note, by *musiccore.Client) bool {
	switch {
	case a.level < noteLevel(n.Kind):
	case a.level < auditAll && isShort(n) && (by.Role == n.Client.Role || *by == musiccore.Client{}):
		a.sum(n)
	default:
		return false
	}
	return true
}

// noteLevel returns the lowest level at which a kind of note is audited.
func noteLevel(kind musiccore.NoteKind) auditLevel {
	switch kind {
	case musiccore.NoteForced:
		return auditRefused
	case musiccore.NoteEnded, musiccore.NoteOrphaned, musiccore.NotePreempted, musiccore.NoteTakenOver:
		return auditEnds
	case musiccore.NoteGranted:
		return auditAll
	}
	return auditAll + 1 // not audited
}

// isShort reports whether a note is the end of a short section: there are too many of those for a
// line each.
func isShort(n *musiccore.Note) bool {
	return n.Kind == musiccore.NoteEnded && n.State == musiccore.StateReleased && (n.InBlock || n.Client.OneWrite)
}

// tell writes a line for a note; by is as for takes.
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

// sumPeriod is the time between two lines for a sum.
const sumPeriod = time.Minute

// sumKey is the key by which short sections are summed up.
type sumKey struct {
	table    [16]byte
	role     string
	oneWrite bool
}

// sum is the sum of short sections since the last line for them. It ends when there have been none between two lines:
// else there would be one for each role that ever was.
type sum struct {
	sections atomic.Uint64 // sumOver or more once it has ended
	held     atomic.Int64  // ns
}

// sumOver is above every number of sections.
const sumOver = 1 << 63

// sum adds a section that has ended.
func (a *audit) sum(n *musiccore.Note) {
	key := sumKey{n.Key.Table, n.Client.Role, n.Client.OneWrite}
	s := (*a.sums.Load())[key]
	for s == nil || s.sections.Add(1) >= sumOver {
		s = a.newSum(key)
	}
	s.held.Add(int64(n.Duration))
}

// newSum adds the sum of a key, unless another goroutine has done so meanwhile, and returns it. It waits for a flush
// that ends sums.
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

// run writes the sums every sumPeriod, until ctx ends.
func (a *audit) run(ctx context.Context) {
	for pause(ctx, sumPeriod) {
		a.flush()
	}
}

// flush writes a line for each sum, and begins new ones.
func (a *audit) flush() {
	for k, n := range a.takeSums() {
		kind := map[bool]string{true: "one write", false: "handed over"}[k.oneWrite]
		a.named(a.begin().Str("role", k.role), k.table).Str("sections_of", kind).Uint64("sections", n.sections).
			Dur("held_ms", n.held).Msg("short sections ended")
	}
}

// sections are the short sections of a sum.
type sections struct {
	sections uint64
	held     time.Duration
}

// takeSums empties the sums and returns what they were. Those that were empty end.
func (a *audit) takeSums() map[sumKey]sections {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken, left := map[sumKey]sections{}, maps.Clone(*a.sums.Load())
	for k, s := range left {
		if n := s.sections.Swap(0); n > 0 {
			taken[k] = sections{n, time.Duration(s.held.Swap(0))}
		} else if s.sections.CompareAndSwap(0, sumOver) {
			delete(left, k)
		}
	}
	a.sums.Store(&left)
	return taken
}

// refusals bounds the lines about a role's refused attempts per minute, rolesKept the number of
// roles for which they are counted.
const (
	refusals  = 20
	rolesKept = 1000
)

// refused writes a line about a refused attempt, unless the role has had too many of them.
func (a *audit) refused(r frontend.Refusal) {
	switch {
	case a.level < auditRefused:
	case r.Lost:
		a.line(r.Key, r.Ref, r.By).Msg("operation fenced off")
	case a.sampler(r.By.Role).Sample(zerolog.InfoLevel):
		a.line(r.Key, r.Ref, r.By).Str("why", r.Why).Msg("attempt refused")
	}
}

// sampler returns the bound of the lines about a role's refusals.
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

// begin begins a line, with the fields that all lines have. It has a level like the log's lines,
// but is written whatever the level of the log.
func (a *audit) begin() *zerolog.Event {
	return a.log.Log().Stringer(zerolog.LevelFieldName, zerolog.InfoLevel).Bool("audit", true).Str("proxy", a.proxy)
}

// line begins a line about one lock, with client, reference, table and key.
func (a *audit) line(k musiccore.Key, r musiccore.LockRef, by musiccore.Client) *zerolog.Event {
	return a.keyed(a.begin().Str("role", by.Role).Str("client", by.Address).Int64("lock_ref", int64(r)), k)
}

// keyed adds table and key as LIST LOCKS shows them, or the bytes of a key whose table is no longer critical.
func (a *audit) keyed(e *zerolog.Event, k musiccore.Key) *zerolog.Event {
	e = a.named(e, k.Table)
	t := a.tables.table(k.Table)
	switch {
	case t == nil:
		return e.Hex("key", []byte(k.PK))
	case k.PK == "":
		return e.Str("key", "")
	}
	return e.Str("key", catalog.KeyText(t.Key, k.PK))
}

// named adds the name of a table, or its id if it is no longer critical.
func (a *audit) named(e *zerolog.Event, table [16]byte) *zerolog.Event {
	if t := a.tables.table(table); t != nil {
		return e.Stringer("table", t)
	}
	return e.Hex("table", table[:])
}
