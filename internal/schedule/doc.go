// Package schedule collects connections by themselves: a folder of connection
// files, each on its schedule, a deferred run at the instant that it named.
//
// Connections do not share anything but the store: one that waits, fails or
// panics holds up no other. A run that the provider refused for good is tried
// again by its schedule, but later each time, up to a day; a changed file starts
// afresh. A file that cannot be read leaves its connection as it was.
//
// [Next] and the rest of next.go are decisions, pure: the caller passes the
// instant. [Scheduler] is the shell, safe for concurrent use; its time is real,
// or that of a testing/synctest bubble. To run one connection at a terminal, use
// the command.
package schedule
