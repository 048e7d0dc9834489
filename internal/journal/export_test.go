package journal

// Replay reads a journal from memory.
var Replay = replay

// OpenOn is Open on another disk.
var OpenOn = open
