package llm_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/llm"
	"github.com/headway-go/headway/quota"
)

// book is a quota that keeps what permits were settled with.
type book struct {
	settled  []quota.Usage
	canceled int
	refuses  func(quota.Usage) error
}

func (b *book) ApproveWait(context.Context, quota.Request) (quota.Decision, error) {
	return quota.Decision{Approved: true}, nil
}
func (b *book) RecordUsage(_ quota.Permit, u quota.Usage) (bool, error) {
	b.settled = append(b.settled, u)
	return true, b.refuses(u)
}
func (b *book) Cancel(quota.Permit) (bool, error)   { b.canceled++; return true, nil }
func (b *book) Backoff(quota.Scope, quota.Decision) {}
func none(quota.Usage) error                        { return nil }

// TestCachedTokensAreSettledAsSuch: where the client's own figures cannot be
// used, what was expected counts, and of it the cached part as cached.
func TestCachedTokensAreSettledAsSuch(t *testing.T) {
	expected := quota.Usage{Input: 100, Cached: 60, Output: 7}
	for name, c := range map[string]struct {
		usage   func(quota.Usage) quota.Usage
		refuses func(quota.Usage) error
		want    []quota.Usage
		panics  bool
	}{
		"reported": {func(u quota.Usage) quota.Usage { return u }, none, []quota.Usage{{Input: 5, Cached: 3, Output: 2}}, false},
		"nonsense": {func(quota.Usage) quota.Usage { return quota.Usage{Input: -1} }, func(u quota.Usage) error {
			if u.Input < 0 {
				return &quota.FieldError{}
			}
			return nil
		}, []quota.Usage{{Input: -1}, expected}, false},
		"a panic": {func(quota.Usage) quota.Usage { panic("no usage") }, none, []quota.Usage{expected}, true},
	} {
		b := &book{refuses: c.refuses}
		g, err := llm.Govern(llm.Config[int, quota.Usage]{
			Client: answers(func() quota.Usage { return quota.Usage{Input: 5, Cached: 3, Output: 2} }), Approver: b, Usage: c.usage,
			Describe: func(int) quota.Request { return quota.Request{InputTokens: 100, CachedTokens: 60, OutputTokens: 7} },
		})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if (recover() != nil) != c.panics {
					t.Errorf("%s: it panicked, or did not", name)
				}
			}()
			_, _ = g.Complete(t.Context(), 1)
		}()
		if diff := cmp.Diff(c.want, b.settled); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

type answers func() quota.Usage

func (a answers) Complete(context.Context, int) (quota.Usage, error) { return a(), nil }

// TestACallThatWasNotSentIsOnlyGivenBack: it is not settled as well.
func TestACallThatWasNotSentIsOnlyGivenBack(t *testing.T) {
	b := &book{refuses: none}
	var faults []error
	g, err := llm.Govern(llm.Config[int, quota.Usage]{
		Client: unsent{}, Approver: b, Usage: func(u quota.Usage) quota.Usage { return u },
		Describe: func(int) quota.Request { return quota.Request{InputTokens: 100} }, OnFault: func(err error) { faults = append(faults, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Complete(t.Context(), 1); !errors.Is(err, llm.ErrNotSent) || b.canceled != 1 || len(b.settled) != 0 || len(faults) != 0 {
		t.Errorf("%v: %d given back, settled %v, faults %v", err, b.canceled, b.settled, faults)
	}
}

// unsent is a client that cannot send.
type unsent struct{}

func (unsent) Complete(context.Context, int) (quota.Usage, error) {
	return quota.Usage{}, llm.ErrNotSent
}

// shell is a governor whose time stands still unless it is moved.
type shell struct {
	mu     sync.Mutex
	core   *quota.Governor
	now    time.Duration
	events []quota.Event
}

var origin = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func still(t *testing.T, c quota.Config) *shell {
	t.Helper()
	core, err := quota.New(c, origin)
	if err != nil {
		t.Fatal(err)
	}
	return &shell{core: core}
}

func (s *shell) Approve(r quota.Request) (quota.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.core.Approve(s.now, r)
	if !d.Approved {
		return d, d.Refusal(origin.Add(s.now))
	}
	return d, nil
}

func (s *shell) RecordUsage(id quota.Permit, actual quota.Usage) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.RecordUsage(s.now, id, actual)
}

func (s *shell) Cancel(id quota.Permit) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Cancel(s.now, id)
}

func (s *shell) Backoff(scope quota.Scope, d quota.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Backoff(s.now, scope, d)
}

// took are the events of one type so far.
func (s *shell) took(kind quota.EventType) []quota.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, _ = s.core.TakeEvents(s.events)
	return slices.DeleteFunc(slices.Clone(s.events), func(e quota.Event) bool { return e.Type != kind })
}

// ledger is the global scope's, and how many permits are open.
func (s *shell) ledger() (quota.Ledger, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Snapshot(s.now).Global.Ledger, s.core.Statistics().Open
}

type request struct {
	model  string
	tokens int64
}

// model is a client that counts its calls and answers as scripted.
type model struct {
	mu     sync.Mutex
	calls  int
	answer quota.Usage
	err    error
	panics any
}

func (m *model) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// limits are two calls and a day of 1000 tokens.
var limits = quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 2, MaxDailyTokens: 1000}}}}

func describe(r request) quota.Request {
	return quota.Request{Model: r.model, InputTokens: r.tokens, OutputTokens: 10, Tenant: "t", Agent: "a"}
}

// govern is a client under the shell's quota, and the faults it reports.
func govern(t *testing.T, m *model, a llm.Approver) (*llm.Governed[request, quota.Usage], *[]error) {
	t.Helper()
	var faults []error
	g, err := llm.Govern(llm.Config[request, quota.Usage]{
		Client: m, Approver: a, Describe: describe,
		Usage:   func(u quota.Usage) quota.Usage { return u },
		OnFault: func(err error) { faults = append(faults, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return g, &faults
}
