package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	root "github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// typed is what a command wrote; ready is closed when a line is whole.
type typed struct {
	mu    sync.Mutex
	text  bytes.Buffer
	once  sync.Once
	ready chan struct{}
}

func (w *typed) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bytes.Contains(b, []byte("\n")) {
		defer w.once.Do(func() { close(w.ready) })
	}
	return w.text.Write(b)
}

func (w *typed) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// consoleOf runs "headway console" until stop, and gives the line that it says.
func consoleOf(t *testing.T, args ...string) (said string, stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	out := &typed{ready: make(chan struct{})}
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"console"}, args...), stdio{in: strings.NewReader(""), out: out, err: &errs})
	}()
	select {
	case <-out.ready:
	case got := <-code:
		t.Fatalf("exit %d: %s", got, &errs)
	}
	return strings.TrimSpace(out.String()), func() {
		end()
		if got := <-code; got != exitOK {
			t.Errorf("exit %d: %s", got, &errs)
		}
	}
}

func TestConsoleServesAStateFolder(t *testing.T) {
	path := owing(t)
	for state, want := range map[string]string{path: "owed", filepath.Join(t.TempDir(), "none.db"): "Nothing is connected yet"} {
		said, stop := consoleOf(t, "--state", state)
		place, url, _ := strings.Cut(said, " at ")
		if place != "headway console of "+state {
			t.Errorf("it says %q", said)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Jar: jar}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK || !strings.Contains(strings.ToLower(string(body)), strings.ToLower(want)) {
			t.Errorf("%s: %d %s", state, answer.StatusCode, body)
		}
		client.Jar = nil // another user of the machine
		if answer, err = client.Do(request); err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("with a link that was opened: %d", answer.StatusCode)
		}
		request.Host = "moved.example"
		if answer, err = client.Do(request); err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("under another name: %d", answer.StatusCode)
		}
		stop()
	}
	if code, _, errs := headway(t, "console", "--listen", "0.0.0.0:0"); code != exitUsage || !strings.Contains(errs, "loopback") {
		t.Errorf("for other machines: exit %d %s", code, errs)
	}
}

func TestTopWritesLinesWhereThereIsNoTerminal(t *testing.T) {
	code, out, errs := headway(t, "top", "--state", owing(t), "--looks", "1")
	fields := strings.Split(strings.TrimSpace(out), "\t")
	if code != exitOK || errs != "" || len(fields) != 7 || strings.Contains(out, "\x1b") {
		t.Errorf("exit %d, %q, %s", code, out, errs)
	}
	if code, out, errs := headway(t, "top", "--state", filepath.Join(t.TempDir(), "none.db"), "--looks", "1"); code != exitOK || out+errs != "" {
		t.Errorf("nothing yet: exit %d, %q, %s", code, out, errs)
	}
	if code, _, errs := headway(t, "top", "--server", "http://127.0.0.1:1", "--looks", "1"); code != exitRefused || errs == "" {
		t.Errorf("no daemon: exit %d, %s", code, errs)
	}
	if code, _, _ := headway(t, "top", "--interval", "1ms"); code != exitUsage {
		t.Errorf("too often: exit %d", code)
	}
}

// TestTopKnowsWhatItDoesNotKnow: what is unknown is neither a number nor green.
func TestTopKnowsWhatItDoesNotKnow(t *testing.T) {
	rate := func(change func(*event.Rate)) console.Row {
		r := console.Row{Name: "a", State: "unknown", Tone: console.Plain}
		r.Rate.Rate = event.NewRate(time.Second, time.Second)
		r.Known().LastBackoff = &event.Backoff{Reason: reason.RateLimited.Reason(), AtIntervalMS: 1000, At: time.Now()}
		change(r.Known())
		return r
	}
	today := time.Now().Local().Format("15:04") + " rate limited"
	for name, tt := range map[string]struct {
		row  console.Row
		want string
	}{
		"nothing":           {console.Row{Name: "a", State: "unknown", Tone: console.Plain}, "a|unknown|unknown|unknown|unknown|-"},
		"everything":        {rate(func(*event.Rate) {}), "a|unknown|1/s|1/s|" + today + "|-"},
		"no rate":           {rate(func(r *event.Rate) { r.EffectiveRatePerMin = 0 }), "a|unknown|unknown|1/s|" + today + "|-"},
		"no ceiling":        {rate(func(r *event.Rate) { r.CeilingRatePerMin = 0 }), "a|unknown|1/s|none|" + today + "|-"},
		"no back-off":       {rate(func(r *event.Rate) { r.LastBackoff = nil }), "a|unknown|1/s|1/s|none|-"},
		"no time of it":     {rate(func(r *event.Rate) { r.LastBackoff.At = time.Time{} }), "a|unknown|1/s|1/s|rate limited|-"},
		"a reason":          {console.Row{Name: "a", State: "deferred", Why: "max wall\u202eclock", Tone: console.Warn}, "a|deferred: max wall\ufffdclock|unknown|unknown|unknown|-"},
		"rates of pools":    {console.Row{Name: "a", State: "in use", Rate: client.Rate{Live: &root.Snapshot{Pools: []root.PoolSnapshot{{Rate: event.NewRate(time.Second, 0)}, {Rate: event.NewRate(time.Minute, 0)}, {}}}}}, "a|in use|2 pools|unknown|unknown|-"},
		"nothing is owed":   {console.Row{Name: "a", Status: &collect.ConnectionStatus{}}, "a||unknown|unknown|unknown|0"},
		"something is owed": {console.Row{Name: "a", Status: &collect.ConnectionStatus{Owed: map[string]int64{"rate_limited": 3}}}, "a||unknown|unknown|unknown|3"},
	} {
		if got := strings.Join(cells(tt.row), "|"); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		b := &board{watcher: watcher{source: "here", every: time.Second}, width: 80, height: 24}
		b.Update(seen{rows: []console.Row{tt.row}, at: time.Now()})
		if text := b.text(); strings.Contains(text, paint[console.Good]) {
			t.Errorf("%s is green: %q", name, text)
		}
	}
}

func TestTopFitsItsTerminal(t *testing.T) {
	rows := []console.Row{{Name: strings.Repeat("long\u202e", 60), State: "in use", Tone: console.Good}}
	for i := range 99 {
		r := console.Row{Name: fmt.Sprintf("c%02d", i), State: "needs attention", Tone: console.Bad}
		r.Rate.Rate = event.NewRate(time.Millisecond, time.Microsecond)
		rows = append(rows, r)
	}
	rows[1].State, rows[2].Why = "in use, rate unknown", "12 runs in a row"
	b := &board{watcher: watcher{source: "here", every: time.Second}}
	b.Update(seen{rows: rows, at: time.Now()})
	plain := regexp.MustCompile(`\x1b\[[0-9]+m`)
	for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 5}, {80, 24}} {
		b.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		for _, key := range []tea.KeyPressMsg{{Code: tea.KeyEnd}, {Code: tea.KeyHome}, {Code: tea.KeyPgDown}, {Code: tea.KeyUp}} {
			b.Update(key)
			text := b.text()
			lines := strings.Split(text, "\n")
			if len(lines) != size[1] || strings.Contains(text, "\u202e") {
				t.Errorf("%v: %d lines:\n%s", size, len(lines), text)
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(plain.ReplaceAllString(line, "")); n > max(size[0], 60) {
					t.Errorf("%v: a line of %d: %q", size, n, line)
				}
			}
			if size[0] == 200 && b.top == 0 && !strings.Contains(text, "in use, rate unknown") {
				t.Errorf("%v: a state is cut:\n%s", size, text)
			}
			if b.top == 0 && size[1] > 5 && strings.Contains(text, ": 12 runs in a row") != (size[0] == 200) {
				t.Errorf("%v: a reason is cut:\n%s", size, text)
			}
		}
	}
	if _, cmd := b.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not end it")
	}
	b.Update(seen{err: errors.New("gone")})
	if text := b.text(); !strings.Contains(text, "does not answer; this is of") || !strings.Contains(text, "c30") {
		t.Errorf("without an answer:\n%s", text)
	}
}

func TestUsageIsSummedUpForPeopleAndSpreadsheets(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state.db")
	if code, out, errs := headway(t, "usage", "--state", state); code != exitOK || out != "No call was counted.\n" {
		t.Errorf("nothing yet: exit %d %s%s", code, out, errs)
	}
	ledger := calls.NewLedger(filepath.Join(dir, calls.FileName))
	for _, model := range []string{"gpt", "=1+1", "\u202eevil"} {
		one := calls.Of(&egress.CallLog{Began: time.Now(), Provider: "openai", Model: model, KeyID: "ops", Status: 200, Ending: egress.Complete, Attempts: 1, Used: quota.Usage{Input: 1200, Output: 4}})
		ledger.Add(&one)
	}
	if err := ledger.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                            "PROVIDER  MODEL",
		"--by key":                    "ops  3      0        0       3         0          3,600",
		"--by model --csv":            "'=1+1,1,0,0,1,0,1200,0,4,0,1,1204,unknown\n",
		"--json --model gpt":          `"input_tokens": 1200`,
		"--by tenant":                 "-       3",
		"--key nobody":                "No call was counted.",
		"--by weather":                `by has "weather"`,
		"--from yesterday":            `from is "yesterday"`,
		"--csv --json":                "does not go with",
		"--server http://h --state x": "--server does not go with --state",
	} {
		all := append([]string{"usage"}, strings.Fields(args)...)
		if !strings.Contains(args, "--state") {
			all = append(all, "--state", state)
		}
		code, out, errs := headway(t, all...)
		if !strings.Contains(out+errs, want) || strings.Contains(out, "\u202e") || (code == exitOK) == strings.Contains(errs, "headway: ") {
			t.Errorf("headway %v: exit %d\n%s%s", all, code, out, errs)
		}
	}
}
