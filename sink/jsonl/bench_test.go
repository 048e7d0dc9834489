package jsonl

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
)

// BenchmarkWriteSync is one slice of 100 records of 1 KB, on disk.
func BenchmarkWriteSync(b *testing.B) {
	s := New(b.TempDir())
	if err := s.Open(b.Context(), nil, nil); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	records := make([]collect.Record, 100)
	for i := range records {
		records[i].Data = json.RawMessage(`{"id":12345,"text":"` + strings.Repeat("lorem ipsum ", 80) + `"}`)
	}
	b.SetBytes(int64(len(records) * (len(records[0].Data) + 1)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := s.Write(b.Context(), "x", records); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
