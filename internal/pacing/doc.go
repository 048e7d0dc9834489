// Package pacing is the state machine of one connection: [Core] composes pacing,
// control law and breaker. It has no clock, lock or goroutine, so that the root
// package runs it in real time and the simulator in virtual time.
package pacing
