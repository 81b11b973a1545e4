package proxy

import (
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// failedReread is the longest time between two readings of a version that has failed.
const failedReread = 5 * time.Second

// failedReading is a reading of the schema that has failed, or after which a table could not be made ready for locks.
// The same version is read again ever less often: what is missing may be a right, for days, and each attempt costs an
// LWT and more. The zero value is none.
type failedReading struct {
	version gocql.UUID
	tries   int           // how many in a row have failed
	until   time.Duration // BOOTTIME when it is read again
}

// failed notes that the reading of a version has failed.
func (f *failedReading) failed(version gocql.UUID, now time.Duration) {
	if f.version != version {
		*f = failedReading{version: version}
	}
	f.until = now + min(schemaPoll<<min(f.tries, 10), failedReread)
	f.tries++
}

// waits reports whether a version need not be read yet.
func (f *failedReading) waits(version gocql.UUID, now time.Duration) bool {
	return f.tries > 0 && f.version == version && now < f.until
}
