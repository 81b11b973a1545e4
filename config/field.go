package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is one place of a Config seen as text: how it is read, shown and judged. It is made by the
// functions below, which are the kinds of settings there are.
type field struct {
	kind    string // the word that --help shows for a value
	allowed string // what a value may be, for people
	quoted  bool   // YAML must give a string: a number would have lost its zeros or turned into a date
	list    bool
	secret  bool
	get     func() string
	set     func(string) error
	check   func() error
}

// shown returns the value for people's eyes, a secret as ***.
func (f field) shown() string {
	if f.secret {
		return Secret(f.get()).String()
	}
	return f.get()
}

// Why a value is refused on its own; what is allowed is told beside it.
var (
	errRange    = errors.New("out of range")
	errUnknown  = errors.New("not a known value")
	errNumber   = errors.New("not a whole number")
	errDuration = errors.New("not a duration with its unit")
)

// text is a setting that may be any text, but for what its check in the table says.
func text(p *string, allowed string) field {
	return field{
		kind: "text", allowed: allowed, quoted: true,
		get:   func() string { return *p },
		set:   func(s string) error { *p = s; return nil },
		check: accept,
	}
}

// secret is a text that is never shown.
func secret(p *Secret, allowed string) field {
	return field{
		kind: "text", allowed: allowed, quoted: true, secret: true,
		get:   func() string { return string(*p) },
		set:   func(s string) error { *p = Secret(s); return nil },
		check: accept,
	}
}

// list is a setting of several texts, separated by commas where it is one text.
func list(p *[]string, allowed string) field {
	return field{
		kind: "list", allowed: allowed, quoted: true, list: true,
		get:   func() string { return strings.Join(*p, ",") },
		set:   func(s string) error { *p = splitList(s); return nil },
		check: accept,
	}
}

// choice is a setting of a few words.
func choice(p *string, words ...string) field {
	f := text(p, strings.Join(words, ", "))
	f.kind = "word"
	f.check = func() error {
		if !slices.Contains(words, *p) {
			return errUnknown
		}
		return nil
	}
	return f
}

// toggle is a setting that is on or off.
func toggle(p *bool) field {
	return field{
		kind: "on|off", allowed: "on, off",
		get: func() string {
			if *p {
				return "on"
			}
			return "off"
		},
		set: func(s string) error {
			if s != "on" && s != "off" {
				return errUnknown
			}
			*p = s == "on"
			return nil
		},
		check: accept,
	}
}

// number is a whole number from 1 to high.
func number(p *int, high int) field {
	return field{
		kind: "number", allowed: fmt.Sprintf("1 to %d", high),
		get: func() string { return strconv.Itoa(*p) },
		set: func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return errNumber
			}
			*p = n
			return nil
		},
		check: func() error { return within(*p, 1, high) },
	}
}

// duration is a time span between low and high, both included.
func duration(p *time.Duration, low, high time.Duration) field {
	return field{
		kind: "duration", allowed: fmt.Sprintf("%s to %s", shortDuration(low), shortDuration(high)),
		get: func() string { return shortDuration(*p) },
		set: func(s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				return errDuration
			}
			*p = d
			return nil
		},
		check: func() error { return within(*p, low, high) },
	}
}

// size is a number of bytes between low and high, both included.
func size(p *Size, low, high Size) field {
	return field{
		kind: "size", allowed: fmt.Sprintf("%s to %s", low, high),
		get: func() string { return p.String() },
		set: func(s string) error {
			n, err := parseSize(s)
			if err != nil {
				return errSize
			}
			*p = n
			return nil
		},
		check: func() error { return within(*p, low, high) },
	}
}

// accept is the check of fields that may have any value.
func accept() error { return nil }

// within returns errRange for a value below low or above high.
func within[T cmp.Ordered](v, low, high T) error {
	if v < low || v > high {
		return errRange
	}
	return nil
}

// splitList cuts a text at its commas and drops spaces and empty parts.
func splitList(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// shortDuration is Duration.String without the zeros at its end: "1h", not "1h0m0s".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
