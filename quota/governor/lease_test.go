package governor_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/powercut"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

// calls is the stored number of calls of the model "m".
func (m *memory) calls() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.use {
		if u.Scope == (quota.Scope{Model: "m"}) {
			return u.Calls
		}
	}
	return 0
}

// count is how often was saved.
func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saves
}

// TestWhenADayIsStored: each of the first calls as it is, and then a quarter of what
// was used ahead, so that a save comes only when the lease is used up.
func TestWhenADayIsStored(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400}), Store: store})
	var saved, stored []int64
	for call := range int64(40) {
		before := store.saves
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		if store.saves > before {
			saved, stored = append(saved, call+1), append(stored, store.calls())
		}
	}
	wantSaved := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 21, 27, 34}
	wantStored := []int64{1, 2, 3, 4, 5, 6, 7, 8, 11, 15, 20, 26, 33, 42}
	if !slices.Equal(saved, wantSaved) || !slices.Equal(stored, wantStored) {
		t.Errorf("saved at calls %v as %v, want %v as %v", saved, stored, wantSaved, wantStored)
	}
}

// TestALeaseAheadIsNotOfTheNextDay: what was stored ahead yesterday covers nothing
// of today, and is not in today's use.
func TestALeaseAheadIsNotOfTheNextDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400}), Store: store})
		for range 35 {
			if _, err := g.Approve(ask(1)); err != nil {
				t.Fatal(err)
			}
		}
		if n := store.calls(); n != 42 {
			t.Errorf("%d stored, want 42", n)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		before := store.saves
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		if n := store.calls(); store.saves == before || n < 1 || n > 2 {
			t.Errorf("%d stored after the first call of the day, in %d saves", n, store.saves-before)
		}
	})
}

// TestOnlyWhatHasACapIsStoredAhead: what has none is stored as it is used, along with
// the rest.
func TestOnlyWhatHasACapIsStoredAhead(t *testing.T) {
	other := &memory{}
	capped := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 6400}), Store: other})
	for range 34 {
		if _, err := capped.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
	}
	if other.calls() != 34 || other.tokens() != 42 {
		t.Errorf("%d calls and %d tokens are stored, want 34 and 42", other.calls(), other.tokens())
	}
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400}), Store: store})
	for range 34 {
		if _, err := g.Approve(ask(100)); err != nil {
			t.Fatal(err)
		}
	}
	if store.calls() != 42 || store.tokens() != 3400 {
		t.Errorf("%d calls and %d tokens are stored, want 42 and 3400", store.calls(), store.tokens())
	}
}

// TestCallsWithoutACapCostNoSave: not in the first saves of a scope, and not later.
func TestCallsWithoutACapCostNoSave(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 6400}), Store: store})
	for i := range 12 {
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		saves := store.saves
		for range 3 {
			if _, err := g.Approve(ask(0)); err != nil {
				t.Fatal(err)
			}
		}
		if store.saves != saves {
			t.Errorf("%d saves for calls after token %d", store.saves-saves, i+1)
		}
	}
}

// TestTokensWithoutACapCostNoSave: what a call used is stored along with the next.
func TestTokensWithoutACapCostNoSave(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400}), Store: store})
	for i := range 12 {
		d, err := g.Approve(ask(1))
		if err != nil {
			t.Fatal(err)
		}
		saves := store.saves
		if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 90}); err != nil {
			t.Fatal(err)
		}
		if store.saves != saves {
			t.Errorf("%d saves for the tokens of call %d", store.saves-saves, i+1)
		}
	}
}

// TestWithoutACapNothingIsStoredBeforeTheEnd: there is nothing to hand out twice.
func TestWithoutACapNothingIsStoredBeforeTheEnd(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60}), Store: store})
	for range 3 {
		if _, err := g.Approve(ask(10)); err != nil {
			t.Fatal(err)
		}
	}
	if store.saves != 0 {
		t.Errorf("%d saves", store.saves)
	}
	if err := g.Close(); err != nil || store.tokens() != 30 {
		t.Errorf("%v, %d tokens are stored at the end", err, store.tokens())
	}
}

// TestWhatIsStoredAheadGoesByThisProcess: what former ones used of the day makes it no
// larger, and no smaller either.
func TestWhatIsStoredAheadGoesByThisProcess(t *testing.T) {
	day := time.Now().UTC().Format(time.DateOnly)
	store := &memory{use: []quota.DayUse{{Scope: quota.Scope{Model: "m"}, Day: day, Zone: "UTC", Tokens: 4000, Calls: 4000}}}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400, MaxDailyTokens: 6400}), Store: store})
	for range 9 {
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
	}
	if store.calls() != 4011 || store.tokens() != 4011 {
		t.Errorf("%d calls and %d tokens are stored, want 4,009 and 2 ahead", store.calls(), store.tokens())
	}
}

// TestTheLargestLease is a 64th of the cap.
func TestTheLargestLease(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 6400}), Store: store})
	for range 9 {
		if _, err := g.Approve(ask(50)); err != nil {
			t.Fatal(err)
		}
	}
	if store.tokens() != 550 {
		t.Errorf("%d tokens are stored, want 450 and 100 ahead", store.tokens())
	}
}

// TestALeaseEndsWithItsUse: when all was given back, what comes next is stored again.
func TestALeaseEndsWithItsUse(t *testing.T) {
	store := &memory{}
	c := oneModel(quota.Limits{MaxDailyCalls: 6400})
	c.Models["n"] = quota.Model{Limits: quota.Limits{MaxDailyCalls: 6400}}
	g := open(t, governor.Options{Config: c, Store: store})
	var permits []quota.Permit
	for range 12 {
		d, err := g.Approve(ask(1))
		if err != nil {
			t.Fatal(err)
		}
		permits = append(permits, d.Permit)
	}
	for _, p := range permits {
		if _, err := g.Cancel(p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Approve(quota.Request{Model: "n"}); err != nil || store.calls() != 0 {
		t.Fatalf("%v, %d calls are stored", err, store.calls())
	}
	if _, err := g.Approve(ask(1)); err != nil || store.calls() < 1 {
		t.Errorf("%v, %d calls are stored of 1", err, store.calls())
	}
}

// TestWhoIsCoveredByALeaseWaitsUntilItIsStored: it is not there before.
func TestWhoIsCoveredByALeaseWaitsUntilItIsStored(t *testing.T) {
	store := &gated{begun: make(chan struct{}), open: make(chan struct{})}
	store.once.Do(func() {}) // not yet
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400}), Store: store})
	for range 33 {
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
	}
	store.once = sync.Once{}
	saves := store.saves
	var all sync.WaitGroup
	for i := range 2 { // the 34th call takes a lease, and the 35th is within it
		all.Go(func() {
			if _, err := g.Approve(ask(1)); err != nil {
				t.Error(err)
			}
			if i == 1 && store.count() == saves {
				t.Error("it went before the lease was stored")
			}
		})
		if i == 0 {
			<-store.begun
		}
	}
	for g.Statistics().Approved < 35 {
		runtime.Gosched()
	}
	for range 1000 {
		runtime.Gosched()
	}
	close(store.open)
	all.Wait()
}

// slow is a store that takes a second.
type slow struct{ memory }

func (s *slow) Save(use []quota.DayUse) error {
	time.Sleep(time.Second)
	return s.memory.Save(use)
}

// TestTheLatencyOfAnApprovalIsMeasured: with the time that the store took, from the first on.
func TestTheLatencyOfAnApprovalIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		quick := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400})})
		time.Sleep(time.Hour)
		if _, err := quick.Approve(ask(1)); err != nil || quick.Statistics().MeanApprovalLatency != 0 {
			t.Errorf("%v, %v without a store", err, quick.Statistics().MeanApprovalLatency)
		}
		g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400}), Store: &slow{}})
		if s := g.Statistics(); s.MeanApprovalLatency != 0 {
			t.Errorf("before the first: %v", s.MeanApprovalLatency)
		}
		for i := range 3 {
			if _, err := g.Approve(ask(1)); err != nil {
				t.Fatal(err)
			}
			if s := g.Statistics(); s.MeanApprovalLatency != time.Second {
				t.Errorf("after %d: %v, want a second", i+1, s.MeanApprovalLatency)
			}
		}
	})
}

// TestRefundsAreStoredInTheFirstSavesOnly: then the lease covers them.
func TestRefundsAreStoredInTheFirstSavesOnly(t *testing.T) {
	for calls, want := range map[int]int64{1: 0, 7: 60, 8: 80} {
		store := &memory{}
		g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 6400}), Store: store})
		for i := range calls {
			d, err := g.Approve(ask(10))
			if err != nil {
				t.Fatal(err)
			}
			if i < calls-1 {
				continue
			}
			if _, err := g.RecordUsage(d.Permit, quota.Usage{}); err != nil {
				t.Fatal(err)
			}
		}
		if store.tokens() != want {
			t.Errorf("after %d calls, the last of which used nothing, %d tokens are stored, want %d", calls, store.tokens(), want)
		}
	}
}

// TestWhatIsUsedUpToItsLeaseIsCovered: to the last token.
func TestWhatIsUsedUpToItsLeaseIsCovered(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 6400}), Store: store})
	for range 9 {
		if _, err := g.Approve(ask(40)); err != nil {
			t.Fatal(err)
		}
	}
	saves, ahead := store.saves, store.tokens()-9*40
	if ahead != 90 {
		t.Fatalf("%d tokens are stored ahead, want a quarter of 360", ahead)
	}
	if _, err := g.Approve(ask(ahead)); err != nil || store.saves != saves {
		t.Errorf("%v, %d more saves", err, store.saves-saves)
	}
	if _, err := g.Approve(ask(1)); err != nil || store.saves != saves+1 {
		t.Errorf("%v, %d more saves, want one", err, store.saves-saves)
	}
}

// TestARefundIsStored: while a day is stored exactly, what is given back is saved as soon
// as something else is, calls and tokens alike.
func TestARefundIsStored(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 6400, MaxDailyCalls: 640}), Store: store})
	d, err := g.Approve(ask(100))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 10}); err != nil || store.tokens() != 10 || store.calls() != 1 {
		t.Errorf("%v: %d tokens, %d calls are stored", err, store.tokens(), store.calls())
	}
	if d, err = g.Approve(ask(0)); err != nil || store.calls() != 2 {
		t.Fatal(err, store.calls())
	}
	if _, err := g.Cancel(d.Permit); err != nil || store.calls() != 1 {
		t.Errorf("%v: %d calls are stored after one was given back", err, store.calls())
	}
}

// TestAStoredDayThatIsUsedUpIsSaidAtOnce: before anybody asks.
func TestAStoredDayThatIsUsedUpIsSaidAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := listen()
		store := &memory{use: []quota.DayUse{{Scope: quota.Scope{Model: "m"}, Day: "2000-01-01", Zone: "UTC", Tokens: 640, Calls: 1}}}
		open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 640}), Store: store, OnEvent: h.event})
		h.want(t, "0s llm:quota_exhausted model m")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		h.want(t, "0s llm:quota_exhausted model m", "24h0m0s rate:resume model m")
	})
}

// TestNothingIsStoredAfterTheEnd: the store's owner may have closed it.
func TestNothingIsStoredAfterTheEnd(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 6400}), Store: store})
	d, err := g.Approve(ask(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	saves := store.saves
	if first, err := g.RecordUsage(d.Permit, quota.Usage{Input: 200}); !first || err != nil || store.saves != saves {
		t.Errorf("%v, %v, %d more saves", first, err, store.saves-saves)
	}
}

// gated is a store whose first save waits.
type gated struct {
	memory
	begun, open chan struct{}
	once        sync.Once
}

func (s *gated) Save(use []quota.DayUse) error {
	s.once.Do(func() { close(s.begun); <-s.open })
	return s.memory.Save(use)
}

// TestWhoComesDuringASaveSharesTheNext: one save covers all who waited for it.
func TestWhoComesDuringASaveSharesTheNext(t *testing.T) {
	store := &gated{begun: make(chan struct{}), open: make(chan struct{})}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 6400}), Store: store})
	var all sync.WaitGroup
	ask1 := func() {
		if _, err := g.Approve(ask(1)); err != nil {
			t.Error(err)
		}
	}
	all.Go(ask1)
	<-store.begun
	for range 5 {
		all.Go(ask1)
	}
	for g.Snapshot().Models["m"].Ledger.Approved < 6 { // all are in the books
		runtime.Gosched()
	}
	close(store.open)
	all.Wait()
	if n := store.calls(); store.saves != 2 || n != 6 {
		t.Errorf("%d calls stored in %d saves, want all 6 in 2", n, store.saves)
	}
}

// TestANewCapIsCoveredHoweverItComes: by a patch or by another configuration.
func TestANewCapIsCoveredHoweverItComes(t *testing.T) {
	replace := func(g *governor.Governor, tokens int64) error {
		return g.Replace(oneModel(quota.Limits{MaxDailyCalls: 640, MaxDailyTokens: tokens}))
	}
	patch := func(g *governor.Governor, tokens int64) error {
		return g.UpdateConfig(fmt.Appendf(nil, `{"models":{"m":{"maxDailyTokens":%d}}}`, tokens))
	}
	for name, change := range map[string]func(*governor.Governor, int64) error{"replace": replace, "patch": patch} {
		t.Run(name, func(t *testing.T) { newCap(t, change) })
	}
}

func newCap(t *testing.T, change func(g *governor.Governor, tokens int64) error) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 640}), Store: store})
	for i, tokens := range []int64{6400, 64_000} {
		for range 10 {
			if _, err := g.Approve(ask(10)); err != nil {
				t.Fatal(err)
			}
		}
		if err := change(g, tokens); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Approve(ask(10)); err != nil {
			t.Fatal(err)
		}
		if used := int64(110 * (i + 1)); store.tokens() < used {
			t.Errorf("%d stored of %d", store.tokens(), used)
		}
	}
}

func TestARefusalSaysTheInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})})
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		_, err := g.Approve(ask(1))
		r, ok := errors.AsType[*reason.Refusal](err)
		if !ok || !r.RetryAt.Equal(time.Now().Add(time.Second)) {
			t.Errorf("%+v, want %v", err, time.Now().Add(time.Second))
		}
	})
}

func TestClosingAgainDoesNothing(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 640}), Store: store})
	for range 3 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if store.saves != 1 || g.Statistics().Open != 0 {
		t.Errorf("%d saves", store.saves)
	}
}

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
