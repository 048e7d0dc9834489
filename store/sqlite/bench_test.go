package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
)

// BenchmarkCommitPage is one slice of 100 new items, durable.
func BenchmarkCommitPage(b *testing.B) { benchmarkCommit(b, 100) }

// BenchmarkCommitLargePage is one slice of 1,000 new items, durable.
func BenchmarkCommitLargePage(b *testing.B) { benchmarkCommit(b, 1000) }

func benchmarkCommit(b *testing.B, size int) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	l, err := s.Acquire(b.Context(), request("c", "r", time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		if err := s.Commit(b.Context(), l, page(n, size)); err != nil {
			b.Fatal(err)
		}
		n += size
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "items/s")
}

// BenchmarkKnown asks for 100 keys, half of them known, among 100,000.
func BenchmarkKnown(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	l, err := s.Acquire(b.Context(), request("c", "r", time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Commit(b.Context(), l, page(0, 100_000)); err != nil {
		b.Fatal(err)
	}
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = key(i * 2000)
	}
	for b.Loop() {
		known, err := s.Known(b.Context(), "c", "x", keys)
		if err != nil || len(known) != 50 {
			b.Fatal(len(known), err)
		}
	}
}

// BenchmarkGapPages walks 20,000 gaps in pages of 100.
func BenchmarkGapPages(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	l, err := s.Acquire(b.Context(), request("c", "r", time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	c := collect.Commit{At: time.Now()}
	for i := range 20_000 {
		c.Opened = append(c.Opened, collect.Gap{GapKey: collect.GapKey{Stream: "d", Key: key(i)}, Locator: []byte(key(i))})
	}
	if err := s.Commit(b.Context(), l, c); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f := collect.GapFilter{Connection: "c", Status: collect.GapPending, Limit: 100}
		n := 0
		for {
			gaps, err := s.Gaps(b.Context(), f)
			if err != nil {
				b.Fatal(err)
			}
			if len(gaps) == 0 {
				break
			}
			n, f.AfterID = n+len(gaps), gaps[len(gaps)-1].ID
		}
		if n != 20_000 {
			b.Fatal(n)
		}
	}
}
