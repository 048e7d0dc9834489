package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

// late is a quota whose waits end with their context, as when it and the
// approval come at the same instant.
type late struct{ *governor.Governor }

func (l late) ApproveWait(ctx context.Context, _ quota.Request) (quota.Decision, error) {
	<-ctx.Done()
	return quota.Decision{}, &reason.Refusal{Reason: reason.Deadline, Err: ctx.Err()}
}

func TestTheEndOfAWaitIsAnAnswerAndNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.quotas = map[string]api.Quota{"openai": late{w.openai}}
		const call = `{"model":"m","wait_ms":100}`
		for range 2 { // became free at the last instant
			w.approved(t, "plain", call)
		}
		if p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", call), 429); p.Code != quota.CodeThrottled {
			t.Errorf("%+v", p)
		}
	})
}

func TestRefusalsTakeNoRoomForPermits(t *testing.T) {
	w := newWorld(t, func(o *api.Options) { o.Permits = 1 })
	for range 3 {
		into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"small","expected_input_tokens":101}`), 429)
	}
	w.approved(t, "plain", `{"provider":"openai","model":"small","expected_input_tokens":1}`)
}

func TestAWaitMayBeLongerThanABodyMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := governor.New(governor.Options{
			Config:  quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 1}}}},
			MaxWait: 2 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = g.Close() }()
		w := newWorld(t, nil)
		w.quotas = map[string]api.Quota{"slow": g}
		w.approved(t, "plain", `{"model":"m"}`)
		conn := serve(t, w)()
		defer func() { _ = conn.Close() }()
		const body = `{"model":"m","wait_ms":90000}`
		if _, err := fmt.Fprintf(conn, "POST /v1/quota/approve HTTP/1.1\r\nHost: headway\r\nAuthorization: Bearer plain\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		var a api.Approval
		if err := json.NewDecoder(res.Body).Decode(&a); err != nil || res.StatusCode != 200 || a.WaitedMS != 60_000 {
			t.Errorf("%s: %+v, %v", res.Status, a, err)
		}
	})
}

func TestAWaitEndsWithTheApprovalOrAtOnceWhenItCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for range 2 {
			w.approved(t, "plain", `{"provider":"openai","model":"m"}`)
		}
		began := time.Now()
		a := w.approved(t, "plain", `{"provider":"openai","model":"m","wait_ms":2000}`)
		if waited := time.Since(began); waited != time.Second || a.WaitedMS != 1000 {
			t.Errorf("waited %v, said %d ms, want 1 s", waited, a.WaitedMS)
		}
		began = time.Now()
		p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","wait_ms":900}`), 429)
		if p.Code != quota.CodeThrottled || p.RetryInMS != 1000 || time.Since(began) != 0 {
			t.Errorf("after %v: %+v", time.Since(began), p)
		}
	})
}

func TestAWaitThatOthersOvertakeEndsInTimeWithWhatStandsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for range 2 {
			w.approved(t, "plain", `{"provider":"openai","model":"m"}`)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			began := time.Now()
			p := into[api.Problem](t, w.do("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","wait_ms":1500}`), 429)
			if p.Code != quota.CodeThrottled || p.RetryInMS < 1 || time.Since(began) > 1500*time.Millisecond {
				t.Errorf("after %v: %+v", time.Since(began), p)
			}
		})
		synctest.Wait()
		for range 2 { // both have the greater priority
			waiting.Go(func() { w.approved(t, "plain", `{"provider":"openai","model":"m","wait_ms":5000,"priority":5}`) })
		}
		waiting.Wait()
	})
}

func TestAClientThatGoesAwayTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for range 2 {
			w.approved(t, "plain", `{"provider":"openai","model":"m"}`)
		}
		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			r := request("POST", "/v1/quota/approve", "plain", `{"provider":"openai","model":"m","wait_ms":5000}`).WithContext(ctx)
			w.ServeHTTP(httptest.NewRecorder(), r)
		})
		synctest.Wait()
		if n := w.openai.Snapshot().Statistics.Waiting; n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		leave()
		waiting.Wait()
		time.Sleep(time.Second)
		s := w.openai.Snapshot()
		if s.Statistics.Waiting != 0 || s.Statistics.Open != 2 || *s.Models["m"].CallsRemaining != 1 {
			t.Errorf("%+v, %d calls", s.Statistics, *s.Models["m"].CallsRemaining)
		}
	})
}
