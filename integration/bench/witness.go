package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

// witnessEvery is how long a witness sleeps at a time.
const witnessEvery = time.Millisecond

// witness is a process that does nothing but sleep, and reports at its end how late it was woken:
// what every process of this machine has to bear at that time.
func witness(ctx context.Context, _ net.Listener, _ string) error {
	var late samples
	for len(late) == 0 || ctx.Err() == nil {
		began := time.Now()
		time.Sleep(witnessEvery)
		late = append(late, micro(time.Since(began)-witnessEvery))
	}
	fmt.Println(late.quantile(0.999), slices.Max(late))
	return nil
}

// end ends a witness and returns how late it was woken: the 99.9th percentile and the maximum, in
// microseconds.
func (c *child) end() (often, most float64, err error) {
	_ = c.stdin.Close()
	_, err = fmt.Fscan(bufio.NewReader(c.stdout), &often, &most)
	_ = c.cmd.Wait() // however it ends
	return often, most, err
}
