package sqlite_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
)

// BenchmarkCommit is one slice of 100 records of 1 KB and 10 fields through a
// commit of the store, durable.
func BenchmarkCommit(b *testing.B) { benchmarkCommit(b, 100) }

// BenchmarkCommitLarge is the same with 1,000 records.
func BenchmarkCommitLarge(b *testing.B) { benchmarkCommit(b, 1000) }

func benchmarkCommit(b *testing.B, size int) {
	f := newBench(b)
	text := strings.Repeat("lorem ipsum ", 67)
	n := 0
	records := make([]collect.Record, size)
	for b.Loop() {
		b.StopTimer()
		for i := range records {
			n++
			records[i] = rec(fmt.Sprintf("item-%08d", n), fmt.Sprintf(`{"id":%d,"title":"Item %d","open":true,"score":%d.5,"tags":["a","b"],`+
				`"author":{"id":7,"name":"somebody"},"created":"2026-05-06T07:08:09Z","deleted":null,"n":12,"text":"%s"}`, n, n, n, text))
		}
		b.StartTimer()
		f.put(b, "talks", records...)
	}
	b.SetBytes(int64(size * len(records[0].Data)))
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
