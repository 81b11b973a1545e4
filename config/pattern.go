package config

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errPattern means that a text does not name tables.
var errPattern = errors.New("not keyspace.table")

// errOwnKeyspace means that a pattern names tables that are critical by no pattern.
var errOwnKeyspace = errors.New("a keyspace with a name like those of Cassandra itself, of which no pattern makes a table critical: its comment does")

// errManyTables means that metrics-tables names too many tables.
var errManyTables = fmt.Errorf("more than %d", maxMetricsTables)

// CriticalByName reports whether one of the patterns of the setting critical names a table, whose
// keyspace and name are given as Cassandra knows them. The keyspaces of Cassandra itself and that
// of the proxies are named by none.
func (m Music) CriticalByName(keyspace, table string) bool {
	if ofCassandra(keyspace) || keyspace == "music" {
		return false
	}
	for _, pattern := range m.Critical {
		if keyspaceGlob, tableGlob, err := splitPattern(pattern); err == nil && glob(keyspaceGlob, keyspace) && glob(tableGlob, table) {
			return true
		}
	}
	return false
}

// ofCassandra reports whether a keyspace has a name like those of Cassandra itself: which there are depends on the
// release.
func ofCassandra(keyspace string) bool {
	return keyspace == "system" || strings.HasPrefix(keyspace, "system_")
}

// TableName names one table, as Cassandra knows it.
type TableName struct{ Keyspace, Table string }

// String returns keyspace.table.
func (t TableName) String() string { return t.Keyspace + "." + t.Table }

// NamedTables returns the tables of the setting metrics-tables.
func (m Music) NamedTables() []TableName {
	var all []TableName
	for _, name := range m.MetricsTables {
		if keyspace, table, err := splitPattern(name); err == nil {
			all = append(all, TableName{keyspace, table})
		}
	}
	return all
}

// maxMetricsTables bounds what one scrape may grow to.
const maxMetricsTables = 50

// checkMetricsTables refuses texts that do not name exactly one table each.
func checkMetricsTables(c *Config) error {
	if len(c.Music.MetricsTables) > maxMetricsTables {
		return errManyTables
	}
	for _, name := range c.Music.MetricsTables {
		if _, _, err := splitPattern(name); err != nil || strings.ContainsAny(name, "*?") {
			return errPattern
		}
	}
	return nil
}

// CriticalRules says which tables are critical by the setting, in one way of writing: two proxies
// for which it is the same judge every table alike.
func (m Music) CriticalRules() string {
	var all []string
	for _, pattern := range m.Critical {
		if keyspaceGlob, tableGlob, err := splitPattern(pattern); err == nil {
			all = append(all, strconv.Quote(keyspaceGlob)+"."+strconv.Quote(tableGlob))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// splitPattern cuts a pattern into the two names, folded as CQL folds them: what stands in double
// quotes stays as it is.
func splitPattern(pattern string) (keyspace, table string, err error) {
	names := regexp.MustCompile(`^("[\w*?]+"|[\w*?]+)\.("[\w*?]+"|[\w*?]+)$`).FindStringSubmatch(pattern)
	if names == nil {
		return "", "", errPattern
	}
	return foldName(names[1]), foldName(names[2]), nil
}

// foldName is a name as Cassandra knows it.
func foldName(name string) string {
	if quoted, ok := strings.CutPrefix(name, `"`); ok {
		return strings.TrimSuffix(quoted, `"`)
	}
	return strings.ToLower(name)
}

// glob reports whether a name matches a pattern, in which * means any letters and ? one letter.
func glob(form, name string) bool {
	ok, err := path.Match(form, name)
	return ok && err == nil
}

// checkCritical refuses a pattern that names no tables, or none that would be critical by it.
func checkCritical(c *Config) error {
	for _, pattern := range c.Music.Critical {
		keyspace, _, err := splitPattern(pattern)
		switch {
		case err != nil:
			return err
		case ofCassandra(keyspace):
			return errOwnKeyspace
		}
	}
	return nil
}
