// Command music is the MUSIC proxy, and what people use it with at a shell: `music proxy` serves
// Cassandra's drivers; `music lock` runs a command under a lock; `music locks` and `music unlock` list
// locks and end them; `music check` tries whether locks would hold. It ends with status 1 when it
// failed, and with 2 when it was called or configured wrongly; docs/command-line.md has the others.
package main

import (
	"os"
	"time"

	"github.com/rs/zerolog"

	"music/proxy"
)

func main() {
	zerolog.TimeFieldFormat = time.RFC3339Nano
	p := program{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr, serve: proxy.Run, try: proxy.Check}
	os.Exit(p.run(os.Args[1:]))
}
