package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const key = "hw_canary-key"

// shelf holds runs and gaps in numbers that need pages.
type shelf struct {
	runs []collect.Run
	gaps []collect.Gap
}

func (s *shelf) Connections(context.Context) ([]collect.ConnectionStatus, error) {
	return []collect.ConnectionStatus{{Name: "a b/c", LastRun: &s.runs[0]}, {Name: "z"}}, nil
}

func (s *shelf) Runs(_ context.Context, _ string, limit int) ([]collect.Run, error) {
	return s.runs[:min(limit, len(s.runs))], nil
}

func (s *shelf) Gaps(_ context.Context, f collect.GapFilter) (gaps []collect.Gap, err error) {
	for _, g := range s.gaps {
		if g.ID > f.AfterID && len(gaps) < f.Limit && (f.Status == "" || f.Status == g.Status) && (f.Reason == reason.None || f.Reason == g.Reason) {
			gaps = append(gaps, g)
		}
	}
	return gaps, nil
}

func (s *shelf) Events(context.Context, string) ([]event.Event, error) {
	return []event.Event{{Seq: 1, Type: event.RunStart}}, nil
}

// daemon is a server with an API, and a client of it.
type daemon struct {
	*client.Client
	governor *governor.Governor
	hub      *events.Hub
	shelf    *shelf
	url      string
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{shelf: &shelf{}}
	for n := range 2100 {
		d.shelf.runs = append(d.shelf.runs, collect.Run{ID: fmt.Sprint("r", n), Connection: "z", Reason: reason.Drained})
		d.shelf.gaps = append(d.shelf.gaps, collect.Gap{ID: int64(n + 1), Connection: "z", Reason: reason.ServerError, Status: collect.GapPending})
	}
	d.shelf.gaps[6].Status, d.shelf.gaps[6].Reason = collect.GapTerminal, reason.NotFound
	var err error
	if d.hub, err = events.New(8); err != nil {
		t.Fatal(err)
	}
	if d.governor, err = governor.New(governor.Options{
		Config:  quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 1000}}}},
		OnEvent: d.hub.Quota("openai"),
	}); err != nil {
		t.Fatal(err)
	}
	a, err := api.New(api.Options{
		Authorize: func(r *http.Request, _ api.Role) (api.Caller, error) {
			if r.Header.Get("Authorization") != "Bearer "+key {
				return api.Caller{}, &reason.Refusal{Reason: reason.Unauthorized}
			}
			return api.Caller{ID: "ops", Role: api.Admin}, nil
		},
		Quotas:  func() map[string]api.Quota { return map[string]api.Quota{"openai": d.governor} },
		Reader:  d.shelf,
		Events:  d.hub,
		Version: "v1.2.3",
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/under/", http.StripPrefix("/under", a))
	mux.Handle("/", a)
	server := httptest.NewServer(mux)
	d.url = server.URL
	d.Client = d.client(t, client.Options{Key: key})
	t.Cleanup(func() {
		d.hub.Close()
		server.Close()
		_ = d.governor.Close()
	})
	return d
}

func (d *daemon) client(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	if o.Server == "" {
		o.Server = d.url
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryCallGivesWhatTheDaemonHas(t *testing.T) {
	d, ctx := newDaemon(t), t.Context()
	if v, err := d.Index(ctx); err != nil || v.Version != "v1.2.3" || v.Default != "openai" {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Snapshot(ctx, ""); err != nil || *v.Models["m"].DailyTokensRemaining != 1000 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Forecast(ctx, "openai", quota.Scope{Model: "m"}); err != nil || len(v) != 1 || v[0].Remaining != 1000 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Statistics(ctx, ""); err != nil || v.Models == nil {
		t.Errorf("%+v, %v", v, err)
	}
	patched, err := d.PatchConfig(ctx, "", []byte(`{"models":{"m":{"maxDailyTokens":5}}}`))
	if err != nil || patched.ConfigDigest != d.governor.Snapshot().ConfigDigest {
		t.Errorf("%+v, %v", patched, err)
	}
	if v, err := d.Config(ctx, ""); err != nil || v.Models["m"].MaxDailyTokens != 5 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Rate(ctx, ""); err != nil || len(v) != 2 || v[0].Source != api.Stored {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Samples(ctx, "a b/c", client.Day); err != nil || v.Source != "runs" || len(v.RatePerMin) != 288 || v.Known() {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Connections(ctx, "a b/c"); err != nil || len(v) != 1 || v[0].LastRun.ID != "r0" {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Run(ctx, "r7"); err != nil || v.Run.ID != "r7" || len(v.Events) != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := d.Gap(ctx, 7); err != nil || v.ID != 7 || v.Status != collect.GapTerminal {
		t.Errorf("%+v, %v", v, err)
	}
	under := d.client(t, client.Options{Server: d.url + "/under/", Key: key})
	if v, err := under.Index(ctx); err != nil || v.Version != "v1.2.3" {
		t.Errorf("under a path: %+v, %v", v, err)
	}
}

func TestListsAreReadOverAllPages(t *testing.T) {
	d, ctx := newDaemon(t), t.Context()
	for limit, want := range map[int]int{0: 2100, 1: 1, 1001: 1001, 2100: 2100, 9999: 2100} {
		runs, err := d.Runs(ctx, "", limit)
		if err != nil || !slices.Equal(runs, d.shelf.runs[:want]) {
			t.Errorf("limit %d: %d runs, %v", limit, len(runs), err)
		}
		gaps, err := d.Gaps(ctx, collect.GapFilter{Limit: limit})
		if err != nil || !slices.EqualFunc(gaps, d.shelf.gaps[:want], func(a, b collect.Gap) bool { return a.ID == b.ID && a.Reason == b.Reason }) {
			t.Errorf("limit %d: %d gaps, %v", limit, len(gaps), err)
		}
	}
	f := collect.GapFilter{Status: collect.GapTerminal, Reason: reason.NotFound, AfterID: 6}
	if gaps, err := d.Gaps(ctx, f); err != nil || len(gaps) != 1 || gaps[0].ID != 7 {
		t.Errorf("%+v, %v", gaps, err)
	}
	f.AfterID = 7
	if gaps, err := d.Gaps(ctx, f); err != nil || gaps == nil || len(gaps) != 0 {
		t.Errorf("%+v, %v", gaps, err)
	}
}

func TestProblemsAreErrorsThatOneCanMatch(t *testing.T) {
	d, ctx := newDaemon(t), t.Context()
	_, err := d.PatchConfig(ctx, "", []byte(`{"scaleMax":0.5}`))
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 400 || p.Field != "scaleMax" || p.Code != quota.CodeInvalidConfig {
		t.Errorf("%v", err)
	}
	_, err = d.Run(ctx, "../gaps")
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 404 || !strings.Contains(p.Detail, `"../gaps"`) {
		t.Errorf("a name that looks like a path: %v", err)
	}
	_, err = d.client(t, client.Options{}).Index(ctx)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != 401 {
		t.Errorf("%v", err)
	}
}

func TestAServerThatIsNoDaemonIsAnErrorAndGetsNoKeyElsewhere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked elsewhere with %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/rate":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/v1/quota/snapshot":
			_, _ = io.WriteString(w, "<html>")
		case "/v1/quota/statistics":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, strings.Repeat("[", 1<<20))
		case "/v1/runs/endless":
			for range client.MaxAnswer/1000 + 10 {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1000)); err != nil {
					return
				}
			}
		case "/v1/runs":
			w.Header().Set("Link", `</v1/runs?before=x>; rel="next"`)
			_, _ = io.WriteString(w, "[]")
		case "/v1/events":
			_, _ = io.WriteString(w, "data: {\n\n")
		}
	}))
	defer server.Close()
	c, err := client.New(client.Options{Server: server.URL, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for want, ask := range map[string]func() error{
		"307 Temporary Redirect: the answer is not that of a daemon": func() error { _, err := c.Rate(ctx, ""); return err },
		"502 Bad Gateway: the answer is not that of a daemon":        func() error { _, err := c.Statistics(ctx, ""); return err },
		"the answer is not what a daemon of this version gives":      func() error { _, err := c.Snapshot(ctx, ""); return err },
		"the answer is larger than 33554432 bytes":                   func() error { _, err := c.Run(ctx, "endless"); return err },
		"an event is not what a daemon of this version gives": func() error {
			for _, err := range c.Events(ctx, client.Filter{}) {
				return err
			}
			return nil
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if runs, err := c.Runs(ctx, "", 0); err != nil || len(runs) != 0 {
		t.Errorf("an endless list of empty pages: %v, %v", runs, err)
	}
	server.Close()
	_, err = c.Gaps(ctx, collect.GapFilter{Stream: "canary"})
	if err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "/v1/gaps") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestNewRefusesAddressesAndKeysThatCannotBeMeant(t *testing.T) {
	for want, o := range map[string]client.Options{
		"must be like http":          {Server: "127.0.0.1:8700"},
		"must be like http:":         {Server: "ftp://host"},
		"more than scheme, host":     {Server: "http://user:canary@localhost"},
		"more than scheme, host and": {Server: "http://localhost?key=canary"},
		"key has a character":        {Server: "http://localhost", Key: "canary\n"},
		"unencrypted":                {Server: "http://headway.example:80", Key: "canary"},
		"timeout is -1s, must be":    {Server: "http://localhost", Timeout: -time.Second},
	} {
		if _, err := client.New(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, o := range []client.Options{
		{Server: "https://headway.example", Key: "k"}, {Server: "http://headway.example"}, {Server: "http://[::1]:1", Key: "k"},
		{Server: "http://headway.example", Key: "k", Insecure: true}, {Server: "http://localhost:1", Key: "k"},
	} {
		if _, err := client.New(o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestAStreamIsResumedWithoutLoss(t *testing.T) {
	d := newDaemon(t)
	tell := func(n int) { d.hub.Connection(event.Event{Type: event.Phase, Connection: "z", Count: int64(n)}) }
	tell(1)
	tell(2)
	var got []int64
	last := events.Oldest
	for e, err := range d.Events(t.Context(), client.Filter{Since: last, Types: []string{"phase"}, Connections: []string{"z"}}) {
		if err != nil {
			t.Fatal(err)
		}
		got, last = append(got, e.Event.Count), e.ID
		if len(got) == 2 {
			break
		}
	}
	tell(3)
	for e, err := range d.Events(t.Context(), client.Filter{Since: last}) {
		if err != nil {
			// The daemon ends the stream below.
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			break
		}
		if got = append(got, e.Event.Count); len(got) == 3 {
			d.hub.Close()
		}
	}
	if d := cmp.Diff([]int64{1, 2, 3}, got); d != "" {
		t.Error(d)
	}
}

func TestAStreamEndsWithItsContext(t *testing.T) {
	d := newDaemon(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.hub.Connection(event.Event{Type: event.Phase})
	n := 0
	for _, err := range d.Events(ctx, client.Filter{Since: events.Oldest}) {
		if n++; n == 1 {
			cancel()
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if n != 2 {
		t.Errorf("%d turns, want an event and the end", n)
	}
}

// silent answers and says nothing more.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	if !strings.HasSuffix(r.URL.Path, "/events") {
		_, err := io.ReadAll(body)
		return nil, err
	}
	return &http.Response{StatusCode: 200, Body: body, Header: http.Header{}, Request: r}, nil
}

func TestASilentDaemonIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(client.Options{Server: "http://localhost", Transport: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, err := range c.Events(t.Context(), client.Filter{}) {
			if err == nil || !strings.Contains(err.Error(), "nothing was heard for too long") || time.Since(began) != 45*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		began = time.Now()
		if _, err := c.Index(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != client.DefaultTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
