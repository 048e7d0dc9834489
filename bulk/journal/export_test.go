package journal

// Replay reads a journal from memory.
var Replay = replay
