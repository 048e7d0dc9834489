package population

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheSummaryIsWhatItSays(t *testing.T) {
	var of []numbered
	for i := range 40 {
		of = append(of, numbered{i, &Figures{Goodput: 1, Admitted: 1000, Throttled: 2, Per1000: 2, To90S: new(10.0)}})
	}
	*of[7].Figures = Figures{Goodput: 0.2, Admitted: 10, Throttled: 8, Per1000: 800, To90S: nil, Blocks: 4, BlocksPushed: 1}
	*of[9].Figures = Figures{Goodput: 0.4, Admitted: 1000, Throttled: 10, Per1000: 10, To90S: new(30.0), Jain: new(0.5), Suspended: true, Violations: 3}
	got := sum(of)
	want := Summary{
		Goodput: 0.965, Per1000: 22.15, Per1000Median: 2, Per1000Pooled: 2.4096, Quiet: 0.975,
		WorstTwentieth: 0.3, Worst: 0.2, WorstMember: 7, Jain: new(0.5), To90S: new(10.0), Never: 1,
		Suspended: 1, Violations: 3, Unpushed: new(0.75),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestTheMedianMayBeNever(t *testing.T) {
	got := sum([]numbered{{0, &Figures{}}, {1, &Figures{To90S: new(3.0)}}})
	if got.To90S != nil || got.Never != 1 || got.Jain != nil || got.Unpushed != nil {
		t.Errorf("%+v", got)
	}
}
