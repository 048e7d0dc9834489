package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

func TestRatesSurviveTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rates.json")
	log := slog.New(slog.DiscardHandler)
	if got, err := readRates(path, log); len(got.Rates) > 0 || err != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
	at := time.Unix(1_800_000_000, 7).UTC()
	want := ratesContent{
		Version: ratesVersion, Rates: map[string]rate{"a": {Law: "aimd", Version: 1, IntervalNS: 5, RecordedAt: at, State: []byte{0, 255}}},
		Unasked:   map[string]map[string]time.Time{"a": {"mistral": at}},
		Estimates: map[string]map[string]egress.Estimates{"a": {"gpt": {Input: 1.25, Output: 700, Inputs: 3, Outputs: 15}}},
	}
	if err := writeRates(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readRates(path, log)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := os.Stat(path + ".new"); !os.IsNotExist(err) {
		t.Errorf("what it wrote beside it is left: %v", err)
	}
}

func TestTheLawTriesTheWindowsOfTheBudget(t *testing.T) {
	const start = "providers: {a: {api: openai, pass_through: true, pacing: {}"
	for _, tt := range []struct {
		budget string
		want   []time.Duration
	}{
		{"", nil},
		{", quota: {global: {calls_per_minute: 60}}", []time.Duration{time.Minute}},
		{", quota: {models: {m: {output_tokens_per_minute: 900}}}", []time.Duration{time.Minute}},
		{", quota: {models: {m: {calls_per_minute: 60, max_daily_tokens: 9}}}", []time.Duration{time.Minute, 24 * time.Hour}},
		{", quota: {global: {max_daily_calls: 9}, tenants: {t: {calls_per_minute: 5}}}", []time.Duration{24 * time.Hour}},
	} {
		c, err := config.Read("h.yaml", []byte(start+tt.budget+"}}"), func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		p := c.Providers[0]
		if got := windowsOf(p); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %v, want %v", tt.budget, got, tt.want)
		}
		without := p
		without.Quota = nil
		if same := settingsOf(p) == settingsOf(without); same != (tt.want == nil) {
			t.Errorf("%q: the pacing is kept without the budget: %v", tt.budget, same)
		}
	}
}

// TestAPlanThatIsGivenUpLeavesNoGovernor: a remaining governor would keep a share of its
// fleet.
func TestAPlanThatIsGivenUpLeavesNoGovernor(t *testing.T) {
	read := func(ceiling string) config.Provider {
		c, err := config.Read("h.yaml", []byte("providers: {a: {api: openai, pass_through: true, pacing: {ceiling: "+ceiling+"}}}"), func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		return c.Providers[0]
	}
	st := &providerState{name: "a"}
	made := func(p config.Provider) governors {
		all, err := st.newGovernors(p, nil, nil)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d governors, %v", len(all), err)
		}
		return all
	}
	one := read("20ms")
	st.pacing, st.settings = made(one), settingsOf(one)
	kept, replaced := made(one), made(read("30ms"))
	for _, all := range []governors{kept, replaced} {
		if err := (&plan{states: []*providerState{st}, pacing: []governors{all}}).abandon(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kept[""].TryAcquire(); err != nil {
		t.Errorf("the governor in use: %v", err)
	}
	_, err := replaced[""].TryAcquire()
	if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.Closed {
		t.Errorf("one that was made for the plan: %v, want %v", err, reason.Closed)
	}
	kept[""].Close()
}

// TestSamplesOutliveTheDaemon: samples survive a restart; a damaged file is renamed and does
// not prevent the start.
func TestSamplesOutliveTheDaemon(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		serve := func(during func(*Daemon)) {
			c, err := config.Read("h.yaml", []byte("state: "+dir+"\nproviders: {a: {api: openai, pass_through: true, pacing: {start: conservative}}}"), func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			d, err := New(c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			d.listenFunc = func(context.Context) (net.Listener, error) { return newPipes(), nil }
			d.socketFunc = func(context.Context, string) (net.Listener, error) { return newPipes(), nil }
			if err := d.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			during(d)
			if err := d.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(d *Daemon) (known int) {
			s, _ := d.samples.Load().Series("a", samples.Hour, time.Now())
			for _, n := range s.Refused {
				if n == n {
					known++
				}
			}
			return known
		}
		serve(func(*Daemon) { time.Sleep(time.Minute) })
		serve(func(d *Daemon) {
			if got := refused(d); got < 6 || got > 7 {
				t.Errorf("%d steps of a minute are known after a stop", got)
			}
			time.Sleep(storeEvery)
			if data, err := os.ReadFile(d.samplesPath()); err != nil || len(data) == 0 {
				t.Errorf("nothing was stored meanwhile: %v", err)
			}
		})
		path := filepath.Join(dir, samples.FileName)
		if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		serve(func(d *Daemon) {
			if got := refused(d); got != 0 {
				t.Errorf("%d steps are known of a damaged file", got)
			}
		})
		if _, err := os.Stat(path + ".unread"); err != nil {
			t.Errorf("it is not put aside: %v", err)
		}
	})
}

// TestEstimatesAreStoredSoonButNotOneByOne: the estimates of many models may change at
// once, and each write of the file is synced to disk.
func TestEstimatesAreStoredSoonButNotOneByOne(t *testing.T) {
	description, ok := provider.Builtin(provider.OpenAI)
	if !ok {
		t.Fatal("there is no OpenAI")
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		proxy, err := egress.New(egress.Options{Providers: []egress.Provider{{Name: "a", Description: description}}})
		if err != nil {
			t.Fatal(err)
		}
		d := &Daemon{proxy: proxy, config: config.Config{State: dir}, log: slog.New(slog.DiscardHandler), saveRequests: make(chan struct{}, 1)}
		stored := func() int {
			synctest.Wait()
			c, err := readRates(d.ratesPath(), d.log)
			if err != nil {
				t.Fatal(err)
			}
			return len(c.Estimates["a"])
		}
		moved := 0
		move := func() {
			moved++
			proxy.RestoreEstimates(map[string]map[string]egress.Estimates{"a": {fmt.Sprint("model ", moved): {Input: 1, Output: 700}}})
			d.saveSoon()
		}
		s := d.keepSaving()
		defer s.stop()
		move()
		if got := stored(); got != 1 {
			t.Errorf("%d models are stored, want the first at once", got)
		}
		writes, before := 0, 1
		for range 100 { // in a second
			move()
			if got := stored(); got != before {
				writes, before = writes+1, got
			}
			time.Sleep(time.Second / 100)
		}
		if got := stored(); writes != 3 && writes != 4 || got < 70 {
			t.Errorf("written %d times in a second, with %d of %d models", writes, got, moved)
		}
		time.Sleep(saveFirst)
		if got := stored(); got != moved {
			t.Errorf("%d models are stored, want %d", got, moved)
		}

		d.mu.Lock() // as when keys are issued, or the configuration is requested
		move()
		if got := stored(); got == moved {
			t.Error("stored without the lock")
		}
		d.mu.Unlock()
		time.Sleep(2 * saveFirst)
		if got := stored(); got != moved {
			t.Errorf("after the lock was free %d models are stored, want %d", got, moved)
		}
	})
}

// TestWhatIsLearnedBeforeTheStopIsStored: the stop may come while the saver pauses or the
// lock is held.
func TestWhatIsLearnedBeforeTheStopIsStored(t *testing.T) {
	longtest.Draws(t, 20, 500)
	rapid.Check(t, func(draw *rapid.T) {
		dir := t.TempDir()
		pauses := rapid.SliceOf(rapid.IntRange(0, 600)).Draw(draw, "milliseconds after what is learned")
		busy := rapid.IntRange(0, 10).Draw(draw, "what is learned while the lock is taken")
		synctest.Test(t, func(t *testing.T) {
			c, err := config.Read("h.yaml", []byte("state: "+dir+"\nproviders: {a: {api: openai, pass_through: true, pacing: off}}"), func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			d, err := New(c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			d.socketFunc = func(context.Context, string) (net.Listener, error) { return newPipes(), nil }
			d.listenFunc = func(context.Context) (net.Listener, error) {
				return newPipes(), nil
			}
			if err := d.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, pause := range pauses {
				if i == busy {
					d.mu.Lock()
				}
				d.proxy.RestoreEstimates(map[string]map[string]egress.Estimates{"a": {fmt.Sprint("model ", i): {Input: 1, Output: 700}}})
				d.saveSoon()
				time.Sleep(time.Duration(pause) * time.Millisecond)
				if i == busy {
					d.mu.Unlock()
				}
			}
			if err := d.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if c, err := readRates(d.ratesPath(), d.log); err != nil || len(c.Estimates["a"]) != len(pauses) {
				t.Errorf("%d of %d models are stored, %v", len(c.Estimates["a"]), len(pauses), err)
			}
		})
	})
}

// A Retry-After of days holds up calls for other models too, so it is bounded.
func TestARetryAfterHoldsUpAProviderForAnHourAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct{ asked, want time.Duration }{
			{time.Hour - time.Minute, time.Hour - time.Minute},
			{3 * time.Hour, time.Hour},
			{48 * time.Hour, 190080 * time.Millisecond}, // if it is in milliseconds
		} {
			g, err := newGovernor("a", "", config.Provider{Pacing: &config.Pacing{}}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.TryAcquire()
			if err != nil || !p.Settle(headway.Outcome{Class: headway.Throttled, RetryAfter: tt.asked}) {
				t.Fatal(err)
			}
			if wait := time.Until(g.Snapshot().RetryAt); wait != tt.want {
				t.Errorf("after a Retry-After of %v the next attempt may go after %v, want %v", tt.asked, wait, tt.want)
			}
		}
	})
}

func FuzzRates(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"version":1,"rates":{"a":{"law":"cycle","version":1,"interval_ns":10000000,"recorded_at":"2026-11-21T08:12:24Z","state":"eyJwYXRpZW5jZSI6MTAwMH0="}}}`))
	f.Add([]byte(`{"version":1,"rates":{"a":{"law":"aimd","version":1,"interval_ns":-1}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeRates(data)
		if err != nil {
			return
		}
		for name, r := range c.Rates {
			g, err := headway.New(headway.Config{Ceiling: 10 * time.Millisecond, Law: "cycle"})
			if err != nil {
				t.Fatal(err)
			}
			l := &providerState{name: name, pacing: governors{"": g}}
			l.restore(r, r.RecordedAt, slog.New(slog.DiscardHandler))
			if p, err := g.TryAcquire(); err != nil || !p.Settle(headway.Outcome{}) {
				t.Fatalf("after %q it lets nothing go: %v", data, err)
			}
		}
	})
}

// TestAPlanThatFailsHalfWayIsUndone: after a failure in any step, all budgets have their
// old limits.
func TestAPlanThatFailsHalfWayIsUndone(t *testing.T) {
	limits := func(calls int64) quota.Config {
		return quota.Config{PermitTTLMS: 600_000, Global: quota.Limits{CallsPerMinute: calls}, Models: map[string]quota.Model{"m": {}}}
	}
	description, ok := provider.Builtin(provider.OpenAI)
	if !ok {
		t.Fatal("there is no OpenAI")
	}
	for name, c := range map[string]struct {
		second   int64
		provider config.Provider
	}{
		"a budget":  {-1, config.Provider{Name: "p", Description: description}},
		"the proxy": {20, config.Provider{Name: "not a name", Description: description}},
	} {
		var states []*providerState
		for range 2 {
			g, err := governor.New(governor.Options{Config: limits(1)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = g.Close() })
			states = append(states, &providerState{name: "p", quota: g})
		}
		proxy, err := egress.New(egress.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := &Daemon{proxy: proxy, providers: map[string]*providerState{}}
		p := &plan{config: config.Config{Providers: []config.Provider{c.provider}}, states: states[:1], pacing: nil}
		p.pacing = append(p.pacing, nil)
		for i, to := range []int64{10, c.second} {
			p.changes = append(p.changes, change{states[i], quotafile.Settings{Quota: limits(to)}, states[i].quota.Config()})
		}
		if err := d.carryOut(p); err == nil {
			t.Errorf("%s: no error", name)
		}
		for i, l := range states {
			if got := l.quota.Config().Global.CallsPerMinute; got != 1 {
				t.Errorf("%s: budget %d has %d calls a minute, want those of before", name, i, got)
			}
		}
		if len(d.providers) != 0 || len(proxy.Status()) != 0 {
			t.Errorf("%s: %d states and %d providers are in force", name, len(d.providers), len(proxy.Status()))
		}
	}
}

// TestTokenizersAreLoadedBeforeTheFirstCall: providers whose calls are estimated load the
// tokenizers that their models may need.
func TestTokenizersAreLoadedBeforeTheFirstCall(t *testing.T) {
	var got []string
	before := loadTokenizers
	defer func() { loadTokenizers = before }()
	loadTokenizers = func(models ...string) { got = append(got, fmt.Sprint(models)) }
	for api, want := range map[provider.API]string{
		provider.OpenAI: "[[gpt-5 gpt-4]]", provider.AzureOpenAI: "[[gpt-5 gpt-4]]", provider.Anthropic: "[[]]", provider.Gemini: "[[]]", provider.HTTP: "[]",
	} {
		for _, estimated := range []bool{true, false} {
			c, err := config.Read("h.yaml", fmt.Appendf(nil, "providers: {x: {api: %s, upstream: http://127.0.0.1:1, pass_through: true, pacing: %v}}",
				api, map[bool]string{true: "{}", false: "off"}[estimated]), func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			c.State = t.TempDir()
			d, err := New(c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			p, err := d.plan(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.abandon(); err != nil {
				t.Error(err)
			}
			if !estimated {
				want = "[]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s, estimated %v: loaded %v, want %s", api, estimated, got, want)
			}
		}
	}
}

// TestEventsAreLoggedOnce: published events are logged too, unless another part of the
// program logs them.
func TestEventsAreLoggedOnce(t *testing.T) {
	open := &event.Breaker{Previous: "closed", State: "open"}
	for _, tt := range []struct {
		e       event.Event
		proxied bool
		want    string
	}{
		{event.Event{Type: event.Circuit, Connection: "c", Circuit: open}, true, "level=WARN msg=circuit connection=c"},
		{event.Event{Type: event.Circuit, Connection: "c", Circuit: open}, false, "level=WARN msg=circuit connection=c"},
		{event.Event{Type: event.Deferral, Connection: "c", Count: 2}, false, "level=INFO msg=deferral connection=c count=2"},
		{event.Event{Type: event.RunStart, Connection: "c"}, false, ""},
		{event.Event{Type: event.RunEnd, Connection: "c"}, false, ""},
		{event.Event{Type: event.Warning, Connection: "c"}, false, ""},
		{event.Event{Type: event.ConnectionChanged, Connection: "c"}, false, ""},
	} {
		hub, err := events.New(0)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		d := &Daemon{hub: hub, log: slog.New(slog.NewTextHandler(&out, nil))}
		publish := d.onConnectionEvent
		if tt.proxied {
			publish = d.onCircuit
		}
		publish(tt.e)
		if got := out.String(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || hub.Total() != 1 {
			t.Errorf("%s: logged %q, want %q; %d published", tt.e.Type, got, tt.want, hub.Total())
		}
	}
}

// A reload may replace and close the access log between the look at it and the line.
func TestALineOfAReplacedAccessLogGoesToTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	var logs []*calls.Log
	for range 3 {
		l, err := calls.OpenLog(path, true)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	for _, l := range logs[:2] {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	current := func() *calls.Log {
		l := logs[0]
		logs = logs[min(1, len(logs)-1):]
		return l
	}
	if err := writeAccess(current, calls.Call{Provider: "openai"}); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || strings.Count(string(data), "openai") != 1 {
		t.Errorf("%s, %v", data, err)
	}
	last := logs[0]
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeAccess(current, calls.Call{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a log that nothing replaced: %v", err)
	}
	if err := writeAccess(func() *calls.Log { return nil }, calls.Call{}); err != nil {
		t.Errorf("without a log: %v", err)
	}
}

// TestAStopIsNoFailureToStoreUsage: what its end interrupts is stored at the stop, so only another
// failure is logged.
func TestAStopIsNoFailureToStoreUsage(t *testing.T) {
	folder := t.TempDir()
	var log bytes.Buffer
	d := &Daemon{log: slog.New(slog.NewTextHandler(&log, nil)), usage: calls.NewLedger(filepath.Join(folder, calls.FileName))}
	d.usage.Add(&calls.Call{Began: time.Now(), Provider: "a", Attempts: 1})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d.storeUsage(ended)
	if log.Len() > 0 {
		t.Errorf("at the stop: %s", &log)
	}
	if err := d.usage.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.usage = calls.NewLedger(filepath.Join(folder, calls.FileName, calls.FileName)) // a file is no folder
	d.usage.Add(&calls.Call{Began: time.Now(), Provider: "a", Attempts: 1})
	d.storeUsage(t.Context())
	if !strings.Contains(log.String(), "not stored") {
		t.Errorf("without a folder: %s", &log)
	}
}
