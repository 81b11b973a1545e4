package proxy

import (
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// filesBeside bounds the open files that are not clients': Cassandra, other proxies, health, the
// log.
const filesBeside = 256

// filesEach is the number of files per client: its connection and the one to the home node.
const filesEach = 2

// checkFiles logs a warning if the process may not open enough files for maxConnections clients:
// further clients would not be accepted.
func checkFiles(maxConnections int, log zerolog.Logger) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn().Err(err).Msg("the limit of open files could not be read")
		return
	}
	if serves := clientsFor(limit.Cur); serves < maxConnections {
		log.Warn().Uint64("open_files", limit.Cur).Int("max_connections", maxConnections).Int("enough_for", serves).
			Msg("the limit of open files (ulimit -n) is too small for max-connections: raise the one or lower the other")
	}
}

// clientsFor returns the number of clients for which a number of open files is enough.
func clientsFor(files uint64) int {
	if files <= filesBeside {
		return 0
	}
	return int(min(files-filesBeside, 1<<31) / filesEach)
}
