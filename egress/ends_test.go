package egress_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

func TestAnsweredCallsAreChargedWhatTheProviderCounted(t *testing.T) {
	for name, chat := range chats {
		for _, stream := range []bool{false, true} {
			kind := map[bool]string{false: " plain", true: " stream"}[stream]
			bubble(t, name+kind, func(t *testing.T) {
				sim, up := models(t, instant(""), llm.Options{Seed: 7})
				x := newRig(t, chat.api, up, nil)
				want := direct(t, up, strings.TrimPrefix(chat.path("sim-thinking", stream), "/p"), chat.body("sim-thinking", stream))
				res, body, err := x.ask(t, "POST", chat.path("sim-thinking", stream), chat.body("sim-thinking", stream), "Anthropic-Version: 2023-06-01")
				if err != nil || res.StatusCode != 200 {
					t.Fatalf("status %v, error %v, body %s", res, err, body)
				}
				synctest.Wait()
				x.settled(t)
				if got, want := x.quota.total(), counted(sim); got != want || want.Output == 0 {
					t.Errorf("charged %+v, the provider counted %+v", got, want)
				}
				c := x.last(t)
				if !c.Reported || c.Ending != egress.Complete || c.Class != reason.OK || c.Attempts != 1 || c.Model != "sim-thinking" || c.Streamed != stream {
					t.Errorf("the log is %+v", c)
				}
				if diff := cmp.Diff(want, body); diff != "" {
					t.Errorf("not what the provider answers by itself: %s", diff)
				}
			})
		}
	}
}

func TestEndsOfACall(t *testing.T) {
	for name, c := range map[string]struct {
		model    string
		stream   bool
		status   int
		broken   bool // the client sees the answer break off
		ending   egress.Ending
		class    reason.Class
		reported bool
		none     bool // no tokens are charged
	}{
		"cut in a stream":       {"cut-after-3", true, 200, true, egress.BrokenOff, reason.Failed, false, false},
		"cut in a plain answer": {"cut-after-3", false, 200, true, egress.BrokenOff, reason.Failed, false, false},
		"error in a stream":     {"error-after-3", true, 200, false, egress.Complete, reason.Overloaded, false, false},
		"throttled":             {"throttled", true, 429, false, egress.Complete, reason.Throttled, false, true},
		"overloaded":            {"overloaded", false, 503, false, egress.Complete, reason.Overloaded, false, true},
		"spent":                 {"quota-exhausted", false, 429, false, egress.Complete, reason.Throttled, false, true},
	} {
		bubble(t, name, func(t *testing.T) {
			sim, up := models(t, instant(""), llm.Options{Seed: 7})
			x := newRig(t, chats["openai"].api, up, nil)
			res, _, err := x.ask(t, "POST", "/p/v1/chat/completions", chatBody(c.model, c.stream))
			if res.StatusCode != c.status || (err != nil) != c.broken {
				t.Fatalf("status %d, error %v", res.StatusCode, err)
			}
			synctest.Wait()
			x.settled(t)
			got := x.last(t)
			if got.Ending != c.ending || got.Class != c.class || got.Reported != c.reported {
				t.Errorf("the log is %+v", got)
			}
			used := x.quota.total()
			if c.none && used != (quota.Usage{}) {
				t.Errorf("charged %+v for what was refused", used)
			}
			if len(x.quota.used) != 1 || x.quota.back != 0 {
				t.Errorf("%d permits settled, %d given back: what is refused is a call too", len(x.quota.used), x.quota.back)
			}
			if c.none {
				return
			}
			// What broke off is charged by what was seen: 3 chunks of 4 tokens, the input
			// as estimated.
			want := counted(sim)
			if used.Input < want.Input/2 || used.Input > want.Input*2 {
				t.Errorf("input %d, the provider counted %d", used.Input, want.Input)
			}
			if c.stream && (used.Output < want.Output/2 || used.Output > want.Output*2) {
				t.Errorf("output %d, the provider counted %d", used.Output, want.Output)
			}
		})
	}
}
