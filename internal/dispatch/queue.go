package dispatch

import "time"

// fifo is the rows that were offered and not sent.
type fifo struct {
	rows  []Row
	head  int
	bytes int
}

func (f *fifo) len() int { return len(f.rows) - f.head }

func (f *fifo) push(r Row) {
	if f.head > 0 && len(f.rows) == cap(f.rows) && f.head >= len(f.rows)/2 {
		f.rows = f.rows[:copy(f.rows, f.rows[f.head:])]
		f.head = 0
	}
	f.rows = append(f.rows, r)
	f.bytes += r.Bytes
}

// take takes up to n rows of up to that many bytes, one at least.
func (f *fifo) take(n, limit int) []Row {
	n, bytes := min(n, f.len()), 0
	for i, r := range f.rows[f.head : f.head+n] {
		if i > 0 && bytes+r.Bytes > limit {
			n = i
			break
		}
		bytes += r.Bytes
	}
	taken := append(make([]Row, 0, n), f.rows[f.head:f.head+n]...)
	f.head += n
	f.bytes -= bytes
	return taken
}

// again is a batch to be sent once more, from an instant on.
type again struct {
	rows    []Row
	attempt int
	from    time.Duration
}

// waiting is a heap: the first is the one that may be sent first, and of those
// the one with the first row.
type waiting []again

func (w waiting) Len() int { return len(w) }
func (w waiting) Less(i, j int) bool {
	if w[i].from != w[j].from {
		return w[i].from < w[j].from
	}
	return w[i].rows[0].Number < w[j].rows[0].Number
}
func (w waiting) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(x any)   { *w = append(*w, x.(again)) }
func (w *waiting) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = again{}
	*w = (*w)[:last]
	return x
}
