package collect

// SetBacklogAfter lowers how many details of a stream become gaps of their own.
func (o *Options) SetBacklogAfter(n int) { o.backlogAfter = n }
