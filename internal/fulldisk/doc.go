// Package fulldisk lets a test run out of space: on a small file system where
// the machine permits one (as root), and at a limit on the size of files
// everywhere on Linux. It answers "what does this code do when the disk is
// full?".
//
// It is only for tests. A limit binds the whole process, so [Ways] runs the test
// once more in a process of its own; a test that uses it must not run in
// parallel with others. It reads no clock.
package fulldisk
