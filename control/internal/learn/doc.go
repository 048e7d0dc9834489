// Package learn is the law "cycle": it finds out what limits a provider enforces
// from what was admitted, what was refused, and when there was room again.
//
// A cycle is the time from one release to the next: attempts go, one is refused,
// nothing goes but a canary now and then, and the first canary that is admitted is
// the release. Each part of the law looks at whole cycles and is a file of its own:
//
//	history   what was sent, and how much of each unit in any stretch of time
//	rate      a pace that is known to lie between two others, and the climb before that
//	window    so many units in any stretch of one length, whatever the length
//	fit       windows of any length and unit in which as much was in use at each refusal
//	period    windows that begin anew at fixed instants, at which alone blocks end
//	flight    so many attempts under way at once
//	block     the silence after a refusal, its canaries, and penalties: blocks that
//	          last longer than any limit explains
//	advertise limits that response headers name, and shape: how their units come back
//
// [Law] puts them together: it asks every limit when the next attempt may go and
// takes the latest instant; it puts a refusal down to the limit that was fullest,
// and when none was nearly full, the block's length tells what kind the new one is.
//
// All of it is a function of what was observed and of the instant passed in. It is
// not safe for concurrent use. Instants are durations since an origin that the
// caller fixes.
package learn
