package clients

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// column describes one of an answer or a statement.
func column(name string, kind datatype.DataType) *message.ColumnMetadata {
	return &message.ColumnMetadata{Keyspace: "bank", Table: "accounts", Name: name, Type: kind}
}

// lockColumns returns the columns of the answer to LOCK and UNLOCK.
func lockColumns() []*message.ColumnMetadata {
	return []*message.ColumnMetadata{
		column("[applied]", datatype.Boolean), column("lock_ref", datatype.Bigint), column("state", datatype.Varchar), column("position", datatype.Int),
		column("holder", datatype.Varchar), column("lease_ms", datatype.Bigint), column("owner_died", datatype.Boolean),
	}
}

// columnsOf returns the columns of a statement's answer; nil if there are none.
func columnsOf(text string) []*message.ColumnMetadata {
	switch {
	case strings.Contains(text, "LOCK ") && !strings.Contains(text, "USING LOCK") || strings.HasPrefix(bare(text), "LOCK ") || strings.HasPrefix(bare(text), "UNLOCK "):
		return lockColumns()
	case strings.HasPrefix(text, "SELECT balance"):
		return []*message.ColumnMetadata{column("balance", datatype.Bigint)}
	case strings.HasPrefix(text, "SELECT value"):
		return []*message.ColumnMetadata{column("value", datatype.Varchar)}
	}
	return nil
}

// bare returns a lock statement without the SELECT that gocql needs before it.
func bare(text string) string {
	if rest, ok := strings.CutPrefix(text, "SELECT "); ok && (strings.HasPrefix(rest, "LOCK ") || strings.HasPrefix(rest, "UNLOCK ")) {
		return rest
	}
	return text
}

// marker matches a ? with the word that it belongs to.
const marker = `("?\w+"? =|LOCK|WAIT|LEASE|AS|TOKEN) \?`

// markersOf returns what PREPARE declares of a statement's bind markers.
func markersOf(text string) []*message.ColumnMetadata {
	var all []*message.ColumnMetadata
	for _, m := range regexp.MustCompile(marker).FindAllStringSubmatch(text, -1) {
		switch word := strings.TrimSuffix(m[1], " ="); word {
		case "LOCK", "WAIT", "LEASE":
			all = append(all, column("["+strings.ToLower(word)+"]", datatype.Bigint))
		case "AS":
			all = append(all, column("[owner]", datatype.Varchar))
		case "TOKEN":
			all = append(all, column("[token]", datatype.Uuid))
		case "balance":
			all = append(all, column(word, datatype.Bigint))
		case "teller":
			all = append(all, column(word, datatype.Int))
		default:
			all = append(all, column(strings.Trim(word, `"`), datatype.Varchar))
		}
	}
	return all
}

// key matches a lock's key in statements.
const key = `^(LOCK|UNLOCK) [\w.]+ WHERE \w+ = '(\w+)'`

// render writes a statement with its values as the stories do: a WAIT of more than 0 is written as
// n, and TOKENs are numbered in the order in which they come.
func (s *server) render(text string, values []*primitive.Value) string {
	kinds := markersOf(text)
	i := -1
	text = regexp.MustCompile(marker).ReplaceAllStringFunc(bare(text), func(found string) string {
		i++
		if i >= len(values) {
			return found
		}
		return strings.TrimSuffix(found, "?") + s.literal(kinds[i].Name, kinds[i].Type, values[i].Contents)
	})
	return regexp.MustCompile(key).ReplaceAllString(text, "$1 $2")
}

// literal writes a value.
func (s *server) literal(name string, kind datatype.DataType, value []byte) string {
	switch {
	case name == "[token]":
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.Contains(s.tokens, string(value)) {
			s.tokens = append(s.tokens, string(value))
		}
		return strconv.Itoa(slices.Index(s.tokens, string(value)) + 1)
	case kind == datatype.Bigint && len(value) == 8:
		n := int64(binary.BigEndian.Uint64(value))
		if name == "[wait]" && n > 0 && n <= 1500 {
			return "n"
		}
		return strconv.FormatInt(n, 10)
	}
	return "'" + string(value) + "'"
}

// batch writes a batch.
func (s *server) batch(m *message.Batch) string {
	texts := []string{"BATCH"}
	for _, child := range m.Children {
		text := child.Query
		if text == "" {
			s.mu.Lock()
			text = s.prepared[string(child.Id)]
			s.mu.Unlock()
		}
		texts = append(texts, s.render(text, child.Values))
	}
	return strings.Join(texts, "; ")
}

// reply returns the message that a story names, as "HELD 17 lease=600".
func reply(words []string) (message.Message, error) {
	state, ref, settings := words[0], "", map[string]string{}
	for _, word := range words[1:] {
		if name, value, is := strings.Cut(word, "="); is {
			settings[name] = value
		} else {
			ref = word
		}
	}
	switch state {
	case "HELD", "QUEUED", "BUSY", "LOST", "RELEASED":
		return lockRow(state, ref, settings)
	case "VOID":
		return &message.VoidResult{}, nil
	case "BALANCE":
		n, err := strconv.ParseInt(ref, 10, 64)
		return rows(column("balance", datatype.Bigint), binary.BigEndian.AppendUint64(nil, uint64(n))), err
	case "VALUE":
		return rows(column("value", datatype.Varchar), []byte(ref)), nil
	case "EMPTY":
		columns := []*message.ColumnMetadata{column("value", datatype.Varchar)}
		return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: columns}}, nil
	}
	return failure(state)
}

// failure returns the error of that name.
func failure(name string) (message.Message, error) {
	switch name {
	case "MUSIC_UNCERTAIN":
		return &message.WriteTimeout{ErrorMessage: name + ": unknown", Consistency: primitive.ConsistencyLevelQuorum, Received: 1, BlockFor: 2, WriteType: primitive.WriteTypeSimple}, nil
	case "MUSIC_BACKEND", "MUSIC_INTERNAL":
		return &message.ServerError{ErrorMessage: name + ": it may have been carried out"}, nil
	case "UNAVAILABLE":
		return &message.Unavailable{ErrorMessage: name + ": cannot achieve consistency level QUORUM", Consistency: primitive.ConsistencyLevelQuorum, Required: 2, Alive: 1}, nil
	case "OVERLOADED":
		return &message.Overloaded{ErrorMessage: "MUSIC_UNAVAILABLE: too many"}, nil
	case "UNAUTHORIZED":
		return &message.Unauthorized{ErrorMessage: name + ": user x has no MODIFY permission on <table bank.accounts>"}, nil
	case "MUSIC_LOST_UNKNOWN":
		return &message.Invalid{ErrorMessage: "MUSIC_LOST: the lock was lost meanwhile: whether this was written is unknown"}, nil
	}
	if strings.HasPrefix(name, "MUSIC_") {
		return &message.Invalid{ErrorMessage: name + ": nothing was written"}, nil
	}
	return nil, fmt.Errorf("what is the answer %s?", name)
}

// rows returns an answer of one row with one column.
func rows(c *message.ColumnMetadata, value []byte) message.Message {
	return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{c}}, Data: message.RowSet{{value}}}
}

// lockRow returns the row of an answer to LOCK or UNLOCK. The lease is 30 s if the story names
// none.
func lockRow(state, ref string, settings map[string]string) (message.Message, error) {
	yes := map[bool][]byte{true: {1}, false: {0}}
	row := message.Row{yes[state == "HELD" || state == "RELEASED"], nil, []byte(state), {0, 0, 0, 0}, nil, make([]byte, 8), yes[settings["died"] != ""]}
	if ref != "" && ref != "null" {
		n, err := strconv.ParseInt(ref, 10, 64)
		if err != nil {
			return nil, err
		}
		row[1] = binary.BigEndian.AppendUint64(nil, uint64(n))
	}
	if holder := settings["holder"]; holder != "" {
		row[4] = []byte(holder)
	}
	if state == "HELD" {
		lease, err := strconv.ParseInt(cmp.Or(settings["lease"], "30000"), 10, 64)
		if err != nil {
			return nil, err
		}
		row[5] = binary.BigEndian.AppendUint64(nil, uint64(lease))
	}
	columns := lockColumns()
	return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(len(columns)), Columns: columns}, Data: message.RowSet{row}}, nil
}
