package population

import (
	"errors"
	"strings"
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

func TestTheReportJudgesALawBesideTheInformedClient(t *testing.T) {
	var outcomes []Outcome
	for i, f := range Mixed() {
		law := Figures{Goodput: 0.95, Admitted: 1000, To90S: new(5.0), Jain: new(0.9), Blocks: 10, BlocksPushed: 1}
		bound := law
		bound.Goodput = 0.96
		if f == Cost {
			law.Goodput, law.Throttled, law.Per1000 = 0.4, 100, 100
		}
		outcomes = append(outcomes, Outcome{Number: i, Family: f, Figures: law, Bound: &bound})
	}
	r := Sum(Options{Law: "l", Seed: 3, N: len(outcomes)}, outcomes)
	var text, picture strings.Builder
	if err := errors.Join(r.WriteText(&text), r.WriteSVG(&picture)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"goodput  bound  per 1000  bound  median",
		"MISSED  mean goodput >= 0.96 of the bound's: 0.916 of 0.960, 0.954\n",
		"MISSED  mean goodput of each family >= 0.90 of the bound's: 0.400 of 0.960, 0.417 in cost\n",
		"MISSED  mean refusals per 1000 <= 3: 6.25, the bound's 0.00\n",
		"met     median refusals per 1000 <= 1: 0.00, the bound's 0.00\n",
		"MISSED  members with at most 3 per 1000 or 8 refusals >= 95 %: 93.8 %, the bound's 100.0 %\n",
		"met     no suspension: 0\n",
		"MISSED  clients apart: Jain >= 0.95: 0.900, the bound's 0.900\n",
		"met     bans without a second refusal before their end >= 90 %: 90.0 %, the bound's 90.0 %\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	if !strings.Contains(picture.String(), "informed client: mean 0.960 / 0.00") || strings.Contains(picture.String(), "%!") {
		t.Error("the picture lacks the informed client")
	}
	outcomes[0].Bound = nil
	if one := Sum(Options{Family: Ban}, outcomes[:1]); one.Targets != nil || one.All.Bound != nil {
		t.Errorf("judged without the informed client: %+v", one)
	}
}
