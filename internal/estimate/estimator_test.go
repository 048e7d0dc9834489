package estimate_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/estimate"
	"github.com/headway-go/headway/quota"
)

func in(n int64) quota.Usage { return quota.Usage{Input: n} }

func TestRatioIsLearned(t *testing.T) {
	for _, c := range []struct{ actual, want int64 }{{1300, 1300}, {700, 700}, {50, 250}, {9000, 4000}} {
		e := estimate.New()
		if got := e.Scale("m", 1000); got != 1000 {
			t.Fatalf("unlearned, 1000 is %d", got)
		}
		for range 200 {
			e.Learn("m", in(1000), in(c.actual))
		}
		if got := e.Scale("m", 1000); got < c.want-2 || got > c.want+2 {
			t.Errorf("after %d for 1000, 1000 is %d, want about %d", c.actual, got, c.want)
		}
		if got := e.Scale("another", 1000); got != 1000 {
			t.Errorf("another model's 1000 is %d", got)
		}
	}
}

func TestOneCallTeachesHalf(t *testing.T) {
	e := estimate.New()
	e.Learn("m", in(1000), quota.Usage{Input: 2000, Output: 512})
	if got := e.Scale("m", 1000); got != 1500 {
		t.Errorf("1000 is %d, want 1500", got)
	}
	if got := e.Output("m", 0); got != 384 {
		t.Errorf("output is %d, want 384", got)
	}
}

func TestOutputIsLearned(t *testing.T) {
	e := estimate.New()
	if got := e.Output("m", 0); got != estimate.DefaultOutput {
		t.Errorf("unlearned output is %d", got)
	}
	if got := e.Output("m", 100); got != 100 {
		t.Errorf("unlearned output with at most 100 is %d", got)
	}
	for i := range int64(400) {
		e.Learn("m", quota.Usage{}, quota.Usage{Output: 900 + i%2*200})
	}
	if got := e.Output("m", -1); got < 980 || got > 1020 {
		t.Errorf("output is %d, want about 1000", got)
	}
	if got := e.Output("m", 64); got != 64 {
		t.Errorf("output with at most 64 is %d", got)
	}
	if got := e.Scale("m", 1000); got != 1000 {
		t.Errorf("estimates of 0 taught of the input: 1000 is %d", got)
	}
}

func TestInputIsScaledRaw(t *testing.T) {
	e, parts := estimate.New(), slices.Values([]string{"some text to be counted"})
	for range 200 {
		e.Learn("m", in(100), in(150))
	}
	raw := e.Raw("m", parts)
	if got, want := e.Input("m", parts), e.Scale("m", raw); got != want || got <= raw {
		t.Errorf("Input is %d, Scale of Raw %d, Raw %d", got, want, raw)
	}
}

func TestFiguresThatTeachNothing(t *testing.T) {
	e := estimate.New()
	e.Learn("m", in(1000), in(-1))
	e.Learn("m", in(1000), quota.Usage{Input: 1, Cached: 2})
	e.Learn("m", in(-1000), quota.Usage{Input: 500, Output: estimate.DefaultOutput})
	e.Learn("m", in(1000), quota.Usage{Output: estimate.DefaultOutput})
	long := strings.Repeat("m", estimate.MaxModel+1)
	e.Learn(long, in(1000), in(2000))
	for _, model := range []string{"m", long} {
		if got := e.Scale(model, 1000); got != 1000 {
			t.Errorf("1000 is %d", got)
		}
		if got := e.Output(model, 0); got != estimate.DefaultOutput {
			t.Errorf("output is %d", got)
		}
	}
}

func TestModelsAreBounded(t *testing.T) {
	e := estimate.New()
	e.Learn("kept", in(100), in(400))
	e.Learn("lost", in(100), in(400))
	for i := range estimate.MaxModels {
		e.Learn(fmt.Sprint(i), in(100), in(400))
		if e.Scale("kept", 100) == 100 {
			t.Fatalf("a model in use was forgotten after %d others", i)
		}
	}
	if got := e.Scale("lost", 100); got != 100 {
		t.Errorf("the model that was not used is still known: 100 is %d", got)
	}
	if got := e.Scale(fmt.Sprint(estimate.MaxModels-1), 100); got == 100 {
		t.Error("the last model is not known")
	}
}

func TestScaleIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := estimate.New()
		for range rapid.IntRange(0, 20).Draw(t, "times") {
			n := rapid.Int64Range(-1, 1<<40)
			e.Learn("m", quota.Usage{Input: n.Draw(t, "estimated")},
				quota.Usage{Input: n.Draw(t, "input"), Cached: n.Draw(t, "cached"), Output: n.Draw(t, "output")})
		}
		raw := rapid.Int64().Draw(t, "raw")
		got := e.Scale("m", raw)
		least, most := min(max(raw, 0), quota.MaxTokens)/4, quota.MaxTokens
		if raw < quota.MaxTokens {
			most = max(int(raw), 0)*4 + 1
		}
		if got < least || got > int64(most) {
			t.Fatalf("%d is scaled to %d", raw, got)
		}
		if got := e.Output("m", 0); got < 0 || got > quota.MaxTokens {
			t.Fatalf("output is %d", got)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	e := estimate.New()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			model := fmt.Sprint("gpt-4", i%3)
			for range 50 {
				raw := e.Raw(model, slices.Values([]string{"text"}))
				e.Learn(model, in(raw), in(2*raw))
				e.Scale(model, raw)
				e.Output(model, 10)
			}
		})
	}
	all.Wait()
	if got := e.Scale("gpt-40", 100); got < 190 || got > 200 {
		t.Errorf("100 is %d, want about 200", got)
	}
}

func ExampleEstimator() {
	e, prompt := estimate.New(), slices.Values([]string{"You are brief.", "Name a river."})
	raw := e.Raw("gpt-5-mini", prompt)
	fmt.Println(e.Scale("gpt-5-mini", raw), e.Output("gpt-5-mini", 100))
	for range 100 { // what the provider says, after each call
		e.Learn("gpt-5-mini", quota.Usage{Input: raw}, quota.Usage{Input: 30, Output: 12})
	}
	fmt.Println(e.Scale("gpt-5-mini", raw), e.Output("gpt-5-mini", 100))
	// Output:
	// 19 100
	// 30 12
}

func ExampleLoad() {
	estimate.Load("gpt-5-mini", "gpt-4-turbo") // where the process starts
	e := estimate.New()
	fmt.Println(e.Input("gpt-5-mini", slices.Values([]string{"Name a river."})))
	// Output: 11
}

// grown is an estimator that knows a model and has read as many of its prompts as
// it wants to.
func grown(prompt string) *estimate.Estimator {
	e := estimate.New()
	e.Learn("gpt-5", quota.Usage{}, quota.Usage{Output: 1})
	for range 16 {
		e.Raw("gpt-5", slices.Values([]string{prompt}))
	}
	return e
}

func TestWeighedPromptIsNearTheReadOne(t *testing.T) {
	for name, text := range texts {
		long := strings.Repeat(text, 10)
		e := grown(text)
		near(t, name+" of 1 kB, weighed", e.Raw("gpt-5", slices.Values([]string{text[:1020]})), count(text[:1020]), 20)
		near(t, name+" of 40 kB, weighed", e.Raw("gpt-5", slices.Values([]string{text})), count(text), 1)
		near(t, name+" of 400 kB, weighed", e.Raw("gpt-5", slices.Values([]string{long})), 10*count(text), 5)
	}
}

func TestOnePromptIn64IsRead(t *testing.T) {
	e, prompt := grown(texts["English"]), []string{texts["Hindi"]}
	read, weighed := count(prompt[0]), e.Raw("gpt-5", slices.Values(prompt))
	if read == weighed {
		t.Fatalf("both ways give %d, so that the test sees no difference", read)
	}
	at := 0
	for i := 2; at == 0 && i < 200; i++ {
		if e.Raw("gpt-5", slices.Values(prompt)) != weighed {
			at = i
		}
	}
	if at != 64 {
		t.Errorf("prompt %d was the first to be read, want 64", at)
	}
}

func TestPromptsOfAnotherKindAreReadAgain(t *testing.T) {
	prompt := []string{strings.Repeat("incomprehensibilities ", 40)} // weighs a third of its tokens
	want := count(prompt[0])
	e, reads := grown(texts["English"]), 0
	for range 64 + 15 {
		if e.Raw("gpt-5", slices.Values(prompt)) == want {
			reads++
		}
	}
	if reads != 1+15 {
		t.Errorf("%d were read, want the one after 63 and the 15 that follow", reads)
	}
	near(t, "weighed, after that", e.Raw("gpt-5", slices.Values(prompt)), want, 10)
}

func TestModelThatTellsNothingIsAlwaysRead(t *testing.T) {
	e, text := estimate.New(), texts["Hindi"]
	want := count(text)
	for range 200 {
		if got := e.Raw("gpt-5", slices.Values([]string{text})); got != want {
			t.Fatalf("%d tokens, want %d as read", got, want)
		}
	}
}

func TestShortPromptsTeachNothingOfTheWeight(t *testing.T) {
	e := grown("")
	for range 200 {
		if got, want := e.Raw("gpt-5", slices.Values([]string{"Hello"})), int64(1+7); got != want {
			t.Fatalf("%d tokens, want %d as read", got, want)
		}
	}
}

func TestLearnSaysWhenEstimatesMove(t *testing.T) {
	e := estimate.New()
	use := func(in, out int64) bool {
		return e.Learn("m", quota.Usage{Input: 100}, quota.Usage{Input: in, Output: out})
	}
	for call, c := range []struct {
		in, out int64
		moved   bool
	}{
		{100, 256, false}, // as is assumed of all models
		{100, 1156, true}, // the mean of three is 556
		{100, 606, false}, // 569
		{150, 569, false}, // the ratio is 1.1
		{250, 569, true},  // 1.33
	} {
		if got := use(c.in, c.out); got != c.moved {
			t.Errorf("call %d: moved %v, want %v; ratio of 100: %d, output %d", call, got, c.moved, e.Scale("m", 100), e.Output("m", 0))
		}
	}
	after := estimate.New()
	after.Restore(e.Learned())
	if after.Learn("m", quota.Usage{Input: 100}, quota.Usage{Input: 133, Output: 569}) {
		t.Error("what was taken over and holds is said to have moved")
	}
}

func TestWhatWasLearnedIsTakenOver(t *testing.T) {
	was, is := estimate.New(), estimate.New()
	for range 20 {
		was.Learn("m", quota.Usage{Input: 100}, quota.Usage{Input: 200, Output: 900})
	}
	is.Learn("own", quota.Usage{Input: 100}, quota.Usage{Input: 100, Output: 10})
	all := was.Learned()
	all["own"] = estimate.Learned{Input: 4, Output: 5000, Outputs: 15}
	all["input"] = estimate.Learned{Input: estimate.MaxRatio * 1.01, Output: 1}
	all["output"] = estimate.Learned{Input: 1, Output: -1}
	all["nan"] = estimate.Learned{Input: math.NaN(), Output: 1}
	all["calls"] = estimate.Learned{Input: 1, Output: 1, Outputs: -1}
	all[strings.Repeat("x", estimate.MaxModel+1)] = estimate.Learned{Input: 1, Output: 1}
	is.Restore(all)
	if in, out := is.Scale("m", 100), is.Output("m", 0); in != was.Scale("m", 100) || out != was.Output("m", 0) {
		t.Errorf("input %d, output %d, want %d and %d", in, out, was.Scale("m", 100), was.Output("m", 0))
	}
	if got := is.Learned(); len(got) != 2 || got["own"].Output >= 300 {
		t.Errorf("it knows %v, want what it learned itself and the one valid model", got)
	}
	// One call more moves what was taken over no further than it would have moved the other.
	for _, e := range []*estimate.Estimator{was, is} {
		e.Learn("m", quota.Usage{}, quota.Usage{Output: 0})
	}
	if was.Output("m", 0) != is.Output("m", 0) {
		t.Errorf("after one call more: %d, want %d", is.Output("m", 0), was.Output("m", 0))
	}
}
