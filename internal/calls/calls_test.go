package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var began = time.Date(2026, 11, 23, 23, 59, 0, 0, time.UTC)

func call(change func(*egress.CallLog)) Call {
	c := egress.CallLog{
		Began: began, Provider: "openai", Model: "m", Budget: "other", KeyID: "ops", Tenant: "a", Agent: "x", Metered: true, Status: 200,
		Ending: egress.Complete, Class: reason.OK, Attempts: 2, Throttled: 1, Wait: 1500 * time.Microsecond, Whole: time.Second,
		Used: quota.Usage{Input: 100, Cached: 40, Output: 7, Reasoning: 3}, Reported: true,
	}
	if change != nil {
		change(&c)
	}
	return Of(&c)
}

func text(p *string) string {
	if p == nil {
		return "-"
	}
	return *p
}

func sum(t *testing.T, l *Ledger, a Ask) (rows []string) {
	t.Helper()
	list, err := l.Sum(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		rows = append(rows, strings.Join([]string{text(u.Day), text(u.Provider), text(u.Key), text(u.Tenant), text(u.Agent), text(u.Model)}, " ")+fmt.Sprint(u.Totals))
	}
	return rows
}

// TestTotalsOutliveTheProcess: they are those of the calls, also across a close, and are
// read while they are added to.
func TestTotalsOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	l := NewLedger(path)
	if rows := sum(t, l, Ask{}); len(rows) > 0 {
		t.Errorf("nothing was counted: %v", rows)
	}
	add := func(change func(*egress.CallLog)) { c := call(change); l.Add(&c) }
	add(nil)
	add(func(c *egress.CallLog) {
		c.Ending, c.Attempts, c.Throttled, c.Used, c.Model = egress.Refused, 0, 0, quota.Usage{}, "<script>"
	})
	add(func(c *egress.CallLog) { c.Status, c.Reported, c.Tenant = 500, false, "b" })
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := NewLedger(path) // as another process that looks
	if rows := sum(t, other, Ask{By: []string{"tenant"}}); fmt.Sprint(rows) != "[- - - a - -{2 1 0 2 1 100 40 7 3 0 [] 107 map[]} - - - b - -{1 0 1 2 1 100 40 7 3 1 [] 107 map[]}]" {
		t.Errorf("by tenant: %v", rows)
	}
	add(func(c *egress.CallLog) { c.Began = began.Add(2 * time.Minute) })
	if err := errors.Join(l.Close(t.Context()), other.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	l = NewLedger(path)
	for _, tt := range []struct {
		ask  Ask
		want string
	}{
		{Ask{}, "[- - - - - -{4 1 1 6 3 300 120 21 9 1 [] 321 map[]}]"},
		{Ask{By: []string{"day"}}, "[2026-11-23 - - - - -{3 1 1 4 2 200 80 14 6 1 [] 214 map[]} 2026-11-24 - - - - -{1 0 0 2 1 100 40 7 3 0 [] 107 map[]}]"},
		{Ask{By: []string{"day"}, From: "2026-11-24"}, "[2026-11-24 - - - - -{1 0 0 2 1 100 40 7 3 0 [] 107 map[]}]"},
		{Ask{By: []string{"day"}, After: 1, Limit: 1}, "[2026-11-24 - - - - -{1 0 0 2 1 100 40 7 3 0 [] 107 map[]}]"},
		{Ask{By: []string{"model", "key"}, To: "2026-11-23", Is: map[string]string{"tenant": "a"}}, "[- - ops - - m{1 0 0 2 1 100 40 7 3 0 [] 107 map[]} - - ops - - other{1 1 0 0 0 0 0 0 0 0 [] 0 map[]}]"},
	} {
		if rows := sum(t, l, tt.ask); fmt.Sprint(rows) != tt.want {
			t.Errorf("%+v: %v, want %v", tt.ask, rows, tt.want)
		}
	}
	add(nil) // after it was read
	if rows := sum(t, l, Ask{}); fmt.Sprint(rows) != "[- - - - - -{5 1 1 8 4 400 160 28 12 1 [] 428 map[]}]" {
		t.Errorf("then: %v", rows)
	}
	for _, bad := range []Ask{{By: []string{"1; DROP TABLE usage"}}, {By: []string{"day", "day"}}, {From: "23.11."}, {To: "2026-13-01"}} {
		if _, err := l.Sum(t.Context(), bad); !errors.Is(err, ErrAsk) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for day := range KeptDays - 1 {
		add(func(c *egress.CallLog) { c.Began = began.AddDate(0, 0, 2+day) })
	}
	if rows := sum(t, l, Ask{By: []string{"day"}}); len(rows) != KeptDays || !strings.HasPrefix(rows[0], "2026-11-24") {
		t.Errorf("%d days are kept, want %d: %v", len(rows), KeptDays, rows)
	}
	add(func(c *egress.CallLog) { c.Began = began.AddDate(100, 0, 0) }) // the clock was wrong
	if rows := sum(t, l, Ask{By: []string{"day"}}); len(rows) != KeptDays || !strings.HasPrefix(rows[0], "2026-11-25") {
		t.Errorf("after a call of another century %d days are kept, want %d", len(rows), KeptDays)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v, %v", info, err)
	}
}

func TestWhatCannotBeStoredIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	if err := os.WriteFile(path, []byte(strings.Repeat("this is not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	l := NewLedger(path)
	for range 3 {
		c := call(nil)
		l.Add(&c)
		if err := l.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("stored in a file that is not a database: %v", err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if rows := sum(t, l, Ask{}); fmt.Sprint(rows) != "[- - - - - -{3 0 0 6 3 300 120 21 9 0 [] 321 map[]}]" {
		t.Errorf("%v", rows)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestGroupsOfADayAreBounded(t *testing.T) {
	l := NewLedger("")
	for i := range maxGroups + 10 {
		c := call(func(c *egress.CallLog) { c.Tenant = fmt.Sprint(i) })
		l.Add(&c)
	}
	last := l.due[group{"2026-11-23", "openai", "ops", Other, Other, Other}]
	if len(l.due) != maxGroups+1 || last == nil || last.Calls != 10 {
		t.Errorf("%d groups, %+v beyond the bound", len(l.due), last)
	}
}

// The bound is that of a day, also after a call of another day, and in the next process.
func TestGroupsOfADayAreBoundedInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	for process := range 2 {
		l := NewLedger(path)
		l.most = 100
		for i := range 55 {
			c := call(func(c *egress.CallLog) { c.Tenant = fmt.Sprint(process, " ", i) })
			l.Add(&c)
			if i == 10 {
				c.Began = c.Began.AddDate(100, 0, 0)
				l.Add(&c)
			}
		}
		if rows := sum(t, l, Ask{By: []string{"key"}, To: "2026-11-23"}); len(rows) != 1 || !strings.Contains(rows[0], fmt.Sprintf("{%d ", (process+1)*55)) {
			t.Errorf("not all calls are counted: %v", rows)
		}
		rows := sum(t, l, Ask{By: []string{"tenant"}, To: "2026-11-23"})
		if want := min(101, (process+1)*55); len(rows) != want {
			t.Errorf("process %d: %d groups, want %d", process+1, len(rows), want)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheLatestCallsAreKept(t *testing.T) {
	var r Recent
	for i := range MaxRecent + 5 {
		r.Add(call(func(c *egress.CallLog) { c.Priority = i }))
	}
	all := r.Latest(MaxRecent+5, func(*Call) bool { return true })
	if len(all) != MaxRecent || all[0].Priority != MaxRecent+4 || all[MaxRecent-1].Priority != 5 {
		t.Errorf("%d calls, from %d to %d", len(all), all[0].Priority, all[len(all)-1].Priority)
	}
	if even := r.Latest(2, func(c *Call) bool { return c.Priority%2 == 0 }); len(even) != 2 || even[1].Priority != MaxRecent+2 {
		t.Errorf("%+v", even)
	}
	seen := 0
	r.Latest(3, func(*Call) bool { // who looks may ask again
		seen += len(r.Latest(1, func(*Call) bool { return true }))
		return true
	})
	if seen != 3 {
		t.Errorf("looked at %d", seen)
	}
}

// TestALineACall: one line whatever the words of the client are, and a file that was
// moved away is made again.
func TestALineACall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	for _, asJSON := range []bool{true, false} {
		l, err := OpenLog(path, asJSON)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Write(call(func(c *egress.CallLog) { c.Model = "a\nb \"c\" \u202e" })); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Close(), (*Log)(nil).Close()); err != nil {
			t.Fatal(err)
		}
		if l.Write(call(nil)) == nil {
			t.Error("a line in a closed file is no error")
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	if len(lines) != 2 || !strings.HasPrefix(string(lines[1]), "time=2026-11-23T23:59:00.000Z provider=openai model=") || !strings.Contains(string(lines[1]), " wait_ms=1.5 ") {
		t.Fatalf("%s", data)
	}
	var line map[string]any
	if err := json.Unmarshal(lines[0], &line); err != nil || line["input_tokens"] != 100.0 || line["msg"] != nil || line["level"] != nil {
		t.Errorf("%v, %v", line, err)
	}
	if _, err := OpenLog(filepath.Join(path, "x"), true); err == nil {
		t.Error("a log below a file was opened")
	}
}

func TestTheCostIsKnownAsFarAsPricesAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	dollars := func(v float64) *float64 { return &v }
	prices := Prices{"gpt-5": {Input: dollars(1.25), Cached: dollars(0.125), Output: dollars(10)}, "gpt-*": {Input: dollars(2), Output: dollars(8)}, "*": {Input: dollars(1)}}
	day := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	l := NewLedger(path)
	add := func(model, key, currency string, input, cached, output int64) {
		c := Call{Began: day, Provider: "p", Model: model, Key: key, Status: 200, Ending: "complete", Attempts: 1, InputTokens: input, CachedTokens: cached, OutputTokens: output, Reported: true}
		if p, ok := prices.Of(model); ok && currency != "" {
			c.Bill(currency, p)
		}
		l.Add(&c)
	}
	add("gpt-5", "a", "USD", 1_000_000, 400_000, 100_000) // 0.75 + 0.05 + 1
	add("gpt-5", "a", "USD", 1, 0, 0)                     // 0.00000125
	add("gpt-4o", "b", "USD", 500_000, 0, 0)              // 1, by a glob
	add("gpt-4o", "b", "USD", 10, 5, 0)                   // nobody said what cached ones cost
	add("x/y", "c", "USD", 10, 0, 10)                     // no glob fits
	add("z", "d", "USD", 10, 0, 1)                        // nobody said what output costs
	add("gpt-5", "e", "", 100, 0, 1)                      // no prices then
	add("gpt-5", "f", "USD", 1_000_000, 0, 0)
	add("gpt-5", "f", "EUR", 1_000_000, 0, 0)
	for range 2 { // as it is counted, and as another process reads it
		list, err := l.Sum(t.Context(), Ask{By: []string{"key"}})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, u := range list {
			got[*u.Key] = fmt.Sprintf("%s, %d without a price", u.CostText(), u.UnpricedTokens)
		}
		want := map[string]string{
			"a": "1.80 USD, 0 without a price", "b": "at least 1.00 USD, 10 without a price", "c": "unknown, 20 without a price",
			"d": "unknown, 11 without a price", "e": "unknown, 101 without a price", "f": "1.25 EUR + 1.25 USD, 0 without a price",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = NewLedger(path)
	}
	all, err := l.Sum(t.Context(), Ask{Is: map[string]string{"model": "gpt-5"}})
	if err != nil || len(all) != 1 || len(all[0].Cost) != 2 || all[0].Cost[1].Amount != 3.05000125 {
		t.Errorf("%+v, %v", all, err)
	}
	// A file of before has no costs.
	if err := l.open(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.ExecContext(t.Context(), "DROP TABLE usage_cost"); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := NewLedger(path)
	old, err := before.Sum(t.Context(), Ask{})
	if err := before.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err != nil || len(old) != 1 || old[0].CostText() != "unknown" {
		t.Errorf("%+v, %v", old, err)
	}
}
