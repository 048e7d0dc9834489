package console_test

import (
	"context"
	_ "embed"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/debian"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/quota"
)

// profile returns a folder for a browser. Processes of a browser that was ended may write into it
// for a moment more, so it is removed until it is gone.
func profile(t *testing.T) string {
	folder, err := os.MkdirTemp("", "headway-browser-") //nolint:usetesting // the removal of t.TempDir fails while somebody writes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(patient); ; time.Sleep(20 * time.Millisecond) {
			if err := os.RemoveAll(folder); err == nil {
				return
			} else if time.Now().After(deadline) {
				t.Error(err)
				return
			}
		}
	})
	return folder
}

// browse opens a page of a browser and collects what it complains of.
func browse(t *testing.T, path string) (ctx context.Context, complaints func() string) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900), chromedp.UserDataDir(profile(t)))
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(func() { leave() })
	said := make(chan string, 1000)
	chromedp.ListenTarget(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventConsoleAPICalled:
			said <- fmt.Sprintf("%s %s", e.Type, e.Args[0].Value)
		case *runtime.EventExceptionThrown:
			said <- e.ExceptionDetails.Error()
		}
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	return ctx, func() string {
		var all []string
		for {
			select {
			case one := <-said:
				all = append(all, one)
			default:
				return strings.Join(all, "\n")
			}
		}
	}
}

// patient bounds a browser that hangs: it is no measure of how fast the machine is.
const patient = 10 * time.Minute

// shots is where pictures of pages are kept to be looked at; empty keeps none.
var shots = os.Getenv("HEADWAY_CONSOLE_PICTURES")

// picture keeps what the browser shows.
func picture(name string, width int64) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		if shots == "" {
			return nil
		}
		if err := emulation.SetDeviceMetricsOverride(width, 900, 1, width < 500).Do(ctx); err != nil {
			return err
		}
		var png []byte
		if err := chromedp.FullScreenshot(&png, 100).Do(ctx); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(shots, name+".png"), png, 0o600)
	})
}

// dark sets what the reader prefers.
func dark(on bool) chromedp.Action {
	set := emulation.SetEmulatedMedia()
	if on {
		set = set.WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}})
	}
	return set
}

//go:embed testdata/axe.min.js
var axe string

// accessible reports what of the page axe-core holds against WCAG 2.1 AA.
func accessible(t *testing.T, name string) chromedp.Action {
	return held(t, name, `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]`, 5)
}

// contrasts reports texts that axe-core takes to be hard to read, which is what other colours
// can change.
func contrasts(t *testing.T, name string) chromedp.Action {
	return held(t, name, `{type: "rule", values: ["color-contrast"]}`, 1)
}

// held reports violations of rules of axe-core, at least some of which apply to each page.
func held(t *testing.T, name, rules string, some int) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var found struct {
			Wrong  []string
			Passes int
		}
		err := chromedp.Evaluate(axe+`;axe.run(document, {runOnly: `+rules+`}).then(r => ({passes: r.passes.length,
			wrong: r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary))}))`, &found,
			func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }).Do(ctx)
		for _, w := range found.Wrong {
			t.Errorf("%s: %s", name, w)
		}
		if err == nil && found.Passes < some {
			t.Errorf("%s: only %d rules of axe-core were kept: it looked at something else", name, found.Passes)
		}
		return err
	})
}

// fits reports a page that has to be scrolled sideways. A screen of 640 is one of 1280 at
// 200 %.
func fits(t *testing.T, name string, width int64) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		wide := int64(0)
		err := chromedp.Run(ctx, emulation.SetDeviceMetricsOverride(width, 900, 1, false), chromedp.Evaluate("document.documentElement.scrollWidth", &wide))
		if wide > width {
			t.Errorf("%s is %d wide on a screen of %d", name, wide, width)
		}
		return err
	})
}

// pages are all pages with something on them, as populate leaves it, by names for pictures.
var pages = map[string]string{
	"overview": "", "connection": "connection?name=openai", "stored": "connection?name=connection-003", "runs": "runs", "run": "run?id=run-connection-003",
	"gaps": "gaps", "quotas": "quotas", "change": "quotas?change=openai", "profiles": "profiles", "calls": "calls", "audit": "audit", "fleet": "fleet", "simulator": "simulator", "profile": "profile?name=github", "login": "login", "nowhere": "nowhere",
}

// populate fills a world with one of everything that pages show.
func (w *world) populate(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called("openai")
	w.fleet = []fleet.Credential{{IntervalMS: 50, Members: []fleet.Member{{Name: "host-a", Share: 0.75, Waiting: 3}, {Name: "host-b", Share: 0.25, HeardMS: 40_000, Away: true}}}}
	w.text = "aimd"
	w.live = slices.Clone(w.live)
	for i := range w.live {
		w.live[i].Fleet = &headway.FleetStatus{Members: 2}
	}
	for i := range n {
		s := collected(fmt.Sprintf("connection-%03d", i))
		w.status = append(w.status, s)
		w.runs = append(w.runs, *s.LastRun)
		w.owed = append(w.owed, collect.Gap{ID: int64(i + 1), Connection: s.Name, GapKey: collect.GapKey{Stream: "items", Key: "k"}, Status: collect.GapPending, Reason: s.LastRun.Reason, FirstSeen: time.Now().Add(-time.Hour)})
	}
}

// TestABrowserFollowsTheDaemon opens pages in a real Chromium: what changes shows without
// a reload, a daemon that is gone is said to be, and comes back.
func TestABrowserFollowsTheDaemon(t *testing.T) {
	path := debian.Require(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	w := newWorld(t)
	w.live = []api.Live{paced("openai"), paced("<img src=x onerror=alert(1)>\u202eevil")}
	site := httptest.NewServer(w)
	address := site.Listener.Addr().String()
	ctx, complaints := browse(t, path)
	ctx, end := context.WithTimeout(ctx, patient)
	defer end()
	do := func(what string, actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, complaints())
		}
	}
	has := func(text string) chromedp.Action {
		return chromedp.Poll(fmt.Sprintf("document.body.innerText.includes(%q)", text), nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0))
	}
	do("overview", chromedp.Navigate(site.URL+console.Path), has("openai"), has("20/s"), has("kept up to date"), picture("one", 1280))
	w.mu.Lock()
	slower := paced("openai")
	slower.Rate = event.NewRate(time.Second, 10*time.Millisecond)
	slower.Rate.LastBackoff = &event.Backoff{Reason: w.live[0].Rate.LastBackoff.Reason, AtIntervalMS: 25, At: time.Now()}
	slower.RetryAt = time.Now().Add(time.Hour)
	w.live = []api.Live{slower, w.live[1]}
	w.mu.Unlock()
	do("throttled", has("cooling down"), has("1/s"), picture("throttled", 1280))
	site.CloseClientConnections()
	w.Close()
	site.Close()
	do("gone", chromedp.WaitVisible("#gone"), picture("gone", 1280))
	again := newWorld(t)
	again.live = []api.Live{paced("openai")}
	again.looked("openai", 1)
	again.budget(t, "openai", quota.Config{Global: quota.Limits{CallsPerMinute: 60, MaxDailyTokens: 100_000}, Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 500}}}})
	again.trace = []event.Event{{Type: event.RunStart, At: time.Now()}, {Type: event.CollectionRate, At: time.Now(), Rate: again.live[0].Rate, Note: "speed_up"}}
	back := httptest.NewUnstartedServer(again)
	if err := back.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	back.Listener = listen(t, address)
	back.Start()
	defer back.Close()
	defer again.Close()
	defer back.CloseClientConnections()
	do("back", chromedp.WaitNotVisible("#gone"), has("20/s"),
		chromedp.Navigate(back.URL+console.Path+"connection?name=openai"), chromedp.WaitVisible("#plot canvas"), chromedp.WaitNotVisible("#drawing svg"), picture("connection", 1280))
	again.seen.Add(time.Now(), []samples.Look{{Connection: "openai", Refused: 1_000_000}})
	do("drawn again", has("999,99"), picture("moved", 1280))
	again.populate(10)
	look := func(name string) {
		t.Helper()
		do(name, chromedp.WaitReady("footer"), accessible(t, name), picture(name, 1280))
		do(name, dark(true), contrasts(t, name+" when it is dark"), picture(name+"-dark", 1280), dark(false))
		do(name, fits(t, name, 640), fits(t, name, 375), picture(name+"-narrow", 375), emulation.ClearDeviceMetricsOverride())
	}
	for name, page := range pages {
		do(name, chromedp.Navigate(back.URL+console.Path+page))
		look(name)
	}
	leads := func(text string) chromedp.Action { // while the browser goes to another page, it answers with errors
		return chromedp.ActionFunc(func(ctx context.Context) error {
			for {
				if err := has(text).Do(ctx); err == nil {
					return nil
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	press := func(button string) chromedp.Action { return chromedp.SendKeys(button, "\r", chromedp.ByQuery) }
	empty := chromedp.Evaluate(`document.getElementById("callsPerMinute").value = ""`, nil)
	for _, form := range []struct { // filled in with the keyboard, each after the one before
		name, page string
		keys       []chromedp.Action
		shows      string
	}{
		{"none ticked", "gaps", []chromedp.Action{press("button[value=retry]")}, "No gap was chosen"},
		{"retry", "gaps", []chromedp.Action{chromedp.SendKeys("#w-all", " "), press("button[value=retry]")}, "This would retry all 30 owed gaps"},
		{"retried", "", []chromedp.Action{press("button.primary")}, "3 changed"},
		{"quarantine", "connection?name=connection-003", []chromedp.Action{press("button[value=quarantine]")}, "This would quarantine all 3 owed gaps of connection-003"},
		{"release", "gaps?reason=rate_limited", []chromedp.Action{chromedp.SendKeys("#w-all", " "), press("button[value=release]")}, "This would release all quarantined gaps for rate limited"},
		{"wrong limit", "quotas?change=openai", []chromedp.Action{empty, chromedp.SendKeys("#callsPerMinute", "-1\r")}, "It must be a whole number above 0"},
		{"review", "", []chromedp.Action{empty, chromedp.SendKeys("#callsPerMinute", "30\r")}, "This would change: openai"},
		{"changed", "", []chromedp.Action{press("button.primary")}, "It is in force"},
		{"no law", "simulator", []chromedp.Action{chromedp.Evaluate(`document.querySelectorAll("[name=law]").forEach(e => { e.checked = false })`, nil), press("button.primary")}, "No law is chosen."},
		{"simulated", "simulator", []chromedp.Action{press("button.primary")}, "Law cycle"},
	} {
		if form.page != "" {
			do(form.name, chromedp.Navigate(back.URL+console.Path+form.page), chromedp.WaitReady("footer"))
		}
		do(form.name, form.keys...)
		do(form.name, leads(form.shows))
		look(form.name)
	}
	do("before the key is revoked", chromedp.Navigate(back.URL+console.Path), has("kept up to date"))
	again.mu.Lock()
	again.key = "canary-secret"
	again.mu.Unlock()
	do("the session has ended", chromedp.WaitVisible("#ended"), chromedp.WaitNotVisible("#away"), accessible(t, "ended"), picture("ended", 1280))
	again.mu.Lock()
	again.key = ""
	again.mu.Unlock()
	do("and is let in again", chromedp.WaitNotVisible("#gone"))
	linked := worldWith(t, true)
	own := httptest.NewServer(linked)
	defer own.Close()
	defer linked.Close()
	defer own.CloseClientConnections()
	linked.Announce()
	do("without a link", chromedp.Navigate(own.URL+console.Path), has("Open the link"), accessible(t, "links"), fits(t, "links", 375), emulation.ClearDeviceMetricsOverride())
	do("by a link", chromedp.Navigate(own.URL+linked.announced[0]), has("Nothing is connected yet"), has("Log out"), picture("linked", 1280))
	if said := complaints(); strings.Contains(said, "Security Policy") || strings.Contains(said, "TypeError") {
		t.Errorf("the browser complains: %s", said)
	}
	if !longtest.Long() {
		return
	}
	again.mu.Lock()
	again.many(500)
	again.mu.Unlock()
	for name, page := range pages {
		do(name, chromedp.Navigate(back.URL+console.Path+page), chromedp.WaitReady("footer"))
		for _, width := range []int64{1280, 375} {
			do(name, fits(t, name, width), picture(fmt.Sprintf("%s-of-500-%d", name, width), width))
		}
	}
}

// called adds a call that is over, of whom the name says.
func (w *world) called(name string) {
	one := calls.Of(&egress.CallLog{Began: time.Now(), Provider: name, Model: name, KeyID: name, Tenant: name, Agent: name, Status: 200, Ending: egress.Complete, Attempts: 1, Used: quota.Usage{Input: 9, Output: 4}})
	w.calls.Add(one)
	w.usage.Add(&one)
}

// looked adds samples of the last hours: a rate that falls when it is refused, and comes
// back, with a time in between when nobody looked.
func (w *world) looked(name string, hours int) {
	now, refused := time.Now(), int64(0)
	for i := range hours * 360 {
		at := now.Add(-time.Duration(hours)*time.Hour + time.Duration(i+1)*10*time.Second)
		if ago := now.Sub(at); ago > 40*time.Minute && ago < 45*time.Minute {
			continue
		}
		l := samples.Look{Connection: name, Known: true, Rate: 600 + float64(i%90)*20, Ceiling: 3000, Waiting: i % 7}
		if i%90 == 0 {
			refused += 3
		}
		l.Refused = refused
		w.seen.Add(at, []samples.Look{l})
	}
}

// TestAChartIsReadWithoutJavaScript: drawn and as a table; what nobody looked at is
// neither a line nor a 0.
func TestAChartIsReadWithoutJavaScript(t *testing.T) {
	w := newWorld(t)
	w.live = []api.Live{paced("a"), paced("b")}
	w.looked("a", 3)
	page := w.get(console.Path + "connection?name=a").Body.String()
	if n := strings.Count(page, `<polyline class="rate"`); n != 2 {
		t.Errorf("%d lines, want one before and one after the time when nobody looked: %s", n, page)
	}
	for _, want := range []string{`<polyline class="ceiling"`, `<rect class="refused"`, "from 10/s to 39.7/s", "Ceiling: 50/s", "Most who waited at once: 6.", "data-series=\"{&#34;connection&#34;:&#34;&#34;,&#34;span&#34;:&#34;hour&#34;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s: %s", want, page)
		}
	}
	_, table, _ := strings.Cut(page, `<table id="steps"`)
	table, _, _ = strings.Cut(table, "</table>")
	if n := strings.Count(table, "<tr><th scope=\"row\">"); n != 12 {
		t.Errorf("%d lines of a table: %s", n, table)
	}
	if day := w.get(console.Path + "connection?name=a&span=day").Body.String(); !strings.Contains(day, `<td data-label="Rate">unknown</td><td data-label="Ceiling">unknown</td><td data-label="Refused" class="n">unknown</td>`) {
		t.Errorf("what was before is not unknown: %s", day)
	}
	if other := w.get(console.Path + "connection?name=b").Body.String(); !strings.Contains(other, "Unknown: nobody looked at it in this time.") || strings.Contains(other, "<polyline") {
		t.Errorf("nobody looked: %s", other)
	}
}
