package llm_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/llm"
	"github.com/headway-go/headway/quota"
)

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

// told are the events of one type so far.
func (s *shell) told(kind quota.EventType) []quota.Event {
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

// model is a client that counts its calls and answers with what it is told.
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
