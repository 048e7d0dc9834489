package samples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var began = time.Unix(1_800_000_000, 0)

// last is the value n steps before the newest.
func last(f Figures, n int) float32 { return f[len(f)-1-n] }

func TestASeriesIsWhatWasLookedAt(t *testing.T) {
	var b Book
	look := func(after time.Duration, l Look) {
		l.Connection = "a"
		b.Add(began.Add(after), []Look{l})
	}
	look(0, Look{Known: true, Rate: 60, Ceiling: 600, Refused: 3, Epoch: "one", Waiting: 2})
	look(2*time.Second, Look{Known: true, Rate: 120, Ceiling: 600, Refused: 5, Epoch: "one", Waiting: 7})
	look(4*time.Second, Look{Refused: 5, Epoch: "one", Waiting: 1}) // the rate is not known
	look(30*time.Second, Look{Refused: 4, Epoch: "two"})            // another run
	s, ok := b.Series("a", Hour, began.Add(39*time.Second))
	if !ok || s.StepS != 10 || len(s.RatePerMin) != 360 || !s.Start.Equal(began.Add(30*time.Second-359*10*time.Second)) {
		t.Fatalf("%v %d steps of %d s from %v", ok, len(s.RatePerMin), s.StepS, s.Start)
	}
	if last(s.RatePerMin, 3) != 90 || last(s.CeilingPerMin, 3) != 600 || last(s.Refused, 3) != 5 || last(s.Waiting, 3) != 7 {
		t.Errorf("first step: %v %v %v %v", last(s.RatePerMin, 3), last(s.CeilingPerMin, 3), last(s.Refused, 3), last(s.Waiting, 3))
	}
	if v := last(s.Refused, 1); v == v {
		t.Errorf("nobody looked, and %v were refused", v)
	}
	if v := last(s.RatePerMin, 0); v == v || last(s.Refused, 0) != 4 {
		t.Errorf("last step: rate %v, %v refused", v, last(s.Refused, 0))
	}
	day, _ := b.Series("a", Day, began.Add(39*time.Second))
	if last(day.Refused, 0) != 9 || len(day.Refused) != 288 || day.StepS != 300 {
		t.Errorf("day: %v refused", last(day.Refused, 0))
	}
	if later, _ := b.Series("a", Hour, began.Add(2*time.Hour)); later.Known() {
		t.Error("after two hours something of the last one is known")
	}
	if other, ok := b.Series("b", Hour, began); ok || other.Known() {
		t.Error("something is known of what nobody looked at")
	}
}

func TestUnknownIsNull(t *testing.T) {
	text, err := json.Marshal(Figures{1, unknown, 0.12345, 1e12, float32(math.Inf(1))})
	if err != nil || string(text) != "[1,null,0.1235,1e+12,null]" {
		t.Errorf("%s %v", text, err)
	}
	var back Figures
	if err := json.Unmarshal(text, &back); err != nil || back[0] != 1 || back[1] == back[1] {
		t.Errorf("%v %v", back, err)
	}
}

func TestTracesAreDrawn(t *testing.T) {
	at := func(ago time.Duration) time.Time { return began.Add(-ago) }
	s := Drawn("a", Hour, began, []Stretch{
		{From: at(3 * time.Hour), To: at(2 * time.Hour), Rate: 1}, {From: at(2 * time.Hour), To: at(50 * time.Minute), Rate: 6, Ceiling: 60},
		{From: at(time.Minute), To: at(0), Rate: 12}, {From: at(time.Minute), To: at(0)},
	})
	if s.Source != "runs" || s.RatePerMin[0] != 6 || s.CeilingPerMin[0] != 60 || last(s.RatePerMin, 0) != 12 || last(s.RatePerMin, 7) == last(s.RatePerMin, 7) || last(s.Refused, 0) == last(s.Refused, 0) {
		t.Errorf("%+v", s)
	}
}

// TestStepsAreThoseOfTheClock: whatever the clock does, a series has what a plain map
// of steps has.
func TestStepsAreThoseOfTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		model, newest := map[int64]float32{}, int64(0)
		now := began
		for n := range rapid.IntRange(1, 40).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "seconds")) * time.Second)
			b.Add(now, []Look{{Connection: "a", Refused: 1, Epoch: fmt.Sprint(n)}})
			slot := now.Unix() / 10
			if slot > newest {
				newest = slot
			}
			model[slot]++
		}
		data, err := b.Encode(now)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, book := range []*Book{&b, again} {
			s, _ := book.Series("a", Hour, now)
			for i, got := range s.Refused {
				if want := model[s.Start.Unix()/10+int64(i)]; want == 0 && got == got || want > 0 && got != want {
					t.Fatalf("step %d: %v refused, want %v", i, got, want)
				}
			}
		}
	})
}

func TestABookIsBounded(t *testing.T) {
	var b Book
	for i := range MaxConnections + 2 {
		b.Add(began.Add(time.Duration(i)*time.Minute), []Look{{Connection: fmt.Sprint(i)}})
	}
	b.Add(began, []Look{{Connection: strings.Repeat("x", maxName+1)}})
	if len(b.all) != MaxConnections || b.all["0"] != nil || b.all["1"] != nil || b.all["2"] == nil {
		t.Errorf("%d connections", len(b.all))
	}
	at := began.Add((MaxConnections + 1) * time.Minute)
	data, err := b.Encode(at)
	if err != nil || len(data) > MaxSize {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	again, err := Decode(data)
	if err != nil || len(again.all) <= 24*60-5 || len(again.all) > 24*60 {
		t.Errorf("%d connections of the last day, want one a minute: %v", len(again.all), err)
	}
	for _, bad := range [][]byte{nil, []byte("x"), data[:len(data)/2], append(bytes.Clone(data[:len(data)-1]), data[len(data)-1]^1)} {
		if _, err := Decode(bad); err == nil {
			t.Error("damaged bytes were read")
		}
	}
}

// A clock that is set back loses no look and moves no older step.
func TestAClockThatIsSetBack(t *testing.T) {
	var b Book
	for i, at := range []time.Duration{0, 10 * time.Second, 5 * time.Second, -2 * time.Hour} {
		b.Add(began.Add(at), []Look{{Connection: "a", Refused: 1, Epoch: fmt.Sprint(i)}})
		if i == 2 {
			if s, _ := b.Series("a", Hour, began.Add(10*time.Second)); last(s.Refused, 0) != 2 || last(s.Refused, 1) != 1 {
				t.Errorf("a little: %v", s.Refused[len(s.Refused)-2:])
			}
		}
	}
	if s, _ := b.Series("a", Hour, began.Add(-2*time.Hour)); last(s.Refused, 0) != 1 {
		t.Error("for hours: the look is lost")
	}
}

func TestASparkHasTheHourInFewSteps(t *testing.T) {
	var b Book
	now := time.Date(2026, 11, 23, 10, 0, 5, 0, time.UTC)
	for ago := 59 * time.Minute; ago >= 0; ago -= 10 * time.Second {
		if ago > 20*time.Minute && ago < 30*time.Minute {
			continue // nobody looked
		}
		b.Add(now.Add(-ago), []Look{{Connection: "b", Known: true, Rate: 120}, {Connection: "a"}})
	}
	all := b.Sparks(now)
	if len(all) != 2 || all[0].Connection != "a" || all[1].Connection != "b" || all[1].StepS != 100 || len(all[1].RatePerMin) != 36 {
		t.Fatalf("%+v", all)
	}
	known := 0
	for i, v := range all[1].RatePerMin {
		if v == v {
			known++
			if v != 120 {
				t.Errorf("step %d: %v", i, v)
			}
		}
		if w := all[0].RatePerMin[i]; w == w {
			t.Errorf("step %d of one whose rate is unknown: %v", i, w)
		}
	}
	if known < 28 || known > 32 {
		t.Errorf("%d of 36 steps are known", known)
	}
	if end := all[1].Start.Add(36 * 100 * time.Second); end.Before(now) || end.Sub(now) > 100*time.Second {
		t.Errorf("it ends at %v", end)
	}
}
