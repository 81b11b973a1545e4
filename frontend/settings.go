package frontend

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"music/rewrite"
)

// Settings are what a table's comment says about its criticality (DESIGN.md 4).
type Settings struct {
	Unlocked Policy        // what a plain write gets
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
	case "key=partition", "strict=false", "scope=global":
	case "unlocked=auto", "key=row", "strict=true", "scope=local":
		return fmt.Errorf("%s=%s is not served yet", name, value)
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
	unlocked := "reject"
	if s.Unlocked == Allow {
		unlocked = "allow"
	}
	text := "unlocked=" + unlocked + ", key=partition"
	if s.Lease > 0 {
		text += ", lease=" + s.Lease.String()
	}
	return text
}

// MinGrace is the shortest gc_grace_seconds of a critical table: a fence is a tombstone, and must outlive hints.
const MinGrace = 24 * 60 * 60

// checkDDL refuses a CREATE or ALTER TABLE that would make a table critical which cannot be, or with settings that do not exist:
// afterwards it would be too late to tell whoever wrote it. What its text does not show is told in a warning of the answer.
func checkDDL(text []byte) *Failure {
	d := readDDL(text)
	_, marked, err := ReadSettings(d.comment)
	switch {
	case err != nil:
		return invalid("MUSIC_REFUSED: the comment's @critical cannot be served: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	case marked && d.counters:
		return invalid("MUSIC_REFUSED: a table of counters cannot be critical: they take no timestamps")
	case marked && d.grace >= 0 && d.grace < MinGrace:
		return invalid("MUSIC_REFUSED: a critical table needs gc_grace_seconds of a day or more: fences must last")
	}
	return nil
}

// ddl is what the text of a CREATE or ALTER TABLE shows of what matters here.
type ddl struct {
	comment  string
	counters bool  // a column's type is counter
	grace    int64 // gc_grace_seconds, -1 where it is not given
}

// readDDL looks at three tokens at a time: name = value, and column type.
func readDDL(text []byte) ddl {
	d := ddl{grace: -1}
	lex := rewrite.NewLexer(text)
	var name, middle rewrite.Token
	for t := lex.Next(); t.Kind != rewrite.TokenEOF && t.Kind != rewrite.TokenInvalid; t = lex.Next() {
		if middle.Kind == '=' {
			d.property(text, name, t)
		}
		d.counters = d.counters || t.Kind == rewrite.TokenIdent && isWord(text, t, "counter") &&
			(middle.Kind == rewrite.TokenIdent || middle.Kind == rewrite.TokenQuoted)
		name, middle = middle, t
	}
	return d
}

// property notes a property of the table.
func (d *ddl) property(text []byte, name, value rewrite.Token) {
	switch {
	case isWord(text, name, "comment") && value.Kind == rewrite.TokenString:
		if comment, err := rewrite.String(text, rewrite.Term{Kind: rewrite.TermString, Span: value.Span, Marker: -1}); err == nil {
			d.comment = comment
		}
	case isWord(text, name, "gc_grace_seconds") && value.Kind == rewrite.TokenInteger:
		if grace, err := strconv.ParseInt(string(value.Of(text)), 10, 64); err == nil {
			d.grace = grace
		}
	}
}

// isWord tells whether a token is a word, in any case.
func isWord(text []byte, t rewrite.Token, word string) bool {
	return strings.EqualFold(string(t.Of(text)), word)
}
