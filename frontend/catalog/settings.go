package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MaxDuration is more than any wait or lease.
const MaxDuration = 24 * time.Hour

// Settings are what a table's comment says about its criticality (docs/design.md 4).
type Settings struct {
	Unlocked Policy        // what a plain write gets
	Row      bool          // key=row: a lock covers one row
	Local    bool          // scope=local: a quorum of one data centre
	Strict   bool          // an operation is acknowledged by the lock row and not by the clock
	Lease    time.Duration // 0 = the proxy's default
	Ignore   bool          // timestamp=ignore: USING TIMESTAMP is left out, and not refused
}

// ErrSpelling says that what stands around @critical may be meant as settings and is not written as
// such.
var ErrSpelling = errors.New("settings stand in brackets right behind the one @critical, as in @critical(unlocked:auto); free text stands before it")

// ReadSettings reads @critical, @critical(name:value, …) or @critical value, where it stands as a
// word in a table's comment; marked reports whether it does. name=value is the same as name:value,
// and a value that only one setting has may stand alone. Every fault of the settings is in the
// error, and the settings are the defaults then. The error is an ErrSpelling where free text and
// settings cannot be told apart.
func ReadSettings(comment string) (s Settings, marked bool, err error) {
	marks := regexp.MustCompile(`(?i)(?:^|[^\w@])@critical\b`).FindAllStringIndex(comment, -1)
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
			return Settings{}, true, errors.New("@critical(… has no closing bracket")
		}
	} else if word := strings.ToLower(strings.TrimRight(bracket, " \t\r\n")); apart && settingOf(word) != "" {
		list, behind = word, "" // it is all that follows: no sentence
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

// settingOf returns the setting that a value belongs to, of those values that may stand alone; ""
// for any other word.
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

// readSetting reads name:value, name=value, or a value alone, in lower case.
func readSetting(setting string) (name, value string) {
	setting = strings.ToLower(strings.TrimSpace(setting))
	if name = settingOf(setting); name != "" {
		return name, setting
	}
	at := strings.IndexAny(setting, "=:")
	if at < 0 {
		return setting, ""
	}
	return strings.TrimSpace(setting[:at]), strings.TrimSpace(setting[at+1:])
}

// parseSettings reads settings with commas between them; the error joins all faults.
func parseSettings(list string) (s Settings, err error) {
	var faults []error
	given := map[string]bool{}
	for _, setting := range strings.Split(list, ",") {
		if strings.TrimSpace(setting) == "" {
			continue
		}
		name, value := readSetting(setting)
		if given[name] {
			faults = append(faults, fmt.Errorf("%s stands twice", name))
		}
		given[name] = true
		if err := s.set(name, value); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return Settings{}, errors.Join(faults...)
	}
	return s, nil
}

// unclearBehind reports whether what follows @critical is neither the end of a sentence nor further
// words of one.
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

// looksLikeSetting reports whether a setting stands in free text.
func looksLikeSetting(text string) bool {
	return regexp.MustCompile(`(?i)\b(unlocked|key|lease|strict|scope|timestamp)\s*[=:]`).MatchString(text)
}

// set sets one setting by its name and value, both in lower case.
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
		return s.setLease(name, value)
	}
	return nil
}

// setLease sets the lease; any other name or value is refused.
func (s *Settings) setLease(name, value string) error {
	switch name {
	case "unlocked", "key", "strict", "scope", "timestamp":
		return fmt.Errorf("%s cannot be %q", name, value)
	case "lease":
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Second || d > MaxDuration {
			return fmt.Errorf("lease %q is no duration from 1s to %v", value, MaxDuration)
		}
		s.Lease = d
		return nil
	}
	return fmt.Errorf("there is no setting %q: there are unlocked, key, lease, strict, scope, timestamp", name)
}

// String returns the one spelling of the settings, as it is stored and told.
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
	return text
}

// CanChangeTo reports whether the table may get other settings. Key and scope stay while there are
// lock rows: the holders of before and after would not know of each other.
func (c *Critical) CanChangeTo(s Settings) bool {
	return !c.Made || s.Row == c.Row && s.Local == c.Local
}
