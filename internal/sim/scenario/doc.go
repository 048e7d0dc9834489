// Package scenario reads scenario files: who sends, what the provider allows,
// and what happens to both over a stretch of time. The simulator, the arena and
// the provider that is served over HTTP all run the same files.
//
// [Parse] is strict: all that is wrong is reported at once, by package configfile.
//
// Do not use it for connections: those are read by package connector/rest.
//
// Everything here is a value without locks: a [Scenario] may be read from many
// goroutines as long as none writes it. Instants in a scenario are durations
// since its start; nothing here reads a clock.
package scenario
