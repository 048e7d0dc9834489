package llm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

var (
	_ llm.Approver = (*governor.Governor)(nil)
	_ llm.Asker    = (*governor.Governor)(nil)
)

func (m *model) Complete(context.Context, request) (quota.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.panics != nil {
		panic(m.panics)
	}
	return m.answer, m.err
}

func TestADeniedCallNeverReachesTheClientBelow(t *testing.T) {
	for name, c := range map[string]struct {
		config quota.Config
		req    request
		before int // calls that pass first
		code   quota.Code
		reason reason.Reason
		back   time.Duration // when to come back, since the origin; 0 for never
	}{
		"throttled":     {limits, request{"m", 10}, 2, quota.CodeThrottled, reason.Pacing, 30 * time.Second},
		"day used up":   {limits, request{"m", 990}, 1, quota.CodeHardLimit, reason.QuotaExhausted, 18*time.Hour + 53*time.Minute + 53*time.Second},
		"unknown model": {limits, request{"other", 10}, 0, quota.CodeModelNotConfigured, reason.ClientError, 0},
		"negative":      {limits, request{"m", -1}, 0, quota.CodeInvalidConfig, reason.ClientError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := still(t, c.config)
			m := &model{answer: quota.Usage{Input: c.req.tokens, Output: 10}}
			g, faults := govern(t, m, llm.AtOnce(s))
			for range c.before {
				if _, err := g.Complete(t.Context(), c.req); err != nil {
					t.Fatal(err)
				}
			}
			_, err := g.Complete(t.Context(), c.req)
			if n := m.count(); n != c.before {
				t.Errorf("%d calls reached the client, want %d", n, c.before)
			}
			refusal, ok := errors.AsType[*reason.Refusal](err)
			if !ok || refusal.Reason != c.reason {
				t.Fatalf("error %v, want a refusal for %v", err, c.reason)
			}
			if c.back == 0 != refusal.RetryAt.IsZero() || c.back != 0 && !refusal.RetryAt.Equal(origin.Add(c.back)) {
				t.Errorf("come back at %v, want %v after %v", refusal.RetryAt, c.back, origin)
			}
			if denial, ok := errors.AsType[*quota.Denial](err); !ok || denial.Code != c.code {
				t.Errorf("error %v, want code %s", err, c.code)
			}
			backoffs := s.took(quota.EventBackoff)
			if len(backoffs) != 1 || backoffs[0].Scope != (quota.Scope{Tenant: "t", Agent: "a", Model: c.req.model}) {
				t.Errorf("events %v, want one llm:backoff of the caller", backoffs)
			}
			if _, open := s.ledger(); open != 0 || len(*faults) != 0 {
				t.Errorf("%d permits open, faults %v", open, *faults)
			}
		})
	}
}

func TestACallIsSettledWithWhatItUsed(t *testing.T) {
	s := still(t, limits)
	m := &model{answer: quota.Usage{Input: 30, Output: 5}}
	g, faults := govern(t, m, llm.AtOnce(s))
	got, err := g.Complete(t.Context(), request{"m", 100})
	if err != nil || got != m.answer {
		t.Fatalf("got %v, %v", got, err)
	}
	ledger, open := s.ledger()
	if ledger.Used != 35 || ledger.Held != 0 || open != 0 || ledger.Refunded != 75 || len(*faults) != 0 {
		t.Errorf("ledger %+v, %d open, faults %v; want 35 of 110 used", ledger, open, *faults)
	}
}

func TestAFailedCallThatWasSentIsSettledWithZeroUsage(t *testing.T) {
	s := still(t, limits)
	m := &model{err: errors.New("upstream: 500"), answer: quota.Usage{Input: 99}}
	g, _ := govern(t, m, llm.AtOnce(s))
	for range 2 {
		if _, err := g.Complete(t.Context(), request{"m", 100}); !errors.Is(err, m.err) {
			t.Fatalf("error %v, want the client's own", err)
		}
	}
	if ledger, open := s.ledger(); ledger.Used != 0 || open != 0 {
		t.Errorf("ledger %+v, %d open; want no tokens used", ledger, open)
	}
	// Its calls are used: the bucket of two is empty.
	if _, err := g.Complete(t.Context(), request{"m", 100}); m.count() != 2 || err == nil {
		t.Errorf("%d calls, error %v: a failed call cost no call", m.count(), err)
	}
	if n := len(s.took(quota.EventBackoff)); n != 1 {
		t.Errorf("%d backoffs: only the denial is one", n)
	}
}

func TestACallThatWasNotSentIsGivenBack(t *testing.T) {
	s := still(t, limits)
	m := &model{err: fmt.Errorf("no address: %w", llm.ErrNotSent)}
	g, _ := govern(t, m, llm.AtOnce(s))
	for range 5 { // more than the bucket holds
		if _, err := g.Complete(t.Context(), request{"m", 100}); !errors.Is(err, llm.ErrNotSent) {
			t.Fatal(err)
		}
	}
	if ledger, open := s.ledger(); ledger.Used != 0 || open != 0 {
		t.Errorf("ledger %+v, %d open", ledger, open)
	}
}

func TestADenialFurtherDownGivesTheCallBack(t *testing.T) {
	below, above := still(t, limits), still(t, quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 3}}}})
	m := &model{}
	inner, _ := govern(t, m, llm.AtOnce(below))
	outer, err := llm.Govern(llm.Config[request, quota.Usage]{
		Client: inner, Approver: llm.AtOnce(above), Describe: describe, Usage: func(u quota.Usage) quota.Usage { return u },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		_, err := outer.Complete(t.Context(), request{"m", 1})
		if (err == nil) != (i < 2) {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if n := len(above.took(quota.EventDenied)); n != 0 || m.count() != 2 {
		t.Errorf("%d denials above, %d calls: what was denied below cost something above", n, m.count())
	}
}

func TestAPanicIsSettledAndGoesOn(t *testing.T) {
	s := still(t, limits)
	m := &model{panics: "boom"}
	g, _ := govern(t, m, llm.AtOnce(s))
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _ = g.Complete(t.Context(), request{"m", 100})
	}()
	if ledger, open := s.ledger(); ledger.Used != 0 || open != 0 {
		t.Errorf("ledger %+v, %d open after a panic of the client", ledger, open)
	}
	broken, err := llm.Govern(llm.Config[request, quota.Usage]{
		Client: &model{}, Approver: llm.AtOnce(s), Describe: describe, Usage: func(quota.Usage) quota.Usage { panic("no usage") },
	})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = broken.Complete(t.Context(), request{"m", 100})
	}()
	if ledger, open := s.ledger(); ledger.Used != 110 || open != 0 {
		t.Errorf("ledger %+v, %d open after a panic of Usage: want the estimate", ledger, open)
	}
}

func TestNonsenseUsageCountsAsTheEstimate(t *testing.T) {
	s := still(t, limits)
	m := &model{answer: quota.Usage{Input: -5}}
	g, faults := govern(t, m, llm.AtOnce(s))
	if got, err := g.Complete(t.Context(), request{"m", 100}); err != nil || got != m.answer {
		t.Errorf("got %v, %v: the result suffered", got, err)
	}
	if ledger, open := s.ledger(); ledger.Used != 110 || open != 0 {
		t.Errorf("ledger %+v, %d open", ledger, open)
	}
	if len(*faults) != 1 || !strings.Contains((*faults)[0].Error(), "usage.input is -5") {
		t.Errorf("faults %v", *faults)
	}
}

func TestAnExpiredPermitIsAFaultButNoFailure(t *testing.T) {
	s := still(t, limits)
	slow := llm.Func[request, quota.Usage](func(context.Context, request) (quota.Usage, error) {
		s.mu.Lock()
		s.now += time.Hour
		s.mu.Unlock()
		return quota.Usage{Input: 1}, nil
	})
	var fault error
	g, err := llm.Govern(llm.Config[request, quota.Usage]{
		Client: slow, Approver: llm.AtOnce(s), Describe: describe, Usage: func(u quota.Usage) quota.Usage { return u },
		OnFault: func(err error) { fault = err },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Complete(t.Context(), request{"m", 1}); err != nil {
		t.Errorf("error %v: the result suffered", err)
	}
	if d, ok := errors.AsType[*quota.Denial](fault); !ok || d.Code != quota.CodeApprovalConflict {
		t.Errorf("fault %v, want %s", fault, quota.CodeApprovalConflict)
	}
}

// patient approves, but only after its caller has gone.
type patient struct {
	*shell
	gone context.CancelFunc
}

func (p patient) ApproveWait(_ context.Context, r quota.Request) (quota.Decision, error) {
	p.gone()
	return p.Approve(r)
}

func TestACallerThatLeftWhileWaitingSendsNothing(t *testing.T) {
	s := still(t, limits)
	ctx, cancel := context.WithCancel(t.Context())
	m := &model{}
	g, _ := govern(t, m, patient{s, cancel})
	if _, err := g.Complete(ctx, request{"m", 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if ledger, open := s.ledger(); m.count() != 0 || open != 0 || ledger.Used != 0 {
		t.Errorf("%d calls, %d open, ledger %+v", m.count(), open, ledger)
	}
	if n := len(s.took(quota.EventBackoff)); n != 0 {
		t.Errorf("%d backoffs: the caller left, nobody was denied", n)
	}
}

// lenient gives a denial without an error.
type lenient struct{ *shell }

func (l lenient) ApproveWait(_ context.Context, r quota.Request) (quota.Decision, error) {
	d, _ := l.Approve(r)
	return d, nil
}

func TestADenialWithoutAnErrorIsOneToo(t *testing.T) {
	s := still(t, limits)
	m := &model{}
	g, _ := govern(t, m, lenient{s})
	_, err := g.Complete(t.Context(), request{"other", 1})
	if _, ok := errors.AsType[*quota.Denial](err); !ok || m.count() != 0 || len(s.took(quota.EventBackoff)) != 1 {
		t.Errorf("error %v, %d calls", err, m.count())
	}
}

func TestManyGoroutinesNeverExceedTheLimitTogether(t *testing.T) {
	s := still(t, quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 100}}}})
	m := &model{answer: quota.Usage{Input: 1}}
	g, _ := govern(t, m, llm.AtOnce(s))
	var denials atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 50 {
				if _, err := g.Complete(t.Context(), request{"m", 1}); err != nil {
					denials.Add(1)
				}
			}
		})
	}
	all.Wait()
	if m.count() != 100 || denials.Load() != 700 {
		t.Errorf("%d calls, %d denials, want exactly 100 and 700", m.count(), denials.Load())
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	whole := llm.Config[request, quota.Usage]{
		Client: &model{}, Approver: lenient{}, Describe: describe, Usage: func(u quota.Usage) quota.Usage { return u },
	}
	for name, without := range map[string]func(*llm.Config[request, quota.Usage]){
		"Client":   func(c *llm.Config[request, quota.Usage]) { c.Client = nil },
		"Approver": func(c *llm.Config[request, quota.Usage]) { c.Approver = nil },
		"Describe": func(c *llm.Config[request, quota.Usage]) { c.Describe = nil },
		"Usage":    func(c *llm.Config[request, quota.Usage]) { c.Usage = nil },
	} {
		c := whole
		without(&c)
		if _, err := llm.Govern(c); err == nil || !strings.Contains(err.Error(), "llm: "+name+" is nil") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// With a whole governor underneath: a call waits its turn, and one whose turn
// comes too late is denied at once.
func TestACallWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backoffs := 0
		q, err := governor.New(governor.Options{
			Config:  quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 6, Burst: 1}}}},
			MaxWait: time.Minute,
			OnEvent: func(e quota.Event) {
				if e.Type == quota.EventBackoff {
					backoffs++
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m := &model{answer: quota.Usage{Input: 1}}
		g, _ := govern(t, m, q)
		start := time.Now()
		for range 3 {
			if _, err := g.Complete(t.Context(), request{"m", 1}); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("three calls took %v, want 20s at one in ten seconds", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = g.Complete(ctx, request{"m", 1})
		if _, ok := errors.AsType[*quota.Denial](err); !ok || m.count() != 3 || time.Since(start) != 20*time.Second {
			t.Errorf("error %v after %v, %d calls; want a denial at once", err, time.Since(start), m.count())
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if backoffs != 1 {
			t.Errorf("%d backoffs, want the one of the denial", backoffs)
		}
	})
}
