// Command music is the MUSIC proxy: `music proxy` serves Cassandra's drivers, `music version` says
// what was built. It ends with status 0 when it was told to end, 1 when the proxy failed, and 2
// when it was called or configured wrongly.
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
