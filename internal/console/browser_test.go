package console_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/debian"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/samples"
)

// browse opens a page of a browser and collects what it complains of.
func browse(t *testing.T, path string) (ctx context.Context, complaints func() string) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900), chromedp.UserDataDir(t.TempDir()))
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
	if said := complaints(); strings.Contains(said, "Security Policy") || strings.Contains(said, "TypeError") {
		t.Errorf("the browser complains: %s", said)
	}
	if !longtest.Long() {
		return
	}
	again.mu.Lock()
	again.many(500)
	again.mu.Unlock()
	for i := range 30 {
		s := collected(fmt.Sprintf("connection-%03d", i))
		again.runs = append(again.runs, *s.LastRun)
		again.owed = append(again.owed, collect.Gap{ID: int64(i + 1), Connection: s.Name, GapKey: collect.GapKey{Stream: "items", Key: "k"}, Status: collect.GapPending, Reason: s.LastRun.Reason, FirstSeen: time.Now().Add(-time.Hour)})
	}
	for page, name := range map[string]string{"": "500", "connection?name=connection-003": "stored", "runs": "runs", "gaps": "gaps", "quotas": "quotas", "profiles": "profiles", "login": "login"} {
		for _, width := range []int64{1280, 375} {
			do(name, chromedp.Navigate(back.URL+console.Path+page), chromedp.WaitReady("footer"),
				picture(fmt.Sprintf("%s-%d", name, width), width))
			wide := int64(0)
			do(name, emulation.SetDeviceMetricsOverride(width, 900, 1, false), chromedp.Evaluate("document.documentElement.scrollWidth", &wide))
			if wide > width {
				t.Errorf("%s is %d wide on a screen of %d", name, wide, width)
			}
		}
		do(name, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}), picture(name+"-dark", 1280),
			emulation.SetEmulatedMedia())
	}
}
