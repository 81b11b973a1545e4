package config

import "slices"

// Changes returns the names of the settings in which two configurations differ: those that a
// running proxy takes over, and those for which it has to be started anew.
func Changes(before, after Config) (live, restart []string) {
	for _, s := range settings() {
		switch {
		case s.field(&before).get() == s.field(&after).get():
		case slices.Contains(reloaded(), s.name):
			live = append(live, s.name)
		default:
			restart = append(restart, s.name)
		}
	}
	return live, restart
}

// reloaded returns the settings that a running proxy takes over on SIGHUP.
func reloaded() []string { return []string{"log-level"} }
