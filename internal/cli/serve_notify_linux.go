package cli

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reloading is the word for a reload that begins; systemd orders it by the clock.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}
