// Command player does what it is told on its standard input, a line each, with the locks of this module: the tests play the same stories
// with every language. A line is "STORY ACTOR VERB ARGUMENTS"; what came of it is told as "STORY ACTOR OUTCOME".
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"

	music "music/clients/gocql1"
)

// What the stories write and read, in the table of theirs.
const (
	update = "UPDATE %s USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?"
	read   = "SELECT balance FROM %s WHERE branch = ? AND id = ? USING LOCK ?"
	plain  = "UPDATE %s SET balance = ? WHERE branch = ? AND id = ?"
)

var errFailed = errors.New("the section fails")

// story is one session and who acts in it.
type story struct {
	mu      sync.Mutex
	session *gocql.Session
	table   string
	actors  map[string]*actor
}

// actor does one thing after another, in a goroutine of its own.
type actor struct {
	name   string // story and actor
	story  *story
	does   chan []string
	cancel context.CancelFunc // of the Hold under way; guarded by story.mu
	lock   *music.Lock        // guarded by story.mu
}

func main() {
	stories := map[string]*story{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		s := stories[words[0]]
		if s == nil {
			s = &story{actors: map[string]*actor{}}
			stories[words[0]] = s
		}
		s.actor(words[0], words[1]).take(words[2:])
	}
}

// actor returns the one of that name.
func (s *story) actor(id, name string) *actor {
	if s.actors[name] == nil {
		a := &actor{name: id + " " + name, story: s, does: make(chan []string, 10)}
		s.actors[name] = a
		go func() { _ = a.act(context.Background(), nil) }()
	}
	return s.actors[name]
}

// take hands a command on; cancel is not to wait for its turn.
func (a *actor) take(words []string) {
	if words[0] != "cancel" {
		a.does <- words
		return
	}
	a.story.mu.Lock()
	defer a.story.mu.Unlock()
	a.cancel()
}

// say tells an outcome, which is written in one piece.
func (a *actor) say(outcome string) { fmt.Println(a.name, outcome) }

// act is an actor's life, outside of a section and within one.
func (a *actor) act(ctx context.Context, lock *music.Lock) error {
	for words := range a.does {
		verb, args := words[0], words[1:]
		switch verb {
		case "open":
			a.say(a.open(args[0], args[1]))
		case "hold", "try":
			a.section(verb, args)
		case "once":
			ran, err := music.Once(ctx, a.story.session, args[0], args[1], func(ctx context.Context, _ *music.Lock) error {
				a.say("works")
				if len(args) == 2 {
					return nil
				}
				_, _, err := music.TryHold(ctx, a.story.session, music.Ask{Table: a.story.table, Key: music.Key{"branch": "zurich"}})
				return err
			})
			a.say(outcome(err, map[bool]string{true: "ran", false: "not run"}[ran]))
		case "locker":
			a.say(a.locker())
		case "close":
			a.story.session.Close()
			a.say("closed")
		case "release":
			return nil
		case "fail":
			return errFailed
		case "lost":
			<-ctx.Done()
			a.say(outcome(context.Cause(ctx), ""))
		case "check":
			a.say(map[bool]string{true: "lost", false: "not lost"}[cmp.Or(lock, a.lock).Lost()])
		default:
			a.say(a.write(ctx, verb, args))
		}
	}
	return nil
}

// open connects.
func (a *actor) open(address, table string) string {
	host, port, _ := strings.Cut(address, ":")
	c := gocql.NewCluster(host)
	c.Port, _ = strconv.Atoi(port)
	c.NumConns, c.ProtoVersion = 1, 4
	c.Events.DisableTopologyEvents, c.Events.DisableNodeStatusEvents, c.Events.DisableSchemaEvents = true, true, true
	c.Timeout, c.ConnectTimeout, c.WriteTimeout = 2*time.Second, 10*time.Second, 10*time.Second
	c.ReconnectInterval = 100 * time.Millisecond
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: 50 * time.Millisecond}
	c.Logger = silent{}
	session, err := c.CreateSession()
	a.story.session, a.story.table = session, table
	return outcome(err, "open")
}

// section is one lock from Hold to Release.
func (a *actor) section(verb string, args []string) {
	ask := music.Ask{Table: a.story.table, Key: music.Key{"branch": "zurich"}}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "wait":
			ask.Wait = time.Duration(n) * time.Millisecond
		case "lease":
			ask.Lease = time.Duration(n) * time.Millisecond
		case "as":
			ask.As = value
		case "table":
			ask.Table = value
		default:
			ask.Key[name] = value
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.story.mu.Lock()
	a.cancel = cancel
	a.story.mu.Unlock()
	hold := music.Hold
	if verb == "try" {
		hold = music.TryHold
	}
	lock, held, err := hold(ctx, a.story.session, ask)
	if err != nil {
		a.say(outcome(err, ""))
		return
	}
	a.story.mu.Lock()
	a.lock = lock
	a.story.mu.Unlock()
	died := map[bool]string{true: " after a death"}[lock.OwnerDied]
	a.say(fmt.Sprintf("held %d%s", lock.Token, died))
	failed := a.act(held, lock)
	released := lock.Release()
	if again := lock.Release(); !errors.Is(again, released) {
		a.say("released twice")
	}
	if failed != nil {
		a.say("failed")
	}
	switch {
	case released == nil:
		a.say("released")
	case errors.Is(released, music.ErrLost):
		a.say("lost")
	default:
		a.say("left")
	}
}

// text is a statement on the table.
func (s *story) text(statement string) string { return fmt.Sprintf(statement, s.table) }

// locker locks and unlocks a sync.Locker twice, by two goroutines at once.
func (a *actor) locker() string {
	locker := music.NewLocker(a.story.session, music.Ask{Table: a.story.table, Key: music.Key{"branch": "zurich"}})
	inside, done := 0, make(chan string, 2)
	for range 2 {
		go func(l sync.Locker) {
			defer func() {
				err, _ := recover().(error)
				done <- outcome(err, "")
			}()
			l.Lock()
			inside++
			l.Unlock()
		}(locker)
	}
	for range 2 {
		if failed := <-done; failed != "" {
			return "panic: " + failed
		}
	}
	return fmt.Sprint("locked ", inside)
}

// write writes under the lock of the actor, or of another one.
func (a *actor) write(ctx context.Context, verb string, args []string) string {
	s := a.story
	s.mu.Lock()
	lock := a.lock
	if len(args) > 1 {
		lock = s.actors[args[1]].lock
	}
	s.mu.Unlock()
	balance, _ := strconv.ParseInt(args[0], 10, 64)
	statement := s.text(map[bool]string{true: plain, false: update}[verb == "settle-plain"])
	write := func(ctx context.Context) error {
		return s.session.Bind(statement, lock.Bind(balance, "zurich", "x")).WithContext(ctx).Exec()
	}
	switch verb {
	case "write":
		return outcome(write(context.WithoutCancel(ctx)), "written")
	case "batch":
		b := s.session.NewBatch(gocql.UnloggedBatch)
		b.Bind(s.text(update), lock.Bind(balance, "zurich", "x"))
		b.Bind(s.text(update), lock.Bind(balance+1, "zurich", "y"))
		return outcome(s.session.ExecuteBatch(b.WithContext(ctx)), "written")
	case "plain":
		return outcome(s.session.Bind(s.text(plain), lock.Bind(balance, "zurich", "x")).WithContext(ctx).Exec(), "written")
	case "read":
		var there int64
		err := s.session.Bind(s.text(read), lock.Bind("zurich", "x")).WithContext(ctx).Scan(&there)
		return outcome(err, fmt.Sprint("reads ", there))
	case "settle", "settle-plain":
		landed, err := lock.Settle(ctx, write, func(ctx context.Context) (bool, error) {
			var there int64
			err := s.session.Bind(s.text(read), lock.Bind("zurich", "x")).WithContext(ctx).Scan(&there)
			return there == balance, err
		})
		return outcome(err, map[bool]string{true: "landed", false: "not landed"}[landed])
	}
	return "what is " + verb
}

// outcome is what came of something, in words that all languages share.
func outcome(err error, good string) string {
	var told gocql.RequestError
	switch {
	case err == nil:
		return good
	case errors.Is(err, music.ErrNoProxy):
		return "no proxy"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, music.ErrLost), strings.Contains(err.Error(), "MUSIC_LOST"):
		return "lost"
	case errors.Is(err, music.ErrNotAcquired):
		return "not acquired"
	case strings.Contains(err.Error(), "USING LOCK ?"):
		return "no marker"
	case errors.As(err, &told):
		return "error " + regexp.MustCompile(`^[A-Z_]+`).FindString(told.Message())
	}
	return "error"
}

// silent is a log that nobody reads.
type silent struct{}

// Print does nothing.
func (silent) Print(...any) {}

// Printf does nothing.
func (silent) Printf(string, ...any) {}

// Println does nothing.
func (silent) Println(...any) {}
