package llm_test

import (
	"context"
	"errors"
	"testing"

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
		"told": {func(u quota.Usage) quota.Usage { return u }, none, []quota.Usage{{Input: 5, Cached: 3, Output: 2}}, false},
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
