package governor_test

import (
	"path/filepath"
	"testing"

	"github.com/headway-go/headway/internal/powercut"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// spend loads daily use, adds to it and saves it, a few times. What Load gives
// is acknowledged as well: the governor hands out what it says without another
// Save.
func spend(t *testing.T, l *powercut.Life[int64]) {
	f, err := governor.OpenFileOn(l, filepath.Join(l.Dir, "use.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	use, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	tokens := int64(0)
	for _, u := range use {
		tokens += u.Tokens
	}
	for _, before := range l.Before {
		if tokens < before {
			t.Fatalf("%d tokens of the day are used, %d were acknowledged", tokens, before)
		}
	}
	l.Ack(tokens)
	for range 3 {
		tokens += 10
		if err := f.Save([]quota.DayUse{{Day: "2026-01-02", Zone: "UTC", Tokens: tokens}}); err != nil {
			t.Fatal(err)
		}
		l.Ack(tokens)
	}
}

func TestAPowerCutGivesNothingBack(t *testing.T) {
	powercut.Test(t, powercut.Plan{Draws: 8}, spend, spend)
}
