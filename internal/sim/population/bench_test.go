package population_test

import (
	"testing"

	"github.com/headway-go/headway/internal/sim/population"
)

// A member a round, of all families in turn: its oracle, its law and, with Bound,
// the informed client.
func benchmarkMembers(b *testing.B, o population.Options) {
	o.N, o.Workers = b.N, 1
	b.ReportAllocs()
	if _, err := population.Run(o); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkMember(b *testing.B)     { benchmarkMembers(b, population.Options{Seed: 8}) }
func BenchmarkMemberAIMD(b *testing.B) { benchmarkMembers(b, population.Options{Seed: 8, Law: "aimd"}) }
func BenchmarkMemberWithBound(b *testing.B) {
	benchmarkMembers(b, population.Options{Seed: 8, Bound: true})
}
