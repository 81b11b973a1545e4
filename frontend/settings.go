package frontend

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Settings are what a table's comment says about its criticality (DESIGN.md 4).
type Settings struct {
	Unlocked Policy        // what a plain write gets
	Row      bool          // key=row: a lock covers one row
	Local    bool          // scope=local: a quorum of one data centre
	Strict   bool          // an operation is acknowledged by the lock row and not by the clock
	Lease    time.Duration // 0 = the proxy's default
}

// ReadSettings finds @critical or @critical(name=value, …) as a word in a table's comment. marked tells whether it is there.
// Every fault of the settings is in the error, and the settings are the defaults then.
func ReadSettings(comment string) (s Settings, marked bool, err error) {
	match := regexp.MustCompile(`(?i)(?:^|[^\w@])@critical\b(\([^)]*\)?)?`).FindStringSubmatch(comment)
	if match == nil {
		return Settings{}, false, nil
	}
	list := match[1]
	if list != "" && !strings.HasSuffix(list, ")") {
		return Settings{}, true, errors.New("@critical(… has no closing bracket")
	}
	var faults []error
	for _, setting := range strings.Split(strings.Trim(list, "()"), ",") {
		if strings.TrimSpace(setting) == "" {
			continue
		}
		name, value, _ := strings.Cut(setting, "=")
		if err := s.set(strings.ToLower(strings.TrimSpace(name)), strings.ToLower(strings.TrimSpace(value))); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return Settings{}, true, errors.Join(faults...)
	}
	return s, true, nil
}

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
	default:
		return s.setLease(name, value)
	}
	return nil
}

func (s *Settings) setLease(name, value string) error {
	switch name {
	case "unlocked", "key", "strict", "scope":
		return fmt.Errorf("%s cannot be %q", name, value)
	case "lease":
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Second || d > maxDuration {
			return fmt.Errorf("lease %q is no duration from 1s to %v", value, maxDuration)
		}
		s.Lease = d
		return nil
	}
	return fmt.Errorf("there is no setting %q: there are unlocked, key, lease, strict, scope", name)
}

// String is the one spelling of the settings, as it is stored and told.
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
	if s.Lease > 0 {
		text += ", lease=" + s.Lease.String()
	}
	return text
}

// stays refuses other settings of key and scope while there are lock rows: the holders of before and after would not know of each other.
func (c *Critical) stays(s Settings) *Failure {
	if !c.Made || s.Row == c.Row && s.Local == c.Local {
		return nil
	}
	return invalid("MUSIC_REFUSED: the table is critical with %s: key and scope stay until it is ordinary again (take @critical out of the comment, then drop its %s… table)",
		c.Settings, CompanionPrefix)
}
