package singer

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
)

// BenchmarkWriteSync is one slice of 100 records of 1 KB whose schema is known.
func BenchmarkWriteSync(b *testing.B) {
	s := New(io.Discard)
	if err := s.Open(b.Context(), nil, []collect.StreamInfo{{Name: "x", KeyField: "id"}}); err != nil {
		b.Fatal(err)
	}
	records := make([]collect.Record, 100)
	for i := range records {
		records[i].Data = json.RawMessage(`{"id":12345,"by":{"name":"x","tags":["a","b"]},"text":"` + strings.Repeat("lorem ipsum ", 80) + `"}`)
	}
	b.SetBytes(int64(len(records) * len(records[0].Data)))
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
