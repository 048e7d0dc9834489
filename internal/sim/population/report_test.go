package population_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim/population"
)

func TestSameSeedSameBytesHoweverManyWorkers(t *testing.T) {
	var all [2][]byte
	for i, workers := range []int{1, 4} {
		r, err := population.Run(population.Options{Seed: 3, N: 4, Law: "aimd", Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		all[i] = append(b, text.Bytes()...)
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("the same seed gave other bytes")
	}
}

func TestAPopulationOfOneFamily(t *testing.T) {
	done := 0
	r, err := population.Run(population.Options{Seed: 3, N: 3, Family: population.FixedWindow, Law: "aimd", Progress: func(n int) { done = n }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Families) != 1 || r.Families[0].Members != 3 || done != 3 {
		t.Errorf("%+v, %d done", r.Families, done)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "\n"); n != 4 || strings.Contains(text.String(), "\nall") {
		t.Errorf("one family is said twice:\n%s", text.String())
	}
}

func TestWhatCannotBeRunIsAnError(t *testing.T) {
	for _, o := range []population.Options{{N: 0}, {N: population.MaxMembers + 1}, {N: 2, Family: "leaky"}, {N: 1, Law: "magic"}} {
		if r, err := population.Run(o); err == nil || r != nil {
			t.Errorf("%+v gave no error", o)
		}
	}
}

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
