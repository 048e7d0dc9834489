//go:build unix

package provider_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

// noLimit answers everything after a few milliseconds.
const noLimit = "provider:\n  latency: {p50: 3ms}\n"

func TestSecondCollectYields(t *testing.T) {
	data := serve.Options{Seed: 3, Conversations: 60, Messages: 4}
	want := harness.TruthOf(t, data, pageSize)
	u := provide(t, noLimit, data)
	w := newWorkplace(t, u.url, connection{ceiling: "40ms", initial: "40ms"})
	first := w.Start(t, "--json")
	first.Await(t, &first.Stdout, `"phase":"catchup"`) // it has the connection now

	// The second one has a credential that the provider would refuse and count.
	second := harness.Workplace{Dir: w.Dir, Env: []string{"CHAT_URL=" + u.url, "CHAT_TOKEN=not-" + harness.Token}}
	holder := fmt.Sprintf("process %d on ", first.ID())
	for _, args := range [][]string{nil, {"--json"}, {"--fresh"}} {
		o := second.Collect(t, args...)
		if o.Code != harness.ExitDeferred || !strings.Contains(o.Stdout, holder) {
			t.Errorf("collect %v: want exit code %d at once and %q: %s", args, harness.ExitDeferred, holder, o)
		}
		if len(args) == 1 && args[0] == "--json" {
			if l := harness.Lines(t, o); len(l) != 1 || l[0].Held == nil || l[0].Held.Connection != "chat-archive" || l[0].Held.Run == "" {
				t.Errorf("want one line that says who holds the connection: %s", o)
			}
		}
	}
	if s := w.Status(t); s == nil || !strings.HasPrefix(s.Holder, holder) {
		t.Errorf("status names %+v, want %q as the holder", s, holder)
	}
	select {
	case <-first.Ended():
		t.Errorf("the first one ended too early to be in the way: %s", first.Wait(t))
	default:
	}
	o := first.Wait(t)
	if o.Code != harness.ExitDrained {
		t.Errorf("the first one was disturbed: %s", o)
	}
	w.Complete(t, want)
	s := harness.Summary(t, o)
	agree(t, u.admissions(t), want, fare{attempts: s.Attempts, refused: s.Throttled})
	if n := u.stats(t).Unauthorized; n != 0 {
		t.Errorf("the ones that yielded sent %d requests", n)
	}
	var runs []collect.Run
	if w.Read(t, &runs, "runs"); len(runs) != 1 {
		t.Errorf("%d runs are on record, want the first one's only: %+v", len(runs), runs)
	}
}

func TestInterruptKeepsWhatCame(t *testing.T) {
	data := serve.Options{Seed: 4, Conversations: 60, Messages: 4}
	want := harness.TruthOf(t, data, pageSize)
	u := provide(t, noLimit, data)
	w := newWorkplace(t, u.url, connection{ceiling: "40ms", initial: "40ms", step: "40ms", concurrency: 2})
	p := w.Start(t)
	harness.Eventually(t, "a slice is under way", func() bool { return len(servedIn(u.admissions(t)).details) >= 4 })
	p.Signal(t, os.Interrupt)
	o := p.Wait(t)
	if o.Code != harness.ExitDeferred || !strings.Contains(o.Stdout, "deferred") || !strings.Contains(o.Stdout, "(interrupted)") {
		t.Errorf("want exit code %d and a summary that says interrupted: %s", harness.ExitDeferred, o)
	}
	if !strings.Contains(o.Stderr, "finishing the requests under way") {
		t.Errorf("nothing says that the requests are being finished: %s", o)
	}

	fetched := int64(len(servedIn(u.admissions(t)).details))
	s := w.Status(t)
	if s == nil || len(s.Lanes) == 0 || s.Lanes[0].Pages != 1 || s.Lanes[0].Cursor != want.Cursors[1] ||
		s.LastRun.Details != fetched || s.Owed["interrupted"] != int64(pageSize)-fetched {
		t.Fatalf("want the first page committed, and what was not fetched of it owed: %d fetched, %+v", fetched, s)
	}
	if s.Holder != "" || s.LastRun.State != collect.RunDeferred || s.LastRun.Reason.String() != "interrupted" {
		t.Errorf("holder %q, last run %+v", s.Holder, s.LastRun)
	}
	page := want.Order[:pageSize]
	details := servedIn(u.admissions(t)).details
	conversations, messages := map[string]string{}, map[string]string{}
	for _, id := range page {
		conversations[id] = want.Conversations[id]
		if len(details[id]) == 0 {
			continue
		}
		for _, message := range want.Of[id] {
			messages[message] = want.Messages[message]
		}
	}
	_, got := w.Records(t, "conversations")
	harness.Same(t, "conversations of the first page", got, conversations)
	_, got = w.Records(t, "messages")
	harness.Same(t, "messages of the first page", got, messages)
	if o := w.Collect(t, "--ceiling", "2ms"); o.Code != harness.ExitDrained {
		t.Fatalf("the next run: %s", o)
	}
	w.Complete(t, want)
	for id, statuses := range servedIn(u.admissions(t)).details {
		if len(statuses) != 1 {
			t.Errorf("%s was fetched %d times, though what had come was committed", id, len(statuses))
		}
	}
}

func TestSecondInterruptStopsAtOnce(t *testing.T) {
	data := serve.Options{Seed: 5, Conversations: 60, Messages: 4}
	want := harness.TruthOf(t, data, pageSize)
	u := provide(t, noLimit, data)
	// Details never come, so that the first interrupt has requests to wait for.
	var stuck atomic.Bool
	stuck.Store(true)
	asked := make(chan struct{}, 60)
	to, err := url.Parse(u.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	front := harness.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stuck.Load() && strings.HasPrefix(r.URL.Path, "/conversations/") {
			asked <- struct{}{}
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	w := newWorkplace(t, front.URL, connection{ceiling: "2ms", initial: "2ms", step: "2ms", concurrency: 2})
	p := w.Start(t)
	<-asked
	p.Signal(t, os.Interrupt)
	p.Await(t, &p.Stderr, "finishing the requests under way")
	p.Signal(t, os.Interrupt)
	o := p.Wait(t)
	if o.Code != harness.ExitDeferred || !strings.Contains(o.Stdout, "(interrupted)") {
		t.Errorf("want exit code %d and a summary that says interrupted: %s", harness.ExitDeferred, o)
	}
	if s := w.Status(t); s == nil || len(s.Lanes) > 0 && s.Lanes[0].Pages != 0 || s.Holder != "" || len(s.Owed) != 0 {
		t.Errorf("want nothing committed and nobody holding the connection: %+v", s)
	}
	stuck.Store(false)
	if o := w.Collect(t, "--ceiling", "2ms"); o.Code != harness.ExitDrained {
		t.Fatalf("the next run: %s", o)
	}
	w.Complete(t, want)
}

// upstream is a provider in a process of its own.
type upstream struct {
	*harness.Process
	url, log string
}

// provide starts a provider whose scenario has that provider section, and waits
// until it serves. It is stopped when the test ends.
func provide(t *testing.T, section string, data serve.Options) *upstream {
	t.Helper()
	dir := t.TempDir()
	scenario, ready := filepath.Join(dir, "scenario.yaml"), filepath.Join(dir, "ready")
	u := &upstream{log: filepath.Join(dir, "admissions.jsonl")}
	harness.Write(t, scenario, "name: e2e\n"+section)
	u.Process = harness.Launch(t, dir, nil, "provider", "serve", scenario,
		"--listen", "127.0.0.1:0", "--ready-file", ready, "--log", u.log, "--token", harness.Token,
		"--seed", fmt.Sprint(data.Seed), "--conversations", fmt.Sprint(data.Conversations), "--messages", fmt.Sprint(data.Messages))
	u.Await(t, &u.Stderr, "serving e2e at ")
	url, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	u.url = strings.TrimSpace(string(url))
	t.Cleanup(func() {
		u.Signal(t, syscall.SIGTERM)
		if o := u.Wait(t); o.Code != 0 {
			t.Errorf("the provider did not stop in order: %s", o)
		}
	})
	return u
}

// admissions is what the provider has logged so far. A line that is being
// written is left for the next time.
func (u *upstream) admissions(t *testing.T) []serve.Entry {
	t.Helper()
	f, err := os.Open(u.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var entries []serve.Entry
	for e, err := range serve.ReadLog(f) {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// stats is what the provider counts.
func (u *upstream) stats(t *testing.T) serve.Stats {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.url+"/-/stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var s serve.Stats
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// served are the answers of a log: pages by cursor, details by conversation,
// each with the statuses of its admitted requests in order.
type served struct {
	pages, details map[string][]int
	refused        int
}

func servedIn(log []serve.Entry) served {
	s := served{pages: map[string][]int{}, details: map[string][]int{}}
	for _, e := range log {
		id, detail := strings.CutPrefix(e.Path, "/conversations/")
		switch {
		case !e.Admitted:
			s.refused++
		case detail:
			s.details[id] = append(s.details[id], e.Status)
		case e.UpdatedAfter == "":
			s.pages[e.Cursor] = append(s.pages[e.Cursor], e.Status)
		}
	}
	return s
}

// delivered reports whether a request was answered with what it asked for.
func delivered(statuses []int) bool {
	return len(statuses) > 0 && statuses[len(statuses)-1] == http.StatusOK
}

// lost reports whether an admitted request did not reach its client in full.
func lost(status int) bool { return status == 0 || status == 499 || status >= 500 }

// commands are those that read the state.
var commands = [][]string{{"status"}, {"runs"}, {"gaps", "list"}, {"gaps", "list", "--status", "all"}, {"rate"}}

// printed is what a command prints as JSON: lists of objects.
func printed(t *testing.T, w harness.Workplace, args []string) []map[string]json.RawMessage {
	t.Helper()
	var list []map[string]json.RawMessage
	w.Read(t, &list, args...)
	if list == nil {
		t.Errorf("headway %s prints null, want a list", strings.Join(args, " "))
	}
	return list
}

// only is the one object of a list.
func only(t *testing.T, list []map[string]json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d entries, want one: %v", len(list), list)
	}
	return list[0]
}

func TestJSONOutput(t *testing.T) {
	data := serve.Options{Seed: 6, Conversations: 40, Messages: 4}
	want := harness.TruthOf(t, data, pageSize)
	u := provide(t, noLimit, data)
	// Longer than five seconds, after which there is a first line of progress.
	w := newWorkplace(t, u.url, connection{ceiling: "140ms", initial: "140ms"})

	o := w.Collect(t, "--json", "--max-requests", "6")
	if s := harness.Summary(t, o); o.Code != harness.ExitDeferred || s.Reason.String() != "max_requests" || s.Owed["max_requests"] != pageSize-5 {
		t.Errorf("want one page of which all but five details are owed: %s", o)
	}
	if list := printed(t, w, []string{"gaps", "list"}); len(list) != pageSize-5 || string(list[0]["reason"]) != `"max_requests"` {
		t.Errorf("%d gaps are listed, want %d for max_requests: %v", len(list), pageSize-5, list)
	}

	o = w.Collect(t, "--json")
	if o.Code != harness.ExitDrained || o.Stderr != "" {
		t.Errorf("want exit code 0 and nothing beside the JSON: %s", o)
	}
	kinds := map[string]int{}
	for _, l := range harness.Lines(t, o) {
		kinds[l.Type]++
	}
	if kinds["event"] == 0 || kinds["progress"] == 0 || kinds["summary"] != 1 {
		t.Errorf("lines by type: %v, want events, progress and one summary", kinds)
	}
	s := harness.Summary(t, o)
	if int(s.Details) != len(want.Order)-5 || s.GapsRecovered != pageSize-5 || len(s.Owed) != 0 || s.Rate == nil {
		t.Errorf("the summary counts %d details and %d gaps recovered, owes %v and has the rate %v; want %d, %d, nothing and one",
			s.Details, s.GapsRecovered, s.Owed, s.Rate, len(want.Order)-5, pageSize-5)
	}
	w.Complete(t, want)
	for i, entries := range []int{1, 2, 0, pageSize - 5, 1} {
		if list := printed(t, w, commands[i]); len(list) != entries {
			t.Errorf("headway %s prints %d entries, want %d", strings.Join(commands[i], " "), len(list), entries)
		}
	}
	for field, value := range only(t, printed(t, w, []string{"limits"})) {
		if slices.Contains([]string{"pacing", "rate", "limits"}, field) && string(value) == "null" {
			t.Errorf("after a run the %s is still unknown", field)
		}
	}
	var run struct{ Events []json.RawMessage }
	if w.Read(t, &run, "runs", "show", s.ID); len(run.Events) != kinds["event"] {
		t.Errorf("the trace has %d events, the output had %d", len(run.Events), kinds["event"])
	}
}

func TestUnknownIsNull(t *testing.T) {
	w := newWorkplace(t, nobody(t), connection{provider: "  retry: {attempts: 1}\n"})
	for _, args := range commands {
		o := w.Headway(t, append(args, "--json")...).Wait(t)
		if o.Code != harness.ExitUsage || o.Stdout != "" || !strings.Contains(o.Stderr, "no state") {
			t.Errorf("headway %s without any state: want exit code %d and why: %s", strings.Join(args, " "), harness.ExitUsage, o)
		}
	}
	// A run that nobody answered leaves state, but nothing is known of the rate.
	o := w.Collect(t, "--json")
	if o.Code != harness.ExitDeferred {
		t.Fatalf("want exit code %d: %s", harness.ExitDeferred, o)
	}
	if s := harness.Summary(t, o); s.Rate != nil {
		t.Errorf("the summary knows the rate %+v", s.Rate)
	}
	if !strings.Contains(o.Stdout, `"rate":null`) {
		t.Errorf("the summary does not say that the rate is unknown: %s", o)
	}
	rate := only(t, printed(t, w, []string{"rate"}))
	if string(rate["pacing"]) != "null" || string(rate["rate"]) != "null" || string(rate["limits"]) != "null" {
		t.Errorf("limits --json says %s, %s and %s, want null", rate["pacing"], rate["rate"], rate["limits"])
	}
	status := only(t, printed(t, w, []string{"status"}))
	if string(status["pacing"]) != "null" {
		t.Errorf("status --json says that pacing is %s, want null", status["pacing"])
	}
	for _, args := range commands {
		printed(t, w, args)
	}
}

func TestWarmStart(t *testing.T) {
	data := serve.Options{Seed: 8, Conversations: 30, Messages: 4}
	u := provide(t, noLimit, data)
	w := newWorkplace(t, u.url, connection{ceiling: "5ms", initial: "60ms", step: "5ms"})
	o := w.Collect(t, "--json")
	first := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || first.WarmStart || first.Rate == nil {
		t.Fatalf("want a first run that begins cold, drains and knows a rate: %s", o)
	}
	if first.Rate.CurrentIntervalMS != 5 {
		t.Errorf("the first run found an interval of %v ms, want the ceiling of 5", first.Rate.CurrentIntervalMS)
	}
	o = w.Collect(t, "--json")
	second := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || !second.WarmStart || !strings.Contains(o.Stdout, `"note":"restored"`) {
		t.Errorf("want a second run that begins warm: %s", o)
	}
	if second.Attempts != 1 || second.Rate == nil || second.Rate.CurrentIntervalMS != first.Rate.CurrentIntervalMS {
		t.Errorf("the second run sent %d requests and ended at %+v, want one request at the first one's interval", second.Attempts, second.Rate)
	}
	// Another connection of the same provider knows nothing of it.
	other := newWorkplace(t, u.url, connection{ceiling: "5ms", initial: "20ms"})
	if s := harness.Summary(t, other.Collect(t, "--json")); s.WarmStart {
		t.Error("a connection that was never collected began warm")
	}
}

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{}))
}
