package governor_test

import (
	"path/filepath"
	"testing"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// The whole shell: clock, lock, timer, and with a file the leases.
func BenchmarkApproveAndRecord(b *testing.B) {
	for _, name := range []string{"memory", "file"} {
		b.Run(name, func(b *testing.B) {
			c := oneModel(quota.Limits{CallsPerMinute: 1e9, MaxDailyTokens: 1e15})
			c.Global = quota.Limits{CallsPerMinute: 1e9}
			o := governor.Options{Config: c}
			if name == "file" {
				file, err := governor.OpenFile(filepath.Join(b.TempDir(), "use.json"))
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = file.Close() }()
				o.Store = file
			}
			g, err := governor.New(o)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = g.Close() }()
			b.ReportAllocs()
			for b.Loop() {
				d, err := g.Approve(ask(100))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 80}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
