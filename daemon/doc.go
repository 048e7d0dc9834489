// Package daemon is "headway serve" as a value: a proxy in front of providers, its
// budgets and pacing, and the API to look at and change them, behind one
// listener. It can be started, reloaded and stopped without losing use or learned rates.
// Programs can embed it; the command is a thin shell around it.
//
//	new -> running -> stopping -> stopped
//
// [New] checks the configuration without opening state or sockets. [Daemon.Start] locks the
// state folder, restores the day's use and the learned rates, and listens. [Daemon.Reload]
// replaces the whole configuration or nothing. [Daemon.Stop] refuses new and waiting calls,
// lets calls under way end within the drain time, and stores use and learned rates.
//
// The state folder holds quota-NAME.json, the day's use of each budget; rates.json, the
// learned rates; keys.json, the hashes of issued keys; samples of charts and totals of calls;
// daemon.lock, which the system releases when the process ends; and state.db, the state of
// collections. Use is stored before it is granted (see package quota/governor), so a daemon
// that is killed does not grant it twice.
//
// To govern calls inside a program, use packages transport or llm instead. A
// [Daemon] is safe for concurrent use. Time is the machine's own.
//
// Stability: settling.
package daemon
