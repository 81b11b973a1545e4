// Command portal is a process of the portal: see package service.
package main

import (
	"fmt"
	"os"

	"music/integration/evaluate/service"
)

func main() {
	if err := service.Portal(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "portal:", err)
		os.Exit(1)
	}
}
