package ledger_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/ledger"
)

// A set is what a map of rows is, in as few spans as there are runs of rows.
func TestASetIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set ledger.Set
		rows := map[int64]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "adds") {
			a := ledger.Span{First: rapid.Int64Range(-2, 60).Draw(t, "first")}
			a.Last = a.First + rapid.Int64Range(-1, 6).Draw(t, "rows")
			free := a.First >= 0 && a.Last >= a.First
			for row := a.First; row <= a.Last; row++ {
				free = free && !rows[row]
			}
			if err := set.Add(a); (err == nil) != free {
				t.Fatalf("adding %v to %v: %v", a, set.Spans(), err)
			}
			for row := a.First; free && row <= a.Last; row++ {
				rows[row] = true
			}
		}
		runs := 0
		for row := int64(-3); row < 80; row++ {
			if set.Has(row) != rows[row] {
				t.Fatalf("row %d: %v, want %v in %v", row, set.Has(row), rows[row], set.Spans())
			}
			if rows[row] && !rows[row-1] {
				runs++
			}
		}
		if len(set.Spans()) != runs || set.Len() != int64(len(rows)) || ledger.Count(set.Spans()) != set.Len() {
			t.Fatalf("%v has %d rows, want %d runs of %d", set.Spans(), set.Len(), runs, len(rows))
		}
	})
}

func TestACloneIsASetOfItsOwn(t *testing.T) {
	var set ledger.Set
	if err := set.Add(ledger.Span{First: 1, Last: 2}); err != nil {
		t.Fatal(err)
	}
	clone := set.Clone()
	if err := set.Add(ledger.Span{First: 3, Last: 9}); err != nil {
		t.Fatal(err)
	}
	if clone.Has(3) || clone.Len() != 2 || !set.Has(3) {
		t.Errorf("the clone holds %v, the set %v", clone.Spans(), set.Spans())
	}
}

func ExampleSet() {
	var settled ledger.Set
	fmt.Println(settled.Add(ledger.Span{First: 0, Last: 99}))
	fmt.Println(settled.Add(ledger.Span{First: 200, Last: 299}))
	fmt.Println(settled.Add(ledger.Span{First: 100, Last: 199}))
	fmt.Println(settled.Spans())
	fmt.Println(settled.Add(ledger.Span{First: 299, Last: 300}))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// [0-299]
	// ledger: of rows 299-300 some are settled already
}

func ExampleAppend() {
	var spans []ledger.Span
	for _, row := range []int64{1, 2, 3, 7, 8, 12} {
		spans = ledger.Append(spans, row)
	}
	fmt.Println(spans, ledger.Count(spans))
	// Output:
	// [1-3 7-8 12] 6
}
