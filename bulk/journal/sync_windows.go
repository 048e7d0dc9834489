package journal

// syncDir has nothing to do: the file system journals names itself, and gives no
// way to wait for it.
func syncDir(string) error { return nil }
