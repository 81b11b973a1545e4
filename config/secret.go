package config

import (
	"fmt"
	"io"
)

// Secret is a text that does not get into logs by accident: every verb of fmt, JSON and YAML show
// *** in its place, or nothing where it is empty. A conversion to string gives the text itself.
type Secret string

// String returns *** for any secret but the empty one.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// Format covers the verbs that would otherwise pass String by, %#v and mistaken ones like %d.
func (s Secret) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, s.String())
}

// MarshalText is what encoders write for a secret: what String returns.
func (s Secret) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}
