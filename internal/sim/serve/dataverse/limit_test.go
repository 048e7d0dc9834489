package dataverse_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
)

// limited returns a scenario without latency and with one limit.
func limited(limit string) string {
	return "name: t\nprovider:\n  latency: {p50: 2ns, uplink_p50: 1ns, uplink_p99: 1ns}\n  throttle: {retry_after: exact}\n" +
		"  penalty: {base: 5s, factor: 2, max: 5m, forgive: 2m}\n  limits: [" + limit + "]\n"
}

func TestEachLimitHasItsCode(t *testing.T) {
	for _, tt := range []struct {
		name, yaml, code, message string
		admitted                  int
	}{
		{"requests", limited("{kind: sliding_window, limit: 3, window: 5m}"), "0x80072322", "Number of requests exceeded the limit of 3 over time window of 300 seconds.", 3},
		{"execution", limited("{kind: busy_time, limit: 1200s, window: 5m}"), "0x80072321",
			"Combined execution time of incoming requests exceeded limit of 1,200,000 milliseconds over time window of 300 seconds. " +
				"Decrease number of concurrent requests or reduce the duration of requests and try again later.", 4},
		{"concurrency", limited("{kind: concurrency, limit: 2}"), "0x80072326", "Number of concurrent requests exceeded the limit of 2.", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := environ(t, tt.yaml, dataverse.Options{Overhead: 300 * time.Second, RowTime: -1}, nil)
				var wg sync.WaitGroup
				for i := range tt.admitted {
					wg.Go(func() { want(t, "within the limit", e.bulk("UpsertMultiple", byCode(fmt.Sprint(i))), 204) })
				}
				time.Sleep(time.Microsecond) // so that earlier requests have arrived
				w := e.bulk("UpsertMultiple", byCode("over"))
				code, message, _ := fault(t, w)
				if w.Code != 429 || code != tt.code || message != tt.message {
					t.Errorf("over the limit: %d %s, want %s %s", w.Code, w.Body, tt.code, tt.message)
				}
				if got := w.Header().Get("Retry-After"); got != "300" {
					t.Errorf("Retry-After %q, want 300", got)
				}
				again := e.bulk("UpsertMultiple", byCode("over"))
				if code, _, _ := fault(t, again); code != tt.code {
					t.Errorf("during the block the code is %s, want still %s", code, tt.code)
				}
				wg.Go(func() {
					want(t, "another user", e.ask("bob", http.MethodPost, "contacts/Microsoft.Dynamics.CRM.UpsertMultiple", targets(byCode("bob"))), 204)
				})
				wg.Wait()
				st := e.Standing()
				ann, bob := st.Users[serve.KeyID("ann")], st.Users[serve.KeyID("bob")]
				if diff := cmp.Diff(map[string]int64{tt.code: 2}, ann.ByCode); diff != "" || ann.Throttled != 2 || ann.Admitted != int64(tt.admitted) || ann.Peak != tt.admitted || ann.Executing != 0 {
					t.Errorf("%+v %s", ann, diff)
				}
				if bob.Throttled != 0 || bob.Rows != 1 || st.Servers["server-1"].Throttled != 2 {
					t.Errorf("%+v", st)
				}
				if s := e.Stats().ByScope[serve.KeyID("ann")+"@server-1"]; s.Throttled != 2 || s.ByLimit["penalty"] != 1 {
					t.Errorf("the server's own counts are %+v", s)
				}
			})
		})
	}
}

func TestTheBuiltInLimitsAreTheDocumentedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := environ(t, "", dataverse.Options{}, nil)
		var kinds []string
		for _, l := range e.Scenario().Provider.Limits {
			kinds = append(kinds, l.String())
		}
		if diff := cmp.Diff([]string{"sliding_window 6000/5m", "busy_time 20m/5m", "concurrency 52"}, kinds); diff != "" {
			t.Error(diff)
		}
		began := time.Now()
		w := e.bulk("UpsertMultiple", byCode("a"), byCode("b"))
		if took := time.Since(began); took != 642*time.Millisecond {
			t.Errorf("two rows took %s, want 400 ms of way, 200 ms and 21 ms each", took)
		}
		for name, value := range map[string]string{
			"X-Ms-Dop-Hint": "4", "X-Ms-Ratelimit-Burst-Remaining-Xrm-Requests": "5999",
			"X-Ms-Ratelimit-Time-Remaining-Xrm-Requests": "1,199.76", "Odata-Version": "4.0",
		} {
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
	})
}

func TestFourAtATimeGoAsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := environ(t, "", dataverse.Options{MaxRows: 1000}, nil)
		const batch, batches = 450, 41 // 73,800 rows with four at a time
		rows := strings.Repeat(`,{"@odata.type":"Microsoft.Dynamics.CRM.contact"}`, batch)
		body := `{"Targets":[` + rows[1:] + `]}`
		began := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range batches {
					want(t, "a batch", e.ask("ann", http.MethodPost, "contacts/Microsoft.Dynamics.CRM.CreateMultiple", body), 200)
				}
			})
		}
		wg.Wait()
		if rate := 4 * batch * batches / time.Since(began).Seconds(); rate < 170 || rate > 185 {
			t.Errorf("%.1f rows a second, want about 176", rate)
		}
		if c := e.contacts(); c.Rows != 4*batch*batches || e.Stats().Throttled != 0 {
			t.Errorf("%+v after %d throttles, want none", c, e.Stats().Throttled)
		}
	})
}

func TestRetryAfterGrowsWhenPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := environ(t, limited("{kind: concurrency, limit: 1}"), dataverse.Options{Overhead: time.Second, RowTime: -1}, nil)
		var wg sync.WaitGroup
		wg.Go(func() { want(t, "the first", e.bulk("UpsertMultiple", byCode("a")), 204) })
		time.Sleep(time.Microsecond) // so that earlier requests have arrived
		var waits []string
		for range 4 {
			waits = append(waits, e.bulk("UpsertMultiple", byCode("b")).Header().Get("Retry-After"))
		}
		if diff := cmp.Diff([]string{"5", "10", "20", "40"}, waits); diff != "" {
			t.Error(diff)
		}
		time.Sleep(40 * time.Second)
		want(t, "after the wait", e.bulk("UpsertMultiple", byCode("b")), 204)
		wg.Wait()
	})
}

func TestServersAreChosenInTurnAndByTheirCookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := environ(t, limited("{kind: sliding_window, limit: 2, window: 5m}"), dataverse.Options{Servers: 2, Overhead: -1, RowTime: -1}, nil)
		statuses := func(header ...string) (out []int) {
			for range 3 {
				out = append(out, e.ask("ann", "GET", "contacts/$count", "", header...).Code)
			}
			return out
		}
		if diff := cmp.Diff([]int{200, 200, 429}, statuses("Cookie", "ARRAffinity=server-2")); diff != "" {
			t.Errorf("one server: %s", diff)
		}
		if diff := cmp.Diff([]int{200, 429, 200}, statuses()); diff != "" {
			t.Errorf("in turn: %s", diff)
		}
		st := e.Standing().Servers
		if a, b := st["server-1"], st["server-2"]; a.Admitted != 2 || a.Throttled != 0 || b.Admitted != 2 || b.Throttled != 2 {
			t.Errorf("%+v", st)
		}
		if got := e.ask("ann", "GET", "contacts/$count", "").Header().Get("Set-Cookie"); !strings.HasPrefix(got, "ARRAffinity=server-") {
			t.Errorf("cookie %q", got)
		}
	})
}

func TestHintsChangeAtTheirInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := environ(t, quick, dataverse.Options{Scale: 10, Hint: 8, Hints: []dataverse.Hint{{After: 60 * time.Second, Parallelism: 5}, {After: 30 * time.Second, Parallelism: 1}}}, nil)
		hint := func() string { return e.ask("ann", "GET", "nothing", "").Header().Get("X-Ms-Dop-Hint") }
		got := []string{hint()}
		for range 3 {
			time.Sleep(3*time.Second - time.Millisecond)
			got = append(got, hint())
			time.Sleep(time.Millisecond)
			got = append(got, hint())
		}
		if diff := cmp.Diff([]string{"8", "8", "1", "1", "5", "5", "5"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestKneesMakeBatchesLonger(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  dataverse.Options
		want time.Duration // of the third batch, which is bob's
	}{
		{"none", dataverse.Options{}, 2 * time.Second},
		{"of all", dataverse.Options{Knee: 2}, 3 * time.Second},
		{"of a user", dataverse.Options{UserKnee: 1}, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.opt.Overhead, tt.opt.RowTime = 2*time.Second, -1
				e := environ(t, "name: t\nprovider: {latency: {p50: 2ns, uplink_p50: 1ns, uplink_p99: 1ns}}\n", tt.opt, nil)
				var wg sync.WaitGroup
				var took [2]time.Duration
				for i := range 2 {
					wg.Go(func() {
						began := time.Now()
						e.bulk("UpsertMultiple", byCode(fmt.Sprint(i)))
						took[i] = time.Since(began)
					})
					time.Sleep(time.Microsecond) // so that earlier requests have arrived
				}
				began := time.Now()
				e.ask("bob", http.MethodPost, "contacts/Microsoft.Dynamics.CRM.UpsertMultiple", targets(byCode("c")))
				if third := time.Since(began).Round(time.Millisecond); third != tt.want {
					t.Errorf("bob's took %s, want %s", third, tt.want)
				}
				wg.Wait()
				if twice := took[1].Round(time.Millisecond) == 4*time.Second; twice != (tt.opt.UserKnee == 1) {
					t.Errorf("ann's second took %s", took[1])
				}
			})
		})
	}
}

func TestScaledTimeIsAdvertised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := environ(t, "", dataverse.Options{Scale: 60, Overhead: 20 * time.Second}, nil)
		p := e.Scenario().Provider
		if p.Latency.P50 != 400*time.Millisecond/60 || p.Penalty.Base != 5*time.Second/60 || p.Limits[0].Window != 5*time.Second || p.Limits[1].Busy != 20*time.Second {
			t.Errorf("%+v, want a sixtieth", p)
		}
		var wg sync.WaitGroup
		for i := range 52 {
			wg.Go(func() { e.bulk("UpsertMultiple", byCode(fmt.Sprint(i))) })
		}
		time.Sleep(4 * time.Millisecond) // after all reached the limits, and before one has left
		w := e.bulk("UpsertMultiple", byCode("over"))
		code, message, _ := fault(t, w)
		if w.Code != 429 || code != "0x80072326" || !strings.Contains(message, "52") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if h := w.Header(); h.Get("Retry-After") != "1" || h.Get("Retry-After-Ms") != "330" {
			t.Errorf("Retry-After %q, in milliseconds %q, want 1 and what is left of 20.021 s / 60", h.Get("Retry-After"), h.Get("Retry-After-Ms"))
		}
		if got := w.Header().Get("X-Ms-Ratelimit-Time-Remaining-Xrm-Requests"); got != "158.91" {
			t.Errorf("remaining %q, want 1,200 s less 52 x 20.021 s, unscaled", got)
		}
		wg.Wait()
		if got := e.Standing().Users[serve.KeyID("ann")].Execution; got < 1041.09 || got > 1041.1 {
			t.Errorf("%g s were charged, want 52 x 20.021 s", got)
		}
	})
}

func TestScenariosOfBulkLoadingFillIn(t *testing.T) {
	src := "name: t\nworkload: {kind: bulk, rows: 10, users: 1}\nprovider:\n  batch: {overhead: 0s, per_row: 3ms, max_rows: 7, knee: 2, shared_knee: 5}\n  hint: 6\n"
	s, err := scenario.Parse("t.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dataverse.Options{Overhead: -1, RowTime: 3 * time.Millisecond, MaxRows: 7, UserKnee: 2, Knee: 5, Hint: 6}, dataverse.Options{}.Like(s)); diff != "" {
		t.Error(diff)
	}
	own := dataverse.Options{Overhead: 1, RowTime: 2, MaxRows: 3, UserKnee: 4, Knee: 5, Hint: 6}
	if diff := cmp.Diff(own, own.Like(s)); diff != "" {
		t.Errorf("what is set: %s", diff)
	}
}

func TestABatchIsWrittenThoughItsClientWentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := environ(t, "", dataverse.Options{}, &log)
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.CreateMultiple", strings.NewReader(targets(`"n":1`, `"n":2`)))
		r.Header.Set("Authorization", "Bearer ann")
		var wg sync.WaitGroup
		wg.Go(func() { e.ServeHTTP(httptest.NewRecorder(), r) })
		time.Sleep(500 * time.Millisecond)
		cancel()
		wg.Wait()
		want(t, "another", e.bulk("CreateMultiple", `"n":3`), 200)
		var statuses, written []int
		for entry, err := range serve.ReadLog(&log) {
			if err != nil {
				t.Fatal(err)
			}
			statuses, written = append(statuses, entry.Status), append(written, entry.Written)
			if entry.Scope != serve.KeyID("ann")+"@server-1" {
				t.Errorf("scope %q", entry.Scope)
			}
		}
		if diff := cmp.Diff([][]int{{499, 200}, {2, 1}}, [][]int{statuses, written}); diff != "" || e.contacts().Rows != 3 {
			t.Errorf("%+v %s", e.contacts(), diff)
		}
		if u := e.Standing().Users[serve.KeyID("ann")]; u.Executing != 0 {
			t.Errorf("%d still execute", u.Executing)
		}
	})
}

func TestOutagesLookLikeOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := environ(t, "name: t\nprovider: {latency: {p50: 1ms, uplink_p50: 0s, uplink_p99: 0s}, faults: [{kind: outage, at: 0s, for: 1m}]}\n", dataverse.Options{}, nil)
		w := e.bulk("CreateMultiple", `"n":1`)
		if code, _, _ := fault(t, w); w.Code != 503 || code == "" || e.contacts().Rows != 0 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		want(t, "after it", e.bulk("CreateMultiple", `"n":1`), 200)
	})
}
