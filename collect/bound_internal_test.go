package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

func TestAccountDividesTheTimeOfARun(t *testing.T) {
	const ms = time.Millisecond
	var (
		ceiling  = headway.Wait{Reason: reason.Pacing, Bound: reason.BoundCeiling}
		limit    = headway.Wait{Reason: reason.Pacing, Bound: reason.BoundLimit}
		start    = headway.Wait{Reason: reason.ConservativeStart, Bound: reason.BoundLearning}
		cooldown = headway.Wait{Reason: reason.Cooldown, Bound: reason.BoundCooldown}
		jitter   = headway.Wait{Reason: reason.Jitter, Bound: reason.BoundJitter}
	)
	type step struct {
		at time.Duration
		do func(a *account, now time.Duration)
	}
	send := func(wait time.Duration, held headway.Wait, number int) func(*account, time.Duration) {
		return func(a *account, now time.Duration) { a.admitted(now, wait, held, number) }
	}
	first := send(0, headway.Wait{}, 1)
	end, commit, committed := (*account).ended, (*account).committing, (*account).committed
	open, closed := (*account).opened, (*account).closed
	cool, cooled, rest, rested := (*account).cooling, (*account).cooled, (*account).rests, (*account).rested
	giveUp := func(wait time.Duration, held headway.Wait, number int) func(*account, time.Duration) {
		return func(a *account, now time.Duration) { a.gaveUp(now, wait, held, number) }
	}
	for _, tt := range []struct {
		name  string
		steps []step
		now   time.Duration
		want  reason.Bounds
	}{
		{"before the first attempt it is this machine", nil, 7 * ms, reason.Bounds{reason.BoundProcessing: 7 * ms}},
		{"a response is waited for", []step{{10 * ms, first}, {110 * ms, end}}, 110 * ms,
			reason.Bounds{reason.BoundProcessing: 10 * ms, reason.BoundLatency: 100 * ms}},
		{"a commit with nothing in flight", []step{{0, first}, {100 * ms, end}, {101 * ms, commit}, {121 * ms, committed}}, 121 * ms,
			reason.Bounds{reason.BoundLatency: 100 * ms, reason.BoundProcessing: ms, reason.BoundDisk: 20 * ms}},
		{"response and commit hide behind the ceiling", []step{
			{0, first}, {100 * ms, end}, {101 * ms, commit}, {121 * ms, committed}, {250 * ms, send(129*ms, ceiling, 1)},
		}, 250 * ms, reason.Bounds{reason.BoundCeiling: 250 * ms}},
		{"a provider's limit", []step{{0, first}, {100 * ms, end}, {900 * ms, send(800*ms, limit, 1)}}, 900 * ms,
			reason.Bounds{reason.BoundLimit: 900 * ms}},
		{"finding the speed", []step{{0, first}, {100 * ms, end}, {1000 * ms, send(900*ms, start, 1)}}, 1000 * ms,
			reason.Bounds{reason.BoundLearning: 1000 * ms}},
		{"Retry-After", []step{{0, first}, {100 * ms, end}, {60100 * ms, send(60000*ms, cooldown, 2)}}, 60100 * ms,
			reason.Bounds{reason.BoundCooldown: 60100 * ms}},
		{"the wait before a retry", []step{{0, first}, {100 * ms, end}, {300 * ms, send(0, headway.Wait{}, 2)}}, 300 * ms,
			reason.Bounds{reason.BoundLatency: 100 * ms, reason.BoundBackoff: 200 * ms}},
		{"jitter after a slow response", []step{{0, first}, {400 * ms, end}, {470 * ms, send(60*ms, jitter, 1)}}, 470 * ms,
			reason.Bounds{reason.BoundLatency: 400 * ms, reason.BoundProcessing: 10 * ms, reason.BoundJitter: 60 * ms}},
		{"an open circuit, over a response that is waited for", []step{
			{0, first}, {10 * ms, first}, {20 * ms, end}, {30 * ms, open}, {40 * ms, end}, {60030 * ms, closed}, {60031 * ms, first},
		}, 60031 * ms, reason.Bounds{reason.BoundLatency: 30 * ms, reason.BoundCircuit: 60000 * ms, reason.BoundProcessing: ms}},
		{"a wait with a reason that says nothing", []step{{0, first}, {10 * ms, end}, {30 * ms, send(15*ms, headway.Wait{}, 1)}}, 30 * ms,
			reason.Bounds{reason.BoundLatency: 10 * ms, reason.BoundProcessing: 5 * ms, reason.BoundUnknown: 15 * ms}},
		{"two at once", []step{
			{0, first}, {50 * ms, send(50*ms, ceiling, 1)}, {100 * ms, end}, {130 * ms, end}, {131 * ms, first},
		}, 131 * ms, reason.Bounds{reason.BoundCeiling: 50 * ms, reason.BoundLatency: 80 * ms, reason.BoundProcessing: ms}},
		{"a commit beside a request is the request's time", []step{
			{0, first}, {10 * ms, commit}, {30 * ms, committed}, {100 * ms, end},
		}, 100 * ms, reason.Bounds{reason.BoundLatency: 100 * ms}},
		{"a response that nobody waits for yet is not what takes the time", []step{
			{0, (*account).asksAhead}, {0, first}, {10 * ms, commit}, {30 * ms, committed}, {40 * ms, (*account).wantsPage}, {100 * ms, end},
		}, 100 * ms, reason.Bounds{reason.BoundProcessing: 20 * ms, reason.BoundDisk: 20 * ms, reason.BoundLatency: 60 * ms}},
		{"a response that was waited for, and then no longer", []step{{0, first}, {40 * ms, (*account).asksAhead}, {60 * ms, (*account).wantsPage}, {100 * ms, end}}, 100 * ms,
			reason.Bounds{reason.BoundLatency: 80 * ms, reason.BoundProcessing: 20 * ms}},
		{"a warm start's first wait is no longer than it was", []step{{0, commit}, {40 * ms, committed}, {100 * ms, send(50*ms, ceiling, 1)}}, 100 * ms,
			reason.Bounds{reason.BoundDisk: 40 * ms, reason.BoundProcessing: 10 * ms, reason.BoundCeiling: 50 * ms}},
		{"what lies before an admission is no longer moved", []step{{0, first}, {100 * ms, end}, {110 * ms, first}, {150 * ms, end}, {250 * ms, send(100*ms, ceiling, 1)}}, 250 * ms,
			reason.Bounds{reason.BoundLatency: 100 * ms, reason.BoundProcessing: 10 * ms, reason.BoundCeiling: 140 * ms}},
		{"an instant that has passed", []step{{0, first}, {100 * ms, end}, {40 * ms, commit}, {130 * ms, committed}, {90 * ms, commit}}, 140 * ms,
			reason.Bounds{reason.BoundLatency: 100 * ms, reason.BoundDisk: 40 * ms}},
		{"the end of other pressure, over a commit", []step{{0, first}, {10 * ms, end}, {20 * ms, cool}, {25 * ms, commit}, {35 * ms, committed}, {60 * ms, cooled}, {65 * ms, rest}, {75 * ms, rested}}, 80 * ms,
			reason.Bounds{reason.BoundLatency: 10 * ms, reason.BoundProcessing: 20 * ms, reason.BoundCooldown: 40 * ms, reason.BoundBackoff: 10 * ms}},
		{"a commit while a list rests", []step{{0, rest}, {10 * ms, commit}, {30 * ms, committed}, {40 * ms, rested}}, 41 * ms,
			reason.Bounds{reason.BoundBackoff: 20 * ms, reason.BoundDisk: 20 * ms, reason.BoundProcessing: ms}},
		{"two commits at once", []step{{0, commit}, {10 * ms, commit}, {20 * ms, committed}, {30 * ms, committed}}, 40 * ms,
			reason.Bounds{reason.BoundDisk: 30 * ms, reason.BoundProcessing: 10 * ms}},
		{"an attempt that gave up waiting for a limit", []step{{0, first}, {100 * ms, end}, {300 * ms, giveUp(200*ms, limit, 1)}, {310 * ms, send(5*ms, ceiling, 1)}}, 310 * ms,
			reason.Bounds{reason.BoundLimit: 300 * ms, reason.BoundCeiling: 10 * ms}},
		{"one that gave up before anything was sent", []step{{300 * ms, giveUp(200*ms, limit, 1)}, {310 * ms, end}}, 310 * ms,
			reason.Bounds{reason.BoundProcessing: 110 * ms, reason.BoundLimit: 200 * ms}},
		{"a retry that gave up, after a jitter", []step{{0, first}, {100 * ms, end}, {300 * ms, giveUp(50*ms, jitter, 2)}}, 300 * ms,
			reason.Bounds{reason.BoundLatency: 100 * ms, reason.BoundBackoff: 150 * ms, reason.BoundJitter: 50 * ms}},
		{"one that stood behind others", []step{{0, first}, {100 * ms, end}, {150 * ms, giveUp(50*ms, headway.Wait{}, 1)}, {200 * ms, send(80*ms, ceiling, 1)}}, 200 * ms,
			reason.Bounds{reason.BoundCeiling: 200 * ms}},
		{"a retry that stood behind others", []step{{0, first}, {100 * ms, end}, {150 * ms, giveUp(50*ms, headway.Wait{}, 2)}}, 160 * ms,
			reason.Bounds{reason.BoundLatency: 100 * ms, reason.BoundBackoff: 50 * ms, reason.BoundProcessing: 10 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a account
			for _, s := range tt.steps {
				s.do(&a, s.at)
			}
			if diff := cmp.Diff(tt.want, a.bounds(tt.now, headway.Wait{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAPendingWaitCountsInTheAccount(t *testing.T) {
	const ms = time.Millisecond
	var (
		limit  = headway.Wait{Reason: reason.Pacing, Bound: reason.BoundLimit}
		jitter = headway.Wait{Reason: reason.Jitter, Bound: reason.BoundJitter}
	)
	var a account
	for name, want := range map[headway.Wait]reason.Bounds{
		{}: {reason.BoundProcessing: 30 * ms}, limit: {reason.BoundLimit: 30 * ms}, jitter: {reason.BoundJitter: 30 * ms},
		{Bound: reason.BoundLimit}: {reason.BoundProcessing: 30 * ms},
	} {
		if diff := cmp.Diff(want, a.bounds(30*ms, name)); diff != "" {
			t.Errorf("before the first, %v: -want +got:\n%s", name, diff)
		}
	}
	a.admitted(10*ms, 0, headway.Wait{}, 1)
	a.ended(30 * ms)
	for name, want := range map[headway.Wait]reason.Bounds{
		{}:     {reason.BoundProcessing: 30 * ms, reason.BoundLatency: 20 * ms},
		limit:  {reason.BoundProcessing: 10 * ms, reason.BoundLimit: 40 * ms},
		jitter: {reason.BoundProcessing: 10 * ms, reason.BoundLatency: 20 * ms, reason.BoundJitter: 20 * ms},
	} {
		for range 2 { // to look changes nothing
			if diff := cmp.Diff(want, a.bounds(50*ms, name)); diff != "" {
				t.Errorf("after it, %v: -want +got:\n%s", name, diff)
			}
		}
	}
}

func TestTheSharesOfARunAsAnEvent(t *testing.T) {
	for _, tt := range []struct {
		b    reason.Bounds
		want *event.Bound
	}{
		{reason.Bounds{}, nil},
		{reason.Bounds{reason.BoundCeiling: 1}, &event.Bound{Shares: map[string]float64{"ceiling": 1}}},
		{reason.Bounds{reason.BoundCeiling: 3, reason.BoundLatency: 1}, &event.Bound{Shares: map[string]float64{"ceiling": .75, "latency": .25}}},
	} {
		if diff := cmp.Diff(tt.want, boundEvent(tt.b)); diff != "" {
			t.Errorf("%v: -want +got:\n%s", tt.b, diff)
		}
	}
}

func TestAllOfARunsTimeIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a account
		now, out, commits := time.Duration(0), 0, 0
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "passes"))
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				held := headway.Wait{
					Reason: rapid.SampledFrom(reason.All()).Draw(t, "reason"),
					Bound:  rapid.SampledFrom([]reason.Bound{reason.BoundUnknown, reason.BoundCeiling, reason.BoundLimit, reason.BoundJitter}).Draw(t, "bound"),
				}
				a.admitted(now, time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "wait")), held, rapid.IntRange(1, 3).Draw(t, "number"))
				out++
			case 4:
				held := headway.Wait{Reason: rapid.SampledFrom(reason.All()).Draw(t, "given up")}
				a.gaveUp(now, time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "in vain")), held, rapid.IntRange(1, 3).Draw(t, "number"))
			case 5:
				a.rests(now)
				a.cooling(now)
				now += time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "cools"))
				a.cooled(now)
				a.rested(now)
			case 1:
				if out > 0 {
					a.ended(now)
					out--
				}
			case 2:
				a.committing(now)
				commits++
			case 3:
				if commits > 0 {
					a.committed(now)
					commits--
				}
			}
		}
		b := a.bounds(now, headway.Wait{})
		if b.Total() != now {
			t.Fatalf("%v of %v: %v", b.Total(), now, b)
		}
		sum := 0.0
		for i, s := range b.Shares() {
			if sum += s.Of; s.Of <= 0 || i > 0 && s.Of > b.Shares()[i-1].Of {
				t.Fatalf("shares %v", b.Shares())
			}
		}
		if now > 0 && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("the shares add up to %v", sum)
		}
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var back reason.Bounds
		if err := json.Unmarshal(data, &back); err != nil || back != b {
			t.Fatalf("%s became %v, %v", data, back, err)
		}
	})
}

func TestBoundsOfALaterVersionAreUnknown(t *testing.T) {
	var b reason.Bounds
	if err := json.Unmarshal([]byte(`{"ceiling":{"ns":3},"moon":{"ns":1}}`), &b); err != nil || b != (reason.Bounds{reason.BoundCeiling: 3, reason.BoundUnknown: 1}) {
		t.Fatalf("got %v, %v", b, err)
	}
	if got := b.String(); got != "75% ceiling, 25% unknown" {
		t.Errorf("got %q", got)
	}
	if got := (reason.Bounds{}).String(); got != "unknown" {
		t.Errorf("a run that was not measured is bound by %q", got)
	}
}

func TestTheTimeLeftCountsLatency(t *testing.T) {
	for _, tt := range []struct {
		owed              int64
		interval, latency time.Duration
		concurrency       int
		want              time.Duration
	}{
		{100, 250 * time.Millisecond, 100 * time.Millisecond, 1, 25 * time.Second},
		{100, time.Millisecond, 200 * time.Millisecond, 1, 20 * time.Second},
		{100, time.Millisecond, 200 * time.Millisecond, 4, 5 * time.Second},
		{100, 250 * time.Millisecond, 0, 0, 25 * time.Second},
		{-1, time.Second, 0, 1, 0},
		{math.MaxInt64, 24 * time.Hour, 0, 1, math.MaxInt64/2 + 1},
	} {
		if got := timeLeft(tt.owed, tt.interval, tt.latency, tt.concurrency); got != tt.want {
			t.Errorf("%d owed, %v apart, %v each, %d at once: %v left, want %v", tt.owed, tt.interval, tt.latency, tt.concurrency, got, tt.want)
		}
	}
}

func TestARunLearnsItsLatency(t *testing.T) {
	l := live{}
	for range 50 {
		l.attempt(transport.Attempt{Number: 1, Latency: 200 * time.Millisecond})
	}
	if l.latency != 200*time.Millisecond {
		t.Errorf("got %v", l.latency)
	}
	for range 50 {
		l.attempt(transport.Attempt{Number: 1, Latency: 20 * time.Millisecond})
	}
	if l.latency > 25*time.Millisecond {
		t.Errorf("got %v after it fell to 20ms", l.latency)
	}
}

func TestAKeySetMissesNoKeyAndRarelyTakesOneForAnother(t *testing.T) {
	for _, n := range []int{0, 1, firstLayer, firstLayer + 1, 5*firstLayer + 1, longtest.Size(60_000, 200_000)} {
		s := &keySet{}
		for i := range n {
			s.add(fmt.Sprintf("record-%08d", i))
		}
		bytes := 0
		for _, l := range s.layers {
			bytes += 8 * len(l.bits)
		}
		if most := 4*firstLayer + 16*n; bytes > most {
			t.Errorf("%d keys take %d bytes, want at most %d", n, bytes, most)
		}
		wrong := 0
		for i := range n {
			if !s.has(fmt.Sprintf("record-%08d", i)) {
				t.Fatalf("%d keys: key %d was missed", n, i)
			}
			if s.has(fmt.Sprintf("other-%08d", i)) {
				wrong++
			}
		}
		// About one in 180,000 a layer, with eight probes into 32 bits a key.
		if wrong > 5+n/20_000 {
			t.Errorf("%d keys: %d of as many others were taken for one", n, wrong)
		}
	}
}

func TestAFullKeySetStaysSmall(t *testing.T) {
	s := &keySet{}
	for n := range 1_500_000 {
		s.add(strconv.Itoa(n))
	}
	bytes := 0
	for _, l := range s.layers {
		bytes += 8 * len(l.bits)
	}
	if len(s.layers) != maxLayers || bytes > 6<<20 {
		t.Errorf("%d layers of %d bytes", len(s.layers), bytes)
	}
	if !s.has("0") || !s.has("1400000") {
		t.Error("a key was missed")
	}
}

// shut is a sink that may fail to close.
type shut struct {
	*paper
	err error
}

func (s shut) Close() error { return s.err }

func TestSummaryOfARun(t *testing.T) {
	slow, cause := reason.UpstreamPressure.Reason(), errors.New("GET /docs: 503")
	pressed, until := &stop{why: slow, cause: cause}, clock(0)
	gone := &stop{why: reason.NotFound, err: errors.New("GET /docs: 404")}
	full, lost := errors.New("the disk is full"), errors.New("the disk is gone")
	for _, tt := range []struct {
		name           string
		end            *stop
		gaps           []Gap
		quarantined    int64
		streams        []string
		lane           LaneKind
		plain, walked  bool // there are no details; the past is walked
		got            Progress
		before         Cooldown
		closes, stores error // what closing the sink, and looking at the store, gives
		finishes       error
		state          RunState
		why            reason.Reason
		err            string
		cycles         int
		wait           time.Duration // until it may be tried again
		more, look     bool
	}{
		{name: "nothing is left", state: RunDrained, why: reason.Drained},
		{name: "nothing is left, and the cooldown ends", before: Cooldown{Cycles: 3, Until: until}, state: RunDrained, why: reason.Drained},
		{name: "nothing is left of one stream", streams: []string{"docs"}, before: Cooldown{Cycles: 3}, state: RunDrained, why: reason.Drained, cycles: 3},
		{name: "a gap is owed", gaps: []Gap{detail(1, GapPending, nil)}, state: RunDeferred, why: reason.ServerError},
		{name: "a gap of one stream is owed", gaps: []Gap{detail(1, GapPending, func(g *Gap) { g.Reason = slow })}, streams: []string{"docs"}, state: RunDeferred, why: slow, cycles: 1, wait: 10 * time.Minute},
		{name: "a gap is given up", quarantined: 1, state: RunIncomplete, why: reason.Quarantined, look: true},
		{name: "pressure", end: pressed, state: RunDeferred, why: slow, err: cause.Error(), cycles: 1, wait: 10 * time.Minute, more: true},
		{name: "pressure after the walk", end: pressed, walked: true, state: RunDeferred, why: slow, err: cause.Error(), cycles: 1, wait: 10 * time.Minute},
		{name: "pressure, and a detail was fetched", end: pressed, got: Progress{Details: 1}, before: Cooldown{Cycles: 3}, state: RunDeferred, why: slow, err: cause.Error(), wait: 5 * time.Minute, more: true},
		{name: "pressure, and a gap was recovered", end: pressed, got: Progress{GapsRecovered: 1}, state: RunDeferred, why: slow, err: cause.Error(), wait: 5 * time.Minute, more: true},
		{name: "pressure, and only the list was walked", end: pressed, got: Progress{Records: 9}, state: RunDeferred, why: slow, err: cause.Error(), cycles: 1, wait: 10 * time.Minute, more: true},
		{name: "pressure, and one record of a list without details", end: pressed, plain: true, got: Progress{Records: 1}, state: RunDeferred, why: slow, err: cause.Error(), wait: 5 * time.Minute, more: true},
		{name: "pressure, and none", end: pressed, plain: true, state: RunDeferred, why: slow, err: cause.Error(), cycles: 1, wait: 10 * time.Minute, more: true},
		{name: "pressure, which asks for longer", end: &stop{why: slow, retryAt: time.Now().Add(time.Hour)}, state: RunDeferred, why: slow, cycles: 1, wait: time.Hour, more: true},
		{name: "a cap in the cooldown", end: &stop{why: reason.MaxRequests.Reason()}, before: Cooldown{Cycles: 12, Until: time.Now().Add(time.Hour), NeedsAttention: true}, state: RunDeferred, why: reason.MaxRequests.Reason(), cycles: 12, more: true, look: true},
		{name: "pressure on one stream", end: pressed, streams: []string{"docs"}, state: RunDeferred, why: slow, err: cause.Error(), cycles: 1, wait: 10 * time.Minute, more: true},
		{name: "a failure for pressure", end: &stop{why: slow, err: gone.err}, state: RunFailed, why: slow, err: "404", cycles: 1, more: true},
		{name: "a gap of another stream is given up", quarantined: 1, streams: []string{"talks"}, state: RunDrained, why: reason.Drained, look: true},
		{name: "one lane of two", lane: Steady, state: RunDrained, why: reason.Drained, more: true},
		{name: "a failure", end: gone, state: RunFailed, why: reason.NotFound, err: "404", more: true},
		{name: "a failure, and a store that fails too", end: gone, stores: lost, state: RunFailed, why: reason.NotFound, err: "404"},
		{name: "a store that fails", stores: lost, state: RunFailed, why: reason.Internal, err: "the disk is gone"},
		{name: "a store that fails at the end of one lane", lane: Steady, stores: lost, state: RunFailed, why: reason.Internal, err: "the disk is gone"},
		{name: "pressure, and a store that fails", end: pressed, stores: lost, state: RunFailed, why: reason.Internal, err: "the disk is gone"},
		{name: "a sink that cannot be closed", closes: full, state: RunFailed, why: reason.Internal, err: "the disk is full", more: true},
		{name: "pressure, and a sink that cannot be closed", end: pressed, closes: full, state: RunDeferred, why: slow, err: cause.Error(), cycles: 1, wait: 10 * time.Minute, more: true},
		{name: "an end that cannot be stored", finishes: full, state: RunFailed, why: reason.Internal, err: "the disk is full"},
		{name: "an end that another run forestalled", finishes: ErrLeaseLost, state: RunFailed, why: reason.LeaseLost, err: ErrLeaseLost.Error()},
		{name: "a failure that cannot be stored", end: gone, finishes: full, state: RunFailed, why: reason.NotFound, err: "404", more: true},
	} {
		s := &shelf{gaps: tt.gaps, lost: tt.stores, finishes: tt.finishes, status: ConnectionStatus{Name: "bench", Quarantined: tt.quarantined}}
		if tt.walked {
			s.status.Lanes = []Lane{{Stream: "docs", Kind: Catchup, Done: true}}
		}
		stream := connector.Stream{Name: "docs", DetailStream: "messages"}
		if tt.plain {
			stream.DetailStream = ""
		}
		r := upon(t, s, stream)
		r.o.Sink, r.o.Streams, r.o.Lane, r.cooldown, r.live.committed = shut{&paper{}, tt.closes}, tt.streams, tt.lane, tt.before, tt.got
		sum, err := r.finish(t.Context(), tt.end)
		if sum.State != tt.state || sum.Reason != tt.why || !strings.Contains(sum.Error, tt.err) || (sum.Error == "") != (tt.err == "") || (err != nil) != (tt.state == RunFailed) {
			t.Errorf("%s: %s (%s), %q, %v", tt.name, sum.State, sum.Reason, sum.Error, err)
		}
		if wait := sum.RetryAt.Sub(sum.Ended).Round(time.Second); tt.wait != wait && (tt.wait > 0 || len(tt.gaps) == 0 && !sum.RetryAt.IsZero()) {
			t.Errorf("%s: again in %v, want %v", tt.name, wait, tt.wait)
		}
		if sum.Cooldown.Cycles != tt.cycles || sum.Cooldown.NeedsAttention != tt.look || sum.More != tt.more {
			t.Errorf("%s: %+v, more %v; want %d cycles, needs attention %v, more %v", tt.name, sum.Cooldown, sum.More, tt.cycles, tt.look, tt.more)
		}
		if s.end.State != sum.State && tt.finishes == nil || s.end.Cooldown != sum.Cooldown || s.end.RetryAt != sum.RetryAt {
			t.Errorf("%s: stored %+v", tt.name, s.end)
		}
	}
}

func TestWhichPaceIsRestored(t *testing.T) {
	pace := func(change func(*Pacing)) *Pacing {
		g := upon(t, &shelf{}).governor.Learned()
		p := &Pacing{Version: g.Version, Law: g.Law, State: g.Data, RecordedAt: time.Now(), IntervalMS: 20}
		change(p)
		return p
	}
	longest := float64(control.StaleAfter.Milliseconds())
	for _, tt := range []struct {
		name string
		p    *Pacing
		note string
	}{
		{"nothing", nil, ""},
		{"one that is fresh", pace(func(p *Pacing) {}), "restored"},
		{"one of long ago", pace(func(p *Pacing) { p.RecordedAt = time.Now().Add(-7 * time.Hour) }), "discarded_stale_or_undated"},
		{"no interval", pace(func(p *Pacing) { p.IntervalMS = 0 }), "discarded_unreadable"},
		{"a negative one", pace(func(p *Pacing) { p.IntervalMS = -1 }), "discarded_unreadable"},
		{"no number", pace(func(p *Pacing) { p.IntervalMS = math.NaN() }), "discarded_unreadable"},
		{"the longest", pace(func(p *Pacing) { p.IntervalMS = longest }), "restored"},
		{"one without end", pace(func(p *Pacing) { p.IntervalMS = longest + 1 }), "discarded_unreadable"},
		{"a law that is not known", pace(func(p *Pacing) { p.Law, p.Version = "none", 99 }), "discarded_unreadable"},
	} {
		r := upon(t, &shelf{})
		note := ""
		r.o.OnEvent = func(e event.Event) {
			if e.Type == event.WarmStart {
				note += e.Note
			}
		}
		r.warmStart(tt.p)
		if note != tt.note || r.warm != (tt.note == "restored") {
			t.Errorf("%s: %q, warm %v; want %q", tt.name, note, r.warm, tt.note)
		}
	}
}

// SetBacklogAfter lowers how many details of a stream become gaps of their own.
func (o *Options) SetBacklogAfter(n int) { o.backlogAfter = n }
