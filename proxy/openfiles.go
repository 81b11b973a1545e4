package proxy

import (
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// filesBeside are open files that are no client's: Cassandra, other proxies, health, the log.
const filesBeside = 256

// filesEach is how many files a client takes: its connection and that to its node.
const filesEach = 2

// checkFiles says where the process may not open as many files as its clients can make it need:
// those beyond would wait without a word.
func checkFiles(maxConnections int, log zerolog.Logger) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn().Err(err).Msg("how many files may be open could not be found out")
		return
	}
	if serves := clientsFor(limit.Cur); serves < maxConnections {
		log.Warn().Uint64("open_files", limit.Cur).Int("max_connections", maxConnections).Int("enough_for", serves).
			Msg("the limit of open files (ulimit -n) is too small for max-connections: raise the one or lower the other")
	}
}

// clientsFor returns how many clients a number of open files is enough for.
func clientsFor(files uint64) int {
	if files <= filesBeside {
		return 0
	}
	return int(min(files-filesBeside, 1<<31) / filesEach)
}
