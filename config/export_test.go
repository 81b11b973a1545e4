package config

import (
	"fmt"
	"strings"
)

// Reference returns the page of the documentation that lists every setting, as Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	defaults := Default()
	for _, s := range settings() {
		f := s.field(&defaults)
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", s.name, envName(s.name), code(f.get()), f.allowed, s.usage, s.reload)
	}
	b.WriteString(referenceTail)
	return b.String()
}

// code sets a text as code; an empty one stays empty.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// referenceHead opens the page: where settings come from and which of them wins.
const referenceHead = `# Configuration

Generated from the table of settings in the package config (` + "`make docs`" + `).

` + "`music proxy`" + ` takes each setting from the first of these that gives it:

1. a flag: ` + "`--contact-points 10.0.0.1,10.0.0.2`" + `
2. an environment variable: ` + "`MUSIC_CONTACT_POINTS=10.0.0.1,10.0.0.2`" + `
3. the YAML file that ` + "`--config FILE`" + ` or ` + "`MUSIC_CONFIG`" + ` names
4. the default

Only ` + "`contact-points`" + ` has to be given. Every fault is reported at once, and the proxy then ends with
status 2. An unknown key in the file or an unknown ` + "`MUSIC_…`" + ` variable is a fault too; the variables that
Kubernetes makes for a Service called music are passed over.

SIGHUP has the proxy read all of this again. What holds at once then, and what waits for a restart, stands in the last column; the proxy
names both in its log. Where the new configuration has faults, all of it stays as it was. A lower limit concerns what comes: connections and
statements that are there stay. ` + "`critical`" + ` only grows while a proxy runs: a table that a pattern names anew takes no plain write there from the
next look at the schema on (a quarter of a second), and gets locks once all proxies have the same patterns, by reload or restart. ` + "`audit-file`" + `
is opened again. Files of certificates and keys hold from the next connection on as soon as they change, without any signal.

| setting (flag, YAML key) | environment | default | allowed | meaning | a change holds |
|---|---|---|---|---|---|
`

// referenceTail closes the page with a file to start from.
const referenceTail = `
Durations carry their unit (` + "`1.5s`, `500ms`, `2m`" + `), sizes may (` + "`16MiB`, `64KiB`, `4096`" + `). In the file, texts that
look like numbers need quotes. A password is better off in a file or in the environment than on the command line,
and is never printed.

` + "```yaml" + `
contact-points: [10.0.0.1, 10.0.0.2]
listen: 0.0.0.0:9042
advertise: 10.0.0.7
username: music
password-file: /run/secrets/cassandra
local-dc: dc1
` + "```" + `
`
