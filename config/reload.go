package config

import "slices"

// reload says when a running proxy takes a change of a setting over, in the words of the reference.
type reload string

// What SIGHUP does with a changed setting.
const (
	atRestart reload = ""
	atOnce    reload = "at once"
	widened   reload = "more at once, fewer after a restart"
	byItself  reload = "the file's content at once" // without SIGHUP; which file it is after a restart
)

// String returns the words of the reference.
func (r reload) String() string {
	if r == atRestart {
		return "after a restart"
	}
	return string(r)
}

// Reload returns what a proxy that runs with one configuration runs with once next has been loaded.
// taken names the settings that it takes over from next; restart names those in which the two still
// differ: next holds after a restart.
func Reload(running, next Config) (now Config, taken, restart []string) {
	now = running
	for _, s := range settings() {
		value, wanted := s.field(&now), s.field(&next).get()
		before := value.get()
		switch s.reload {
		case atOnce:
			_ = value.set(wanted) // it was loaded from its text
		case widened:
			now.Music.Critical = union(running.Music.Critical, next.Music.Critical)
		}
		if value.get() != before {
			taken = append(taken, s.name)
		}
		if value.get() != wanted || s.name == "peer-secret-file" && now.Peers.Secret != next.Peers.Secret {
			restart = append(restart, s.name)
		}
	}
	return now, taken, restart
}

// union returns the texts of one list and what another has beside them.
func union(one, other []string) []string {
	all := slices.Clone(one)
	for _, text := range other {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
