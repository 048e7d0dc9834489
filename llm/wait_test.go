package llm_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

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
