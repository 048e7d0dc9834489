//go:build !linux

package cli

// reloading is the word for a reload that begins.
func reloading() string { return "RELOADING=1" }
