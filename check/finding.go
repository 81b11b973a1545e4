package check

import (
	"fmt"
	"strings"
)

// Level is the severity of a finding.
type Level string

// The levels, from good to bad.
const (
	Fine    Level = "fine"
	Warning Level = "warning"
	Fault   Level = "fault"
)

// Finding is the result of one check.
type Finding struct {
	Level Level  `json:"level"`
	Topic string `json:"topic"` // a word that stays
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what to type or to change; empty where all is fine
}

// Status returns the exit status for these findings: 0 if all is right, 1 with warnings, 2 with
// faults.
func Status(all []Finding) int {
	status := 0
	for _, f := range all {
		switch f.Level {
		case Warning:
			status = max(status, 1)
		case Fault:
			status = 2
		}
	}
	return status
}

// judgement collects the findings of one topic.
type judgement struct {
	topic string
	all   []Finding
}

// fine adds that all is right, unless something was found.
func (j *judgement) fine(format string, args ...any) []Finding {
	if len(j.all) == 0 {
		j.all = append(j.all, Finding{Level: Fine, Topic: j.topic, Text: fmt.Sprintf(format, args...)})
	}
	return j.all
}

// add adds a finding; do is what to do about it.
func (j *judgement) add(level Level, do, format string, args ...any) {
	j.all = append(j.all, Finding{Level: level, Topic: j.topic, Text: fmt.Sprintf(format, args...), Do: do})
}

// some returns at most a few names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
