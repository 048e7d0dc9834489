package parquet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
)

func page(n int) []collect.Record {
	text := strings.Repeat("lorem ipsum ", 67)
	records := make([]collect.Record, n)
	for i := range records {
		records[i] = rec(fmt.Sprintf("item-%08d", i), fmt.Sprintf(`{"id":%d,"title":"Item %d","open":true,"score":%d.5,"tags":["a","b"],`+
			`"author":{"id":7,"name":"somebody"},"created":"2026-05-06T07:08:09Z","deleted":null,"n":12,"text":"%s"}`, i, i, i, text))
	}
	return records
}

// BenchmarkWriteSync is one slice of 100 records of 1 KB and 10 fields, on
// disk, with the parts that become complete on the way.
func BenchmarkWriteSync(b *testing.B) {
	s := New(b.TempDir())
	if err := s.Open(b.Context(), nil, told); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	records := page(100)
	b.SetBytes(int64(len(records) * len(records[0].Data)))
	n := 0
	for b.Loop() {
		put(b, s, "talks", records...)
		synced(b, s)
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkConvert makes a part of 10,000 records of 1 KB.
func BenchmarkConvert(b *testing.B) {
	s := New(b.TempDir())
	if err := s.Open(b.Context(), nil, told); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	records := page(10_000)
	put(b, s, "talks", records...)
	synced(b, s)
	st := s.streams["talks"]
	b.SetBytes(st.Spool)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		st.published = 0
		if err := st.publish(); err != nil {
			b.Fatal(err)
		}
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
