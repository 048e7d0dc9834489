// Package daemon is "headway serve" as a value: a proxy in front of providers, its
// budgets and pacing, and the API to look at and change them, behind one
// listener. It starts, reconfigures and stops all of that without losing what was used or
// learned. A program can embed it: the command is a thin shell around it.
//
//	new -> running -> stopping -> stopped
//
// [New] checks everything that can be checked without touching the outside.
// [Daemon.Start] locks the state's folder, restores the day's use and the learned
// rates, and listens. [Daemon.Reload] swaps the whole configuration or nothing.
// [Daemon.Stop] refuses new calls, answers those that wait, lets those under way
// end within the bound, and stores what was used and learned.
//
// The state's folder holds quota-NAME.json, the use of the day of each budget;
// rates.json, what pacing learned; daemon.lock, which ends with the process; and
// state.db of "headway collect", which is only read. Use is stored before it is
// handed out (see package quota/governor), so that a daemon that is killed does
// not hand it out twice.
//
// To govern calls inside a program, use packages transport or llm instead. A
// [Daemon] is safe for concurrent use. Time is the machine's own.
//
// Stability: settling.
package daemon
