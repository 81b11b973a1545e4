package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MaxDuration is the longest wait or lease that can be asked for.
const MaxDuration = 24 * time.Hour

// Settings are the settings of a critical table, as given in its comment (docs/design.md 4).
type Settings struct {
	Unlocked Policy        // what becomes of a plain write
	Row      bool          // key=row: a lock covers one row
	Local    bool          // scope=local: a quorum is one of a single data centre …
	Centre   string        // … of this one; empty = of the first proxy that gets the table ready for locks
	Strict   bool          // strict=true: operations are acknowledged by a read of the lock row, not by the clock
	Lease    time.Duration // 0 = the proxy's default
	Ignore   bool          // timestamp=ignore: USING TIMESTAMP is removed from writes instead of refused
}

// ErrSpelling means that the text around @critical could be meant as settings but is not written as
// such.
var ErrSpelling = errors.New("write the settings in parentheses right after @critical, as in @critical(unlocked:auto); @critical may stand once, and free text before it")

// ReadSettings reads @critical, @critical(name:value, …) or @critical value from a table's comment.
// marked reports whether the comment has @critical as a word. name=value means the same as
// name:value, and a value that only one setting has may stand without the name. The error joins the
// first faults, and the settings are the defaults if there is one. It wraps ErrSpelling if free text
// and settings cannot be told apart.
func ReadSettings(comment string) (s Settings, marked bool, err error) {
	marks := regexp.MustCompile(`(?i)(?:^|[^\w@])@critical\b`).FindAllStringIndex(comment, 2)
	if marks == nil {
		return Settings{}, false, nil
	}
	behind := comment[marks[0][1]:]
	bracket := strings.TrimLeft(behind, " \t\r\n")
	apart := len(bracket) < len(behind)
	list := ""
	if strings.HasPrefix(bracket, "(") {
		var closed bool
		if list, behind, closed = strings.Cut(bracket[1:], ")"); !closed {
			return Settings{}, true, errors.New("@critical(… has no closing parenthesis")
		}
	} else if word := strings.ToLower(strings.TrimRight(bracket, " \t\r\n")); apart && settingOf(word) != "" {
		list, behind = word, "" // nothing else follows, so it is not part of a sentence
	}
	s, err = parseSettings(list)
	switch {
	case err != nil && apart:
		err = fmt.Errorf("%w: %w", ErrSpelling, err)
	case err == nil && (len(marks) > 1 || unclearBehind(behind) || looksLikeSetting(comment[:marks[0][0]]+" "+behind)):
		s, err = Settings{}, ErrSpelling
	}
	return s, true, err
}

// settingOf returns the name of the only setting that has this value; "" for any other word.
func settingOf(value string) string {
	switch value {
	case "reject", "allow", "auto":
		return "unlocked"
	case "partition", "row":
		return "key"
	case "global", "local":
		return "scope"
	}
	return ""
}

// readSetting reads name:value, name=value, or a value alone, in lower case except for the name of a
// data centre.
func readSetting(setting string) (name, value string) {
	if value = strings.ToLower(strings.TrimSpace(setting)); settingOf(value) != "" {
		return settingOf(value), value
	}
	at := strings.IndexAny(setting, "=:")
	if at < 0 {
		return value, ""
	}
	name, value = strings.ToLower(strings.TrimSpace(setting[:at])), strings.TrimSpace(setting[at+1:])
	if name == "dc" {
		return name, value
	}
	return name, strings.ToLower(value)
}

// mostFaults is how many faults of settings are told at once: a comment has room for millions.
const mostFaults = 10

// parseSettings reads settings with commas between them, up to so many faults; the error joins them.
func parseSettings(list string) (s Settings, err error) {
	var faults []error
	given := map[string]bool{}
	for setting := range strings.SplitSeq(list, ",") {
		if len(faults) >= mostFaults {
			break
		}
		if strings.TrimSpace(setting) == "" {
			continue
		}
		name, value := readSetting(setting)
		if given[name] {
			faults = append(faults, fmt.Errorf("%.80s stands twice", name))
		}
		given[name] = true
		if err := s.set(name, value); err != nil {
			faults = append(faults, err)
		}
	}
	if s.Centre != "" && !s.Local {
		faults = append(faults, errors.New("dc is for scope=local only"))
	}
	if len(faults) > 0 {
		return Settings{}, errors.Join(faults...)
	}
	return s, nil
}

// unclearBehind reports whether the text after @critical may be a setting: it is neither empty nor
// clearly the rest of a sentence.
func unclearBehind(text string) bool {
	const space, marks = " \t\r\n", ".,;!?)'\""
	if text != "" && !strings.ContainsRune(space+marks, rune(text[0])) {
		return true
	}
	words := strings.TrimLeft(text, space+marks)
	word := strings.ToLower(regexp.MustCompile(`^[\pL\pN]*`).FindString(words))
	if word == "" {
		return words != ""
	}
	return slices.Contains(strings.Fields("unlocked key lease strict scope timestamp reject allow auto partition row global local"), word)
}

// looksLikeSetting reports whether free text contains a setting.
func looksLikeSetting(text string) bool {
	return regexp.MustCompile(`(?i)\b(unlocked|key|lease|strict|scope|timestamp)\s*[=:]`).MatchString(text)
}

// set sets one setting by its name and value, as readSetting returns them.
func (s *Settings) set(name, value string) error {
	switch name + "=" + value {
	case "unlocked=reject":
		s.Unlocked = Reject
	case "unlocked=allow":
		s.Unlocked = Allow
	case "unlocked=auto":
		s.Unlocked = Auto
	case "key=partition", "key=row":
		s.Row = value == "row"
	case "scope=global", "scope=local":
		s.Local = value == "local"
	case "strict=false", "strict=true":
		s.Strict = value == "true"
	case "timestamp=refuse", "timestamp=ignore":
		s.Ignore = value == "ignore"
	default:
		return s.setOther(name, value)
	}
	return nil
}

// setOther sets the lease or the data centre, and returns an error for any other name.
func (s *Settings) setOther(name, value string) error {
	if values := valuesOf(name); values != "" {
		return fmt.Errorf("%s is %s, not %.80q", name, values, value)
	}
	switch name {
	case "dc":
		if value == "" {
			return errors.New("dc needs the name of a data centre")
		}
		s.Centre = value
		return nil
	case "lease":
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Second || d > MaxDuration {
			return fmt.Errorf("lease %.80q is not a duration from 1s to %v", value, MaxDuration)
		}
		s.Lease = d
		return nil
	}
	return fmt.Errorf("there is no setting %.80q: there are unlocked, key, lease, strict, scope, dc, timestamp", name)
}

// valuesOf returns the values that a setting can have; "" if they are not a few words.
func valuesOf(name string) string {
	switch name {
	case "unlocked":
		return "reject, auto or allow"
	case "key":
		return "partition or row"
	case "strict":
		return "false or true"
	case "scope":
		return "global or local"
	case "timestamp":
		return "refuse or ignore"
	}
	return ""
}

// String returns the canonical spelling of the settings, which is stored in Cassandra and shown to
// users.
func (s Settings) String() string {
	unlocked := [...]string{Reject: "reject", Allow: "allow", Auto: "auto"}[s.Unlocked]
	key := "partition"
	if s.Row {
		key = "row"
	}
	text := "unlocked=" + unlocked + ", key=" + key
	if s.Strict {
		text += ", strict=true"
	}
	if s.Local {
		text += ", scope=local"
	}
	if s.Ignore {
		text += ", timestamp=ignore"
	}
	if s.Lease > 0 {
		text += ", lease=" + s.Lease.String()
	}
	if s.Centre != "" {
		text += ", dc=" + s.Centre
	}
	return text
}

// CanChangeTo reports whether the table may get other settings. Key, scope and data centre cannot
// change once there are lock rows: holders from before and after would not exclude each other.
func (c *Critical) CanChangeTo(s Settings) bool {
	return !c.Made || s.Row == c.Row && s.Local == c.Local && (s.Centre == "" || s.Centre == c.Centre)
}
