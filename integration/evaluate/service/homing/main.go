// Command homing is a process of the homing service: see package service.
package main

import (
	"fmt"
	"os"

	"music/integration/evaluate/service"
)

func main() {
	if err := service.Homing(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "homing:", err)
		os.Exit(1)
	}
}
