package synchronise

import (
	"strconv"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
)

// A description is used for its version of the schema alone, and for a minute.
func TestDescriptionIsKnownAtItsVersionAndForItsTime(t *testing.T) {
	var all Descriptions
	accounts, other := tableName{"bank", "accounts"}, tableName{"bank", "others"}
	version, now := gocql.UUID{1}, time.Now()
	all.remember(accounts, cachedDescription{version: version, read: now, largest: 7})
	for name, c := range map[string]struct {
		table   tableName
		version gocql.UUID
		after   time.Duration
		known   bool
	}{
		"at once":         {accounts, version, 0, true},
		"later":           {accounts, version, knownFor - 1, true},
		"too late":        {accounts, version, knownFor, false},
		"another version": {accounts, gocql.UUID{2}, 0, false},
		"another table":   {other, version, 0, false},
	} {
		d, known := all.find(c.table, c.version, now.Add(c.after))
		assert.Equal(t, c.known, known, name)
		assert.True(t, !known || d.largest == 7, name)
	}
	var none *Descriptions
	none.remember(accounts, cachedDescription{version: version, read: now})
	_, known := none.find(accounts, version, now)
	assert.False(t, known)
}

// What is known of tables that are gone is not kept, however many names there were.
func TestDescriptionsOfFormerTablesAreDropped(t *testing.T) {
	var all Descriptions
	now := time.Now()
	for i := range 1000 {
		at := now.Add(time.Duration(i) * knownFor / 10)
		all.remember(tableName{"bank", strconv.Itoa(i)}, cachedDescription{read: at})
		_, known := all.find(tableName{"bank", strconv.Itoa(max(0, i-9))}, gocql.UUID{}, at)
		assert.True(t, known, "it is known for a minute")
	}
	assert.Len(t, all.byTable, 10)
}
