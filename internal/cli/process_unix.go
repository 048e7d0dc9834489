//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/signal"
	"time"

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

// passedOn are the signals that go on to the command of "headway run".
var passedOn = []os.Signal{os.Interrupt, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// fromTerminal reports whether a signal that arrived now came to the command as well: a
// terminal sends its own signals to every process in the foreground, whatever standard
// input is.
func fromTerminal(s os.Signal) bool {
	if s != os.Interrupt && s != unix.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return false // no terminal controls this process
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// endInterrupted ends this process by SIGINT. A shell goes on with its script unless the
// command that Ctrl-C interrupted ended that way. It returns where the signal is ignored.
func endInterrupted() {
	signal.Reset(os.Interrupt)
	if unix.Kill(unix.Getpid(), unix.SIGINT) == nil {
		time.Sleep(time.Second) // another thread may take it
	}
}
