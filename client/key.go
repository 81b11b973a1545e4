package client

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Key is the key of a lock: a table, and the key as conditions of CQL.
type Key struct {
	Table string // as CQL has it
	Where string // "" = of the whole table
}

// Why a key cannot be read.
var (
	ErrTable = errors.New("not a table: write keyspace.table")
	ErrKey   = errors.New("not a key of the table")
)

// Named returns the key of a named lock.
func Named(name string) Key { return Key{Table: "music.named", Where: "name = " + Quote(name)} }

// column is a column of a table.
type column struct{ name, kind, cqlType string }

// Key parses the words that people give a key as: the value, if the partition key has one column,
// or column=value for each. A value is written as in CQL; quotes around texts may be left out.
func (s *Session) Key(ctx context.Context, table string, words []string) (Key, error) {
	keyspace, name, err := tableName(table)
	if err != nil {
		return Key{}, err
	}
	columns, err := s.columns(ctx, keyspace, name)
	if err != nil {
		return Key{}, err
	}
	return keyOf(table, columns, words)
}

// IsTable reports whether a word is the name of a table, keyspace.table.
func (s *Session) IsTable(ctx context.Context, word string) (bool, error) {
	keyspace, name, err := tableName(word)
	if err == nil {
		_, err = s.columns(ctx, keyspace, name)
	}
	if errors.Is(err, ErrTable) {
		return false, nil
	}
	return err == nil, err
}

// columns returns the columns of a table.
func (s *Session) columns(ctx context.Context, keyspace, name string) ([]column, error) {
	var all []column
	cql := "SELECT column_name, kind, type FROM system_schema.columns WHERE keyspace_name = " + Quote(keyspace) + " AND table_name = " + Quote(name)
	_, err := s.Rows(ctx, cql, func(scan func(...any) bool) bool {
		var c column
		more := scan(&c.name, &c.kind, &c.cqlType)
		if more {
			all = append(all, c)
		}
		return more
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: there is no %s.%s", ErrTable, keyspace, name)
	}
	return all, err
}

// keyOf returns words as conditions.
func keyOf(table string, columns []column, words []string) (Key, error) {
	var partition []column
	byName := map[string]column{}
	for _, c := range columns {
		byName[c.name] = c
		if c.kind == "partition_key" {
			partition = append(partition, c)
		}
	}
	var parts []string
	for _, word := range words {
		name, value, given := strings.Cut(word, "=")
		c, known := byName[name]
		if !given || !known {
			if len(words) > 1 || len(partition) != 1 {
				return Key{}, fmt.Errorf("%w %s: %q; write column=value for each column of the key (%s)", ErrKey, table, word, namesOf(partition))
			}
			c, value = partition[0], word
		}
		literal, err := literalOf(c.cqlType, value)
		if err != nil {
			return Key{}, fmt.Errorf("%w %s: column %s: %w", ErrKey, table, c.name, err)
		}
		parts = append(parts, Identifier(c.name)+" = "+literal)
	}
	return Key{Table: table, Where: strings.Join(parts, " AND ")}, nil
}

// namesOf returns the names of columns as a list.
func namesOf(columns []column) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// Patterns of constants and names that are valid in a statement as they are.
const (
	numberForm = `^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$`
	uuidForm   = `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`
	blobForm   = `^0[xX]([0-9a-fA-F]{2})*$`
	textForm   = `^'([^']|'')*'$`
	nameForm   = `^[a-z][a-z0-9_]*$`
	tableForm  = `^("(?:[^"]|"")+"|\w+)\.("(?:[^"]|"")+"|\w+)$`
)

// matches reports whether a text matches a pattern.
func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// errConstant says that a value cannot be one of its type.
var errConstant = errors.New("not a constant of its type")

// literalOf returns a value as CQL writes it. The result is always one constant, whatever the
// value.
func literalOf(cqlType, value string) (string, error) {
	form := numberForm
	switch cqlType {
	case "text", "varchar", "ascii", "inet", "timestamp", "date", "time":
		if matches(textForm, value) {
			return value, nil
		}
		return Quote(value), nil
	case "uuid", "timeuuid":
		form = uuidForm
	case "blob":
		form = blobForm
	case "boolean":
		form = `^(?i)(true|false)$`
	case "tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double":
	default:
		return "", fmt.Errorf("%w: the command line cannot write a %s: use cqlsh", errConstant, cqlType)
	}
	if !matches(form, value) {
		return "", fmt.Errorf("%w %s: %q", errConstant, cqlType, value)
	}
	return value, nil
}

// Quote returns a text as CQL writes it.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Identifier returns a name as CQL writes it.
func Identifier(name string) string {
	if matches(nameForm, name) {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// tableName parses keyspace.table as CQL does: without quotes, case does not matter.
func tableName(table string) (keyspace, name string, err error) {
	parts := regexp.MustCompile(tableForm).FindStringSubmatch(table)
	if parts == nil {
		return "", "", fmt.Errorf("%w: %q", ErrTable, table)
	}
	for i, part := range parts[1:] {
		if part[0] == '"' {
			parts[i+1] = strings.ReplaceAll(part[1:len(part)-1], `""`, `"`)
		} else {
			parts[i+1] = strings.ToLower(part)
		}
	}
	return parts[1], parts[2], nil
}
