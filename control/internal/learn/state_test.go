package learn

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

func TestOnlyTheTransitionsOfTheTableAreLegal(t *testing.T) {
	for from := starting; from <= trying; from++ {
		for e := answered; e <= nothing; e++ {
			want, legal := moves[from][e]
			l := &Law{state: from}
			func() {
				defer func() {
					if refused := recover() != nil; refused == legal {
						t.Errorf("%v, event %v: legal %v, refused %v", from, e, legal, refused)
					}
				}()
				l.transition(e)
			}()
			if legal && l.state != want {
				t.Errorf("%v, event %v: %v, want %v", from, e, l.state, want)
			}
		}
	}
}

func TestTheDocumentDrawsTheTransitionsOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/law.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^ +(\w+ --> \w+: \w+)$`).FindAllStringSubmatch(string(text), -1) {
		drawn[m[1]]++
	}
	for from, to := range moves {
		for e, s := range to {
			drawn[fmt.Sprintf("%v --> %v: %v", from, s, e)]--
		}
	}
	for move, n := range drawn {
		if n != 0 {
			t.Errorf("%s: %d more in docs/law.md than in the table", move, n)
		}
	}
}
