package governor_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

// waker counts how often it is woken.
type waker struct{ atomic.Int64 }

func (w *waker) Wake() { w.Add(1) }

// reserve fails the test on a refusal.
func reserve(t *testing.T, g *governor.Governor, w *waker) quota.Reservation {
	t.Helper()
	r, err := g.Reserve(ask(1), w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What is reserved is stored before its permit is handed out, and not before.
func TestAReservationIsDurableOnceItIsConfirmed(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 640}), Store: store})
	r := reserve(t, g, &waker{})
	if retryIn, _, err := r.Reserve(); retryIn != 0 || err != nil || store.tokens() != 0 {
		t.Fatalf("%v, %v, %d stored", retryIn, err, store.tokens())
	}
	if err := r.Confirm(); err != nil || !r.Decision().Approved || store.tokens() != 1 {
		t.Fatalf("%v, %+v, %d stored", err, r.Decision(), store.tokens())
	}
	r.Leave()
	if first, err := g.RecordUsage(r.Decision().Permit, quota.Usage{Input: 1}); !first || err != nil {
		t.Errorf("the permit stays when one leaves: %v, %v", first, err)
	}
	if err := r.Confirm(); err == nil {
		t.Error("confirmed twice")
	}
	store.fail(errors.New("the disk is full"))
	r = reserve(t, g, &waker{})
	if _, _, err := r.Reserve(); err != nil {
		t.Fatal(err)
	}
	if err := r.Confirm(); err == nil || g.Snapshot().Statistics.Open != 0 {
		t.Errorf("%v, %d open, want that it is given back", err, g.Snapshot().Statistics.Open)
	}
	store.fail(nil)
}

func TestAReservationTellsOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})})
		var w waker
		d, err := g.Approve(ask(1))
		if err != nil {
			t.Fatal(err)
		}
		r, other := reserve(t, g, &w), reserve(t, g, &w)
		if retryIn, blocked, err := r.Reserve(); retryIn != time.Second || blocked != 1 || err != nil {
			t.Errorf("%v, %b, %v", retryIn, blocked, err)
		}
		if first, err := g.RecordUsage(d.Permit, quota.Usage{}); !first || err != nil || w.Load() != 1 {
			t.Errorf("%v, %v, woken %d times", first, err, w.Load())
		}
		denied(t, r.Refuse(7*time.Second), quota.CodeThrottled)
		other.Leave()
		woken := w.Load()
		if err := g.UpdateConfig([]byte(`{"models":{"m":{"burst":2}}}`)); err != nil || w.Load() != woken {
			t.Errorf("%v: woken without a reservation", err)
		}
		if s := g.Snapshot().Statistics; s.Waiting != 0 || s.Open != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What a caller's queue needs to know to order those who wait in it.
func TestWhatAReservationSaysOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 2})
		c.Global = quota.Limits{TokensPerMinute: 6000}
		c.Tenants = map[string]quota.Tenant{"t": {Weight: 3}}
		g := open(t, governor.Options{Config: c})
		r, err := g.Reserve(quota.Request{Model: "m", Tenant: "t", InputTokens: 500}, &waker{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // each gives the lock back
			if r.Tenant() != "t" || r.Weight() != 3 || len(r.Keys()) != 2 {
				t.Errorf("tenant %s, weight %d, keys %v", r.Tenant(), r.Weight(), r.Keys())
			}
			if r.Cost() != 5*time.Second || r.Whole() != time.Minute {
				t.Errorf("it takes %v of %v, want 5s of tokens in 1m", r.Cost(), r.Whole())
			}
			calls := r.Keys()[1]
			if load := r.Load(calls); load == 0 || r.Serves(calls, 3*load) != time.Second {
				t.Errorf("three of %d are served in %v, want 1s", load, r.Serves(calls, 3*load))
			}
		}
		r.Leave()
	})
}

// Who waits at the quota itself gets what a reservation gives back.
func TestWhatAReservationGivesBackServesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 1, Burst: 1}), MaxWait: time.Hour})
		r := reserve(t, g, &waker{})
		if _, _, err := r.Reserve(); err != nil {
			t.Fatal(err)
		}
		start, served := time.Now(), make(chan time.Duration)
		go func() {
			if _, err := g.ApproveWait(t.Context(), ask(1)); err != nil {
				t.Error(err)
			}
			served <- time.Since(start)
		}()
		time.Sleep(time.Second)
		r.Back()
		if after := <-served; after != time.Second {
			t.Errorf("served after %v, want at once", after)
		}
		r.Leave()
	})
}

func TestAReservationIsGivenBack(t *testing.T) {
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 1})})
	var w waker
	r := reserve(t, g, &w)
	for range 2 { // what is given back is there again
		if _, _, err := r.Reserve(); err != nil {
			t.Fatal(err)
		}
		r.Back()
	}
	if w.Load() != 0 {
		t.Error("woken by its own")
	}
	if _, _, err := r.Reserve(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Reserve(ask(1), &w); err == nil {
		t.Fatal("the day is over")
	}
	r.Leave()
	r.Leave()
	if s := g.Snapshot().Statistics; s.Open != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	r = reserve(t, g, &w)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if retryIn, blocked, err := r.Reserve(); !isClosed(err) || w.Load() == 0 || retryIn != 0 || blocked != 0 {
		t.Errorf("%v, %b, %v, woken %d times", retryIn, blocked, err, w.Load())
	}
	if _, err := g.Reserve(ask(1), &w); !isClosed(err) {
		t.Error(err)
	}
}

// A reservation for which the day is over meanwhile is refused, and is then over itself.
func TestAReservationThatNoWaitHelps(t *testing.T) {
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 1})})
	var w waker
	r := reserve(t, g, &w)
	d, err := g.Approve(ask(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 1}); err != nil {
		t.Fatal(err)
	}
	retryIn, blocked, err := r.Reserve()
	if denied(t, err, quota.CodeHardLimit); retryIn != 0 || blocked != 0 {
		t.Errorf("%v, %b", retryIn, blocked)
	}
	woken := w.Load()
	if err := g.UpdateConfig([]byte(`{"models":{"m":{"maxDailyCalls":5}}}`)); err != nil || w.Load() != woken {
		t.Errorf("%v: woken %d times after the end", err, w.Load()-woken)
	}
	if _, _, err := r.Reserve(); !isClosed(err) {
		t.Error(err)
	}
	r.Leave()
}

// Who has given a reservation back holds nothing, and who has it confirmed cannot give
// it back any more.
func TestAReservationEndsOnce(t *testing.T) {
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 2})})
	r := reserve(t, g, &waker{})
	if _, _, err := r.Reserve(); err != nil {
		t.Fatal(err)
	}
	r.Back()
	r.Back()
	if err := r.Confirm(); !isClosed(err) {
		t.Errorf("confirmed after it was given back: %v", err)
	}
	if s := g.Snapshot().Statistics; s.Waiting != 1 || s.Open != 0 {
		t.Errorf("%+v", s)
	}
	if _, _, err := r.Reserve(); err != nil {
		t.Fatal(err)
	}
	if err := r.Confirm(); err != nil {
		t.Fatal(err)
	}
	r.Back()
	if _, _, err := r.Reserve(); !isClosed(err) {
		t.Errorf("reserved after the end: %v", err)
	}
	if s := g.Snapshot().Statistics; s.Waiting != 0 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
}

// All queues that have a reservation are woken when there is room.
func TestEveryQueueIsWoken(t *testing.T) {
	g := open(t, governor.Options{Config: oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1})})
	wakers := make([]waker, 3)
	for i := range wakers {
		defer reserve(t, g, &wakers[i]).Leave()
	}
	if err := g.UpdateConfig([]byte(`{"models":{"m":{"burst":2}}}`)); err != nil {
		t.Fatal(err)
	}
	for i := range wakers {
		if wakers[i].Load() != 1 {
			t.Errorf("queue %d was woken %d times", i, wakers[i].Load())
		}
	}
}

func isClosed(err error) bool {
	r, ok := errors.AsType[*reason.Refusal](err)
	return ok && r.Reason == reason.Closed
}

// openFile opens a file that the test closes.
func openFile(t *testing.T, path string) *governor.File {
	t.Helper()
	file, err := governor.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return file
}

func TestAFileThatCannotBeReadIsNoEmptyDay(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		size    int64 // when it is larger
		want    string
	}{
		"empty":                 {"", 0, "not a file of daily use: unexpected end of JSON input"},
		"cut off":               {`{"version":1,"use":[{"day":"20`, 0, "not a file of daily use: unexpected end of JSON input"},
		"another version":       {`{"version":2}`, 0, "its version is 2, this program reads version 1"},
		"a bad day":             {`{"version":1,"use":[{"scope":{"model":"m"},"day":"soon","tokens":1}]}`, 0, `"soon"`},
		"as large as it may be": {"", 64 << 20, "not a file of daily use: invalid character"},
		"larger":                {"", 64<<20 + 1, "is larger than it may be: 67108864 bytes at most"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "use.json")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.size > 0 {
				if err := os.Truncate(path, c.size); err != nil {
					t.Fatal(err)
				}
			}
			file := openFile(t, path)
			g, err := governor.New(governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 1}), Store: file})
			if err == nil {
				_ = g.Close()
				t.Fatal("it was taken for an empty day")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if b, err := os.ReadFile(path); err != nil || c.size == 0 && string(b) != c.content || c.size > 0 && int64(len(b)) != c.size {
				t.Errorf("the file was touched: %d bytes, %v", len(b), err)
			}
		})
	}
	if _, err := governor.ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := governor.OpenFile(filepath.Join(t.TempDir(), "none", "use.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestAFailedSaveLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "use.json")
	file := openFile(t, path)
	want := []quota.DayUse{{Scope: quota.Scope{Model: "m"}, Day: "2026-03-04", Zone: "UTC", Tokens: 5, Calls: 1}}
	if err := file.Save(want); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil { // where the next one would be written
		t.Fatal(err)
	}
	if err := file.Save(nil); err == nil {
		t.Error("it was saved")
	}
	got, err := file.Load()
	if err != nil || len(got) != 1 || got[0] != want[0] {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWhatIsSavedCanBeRead: up to the largest file, and more is refused.
func TestWhatIsSavedCanBeRead(t *testing.T) {
	const largest = 64 << 20
	path := filepath.Join(t.TempDir(), "use.json")
	file := openFile(t, path)
	use := []quota.DayUse{{Scope: quota.Scope{Model: "m"}, Day: "2026-03-04", Zone: "UTC", Tokens: 5, Calls: 1}}
	if err := file.Save(use); err != nil {
		t.Fatal(err)
	}
	around, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{largest, largest + 1} {
		use[0].Scope.Model = strings.Repeat("m", size-len(around)+1)
		err := file.Save(use)
		if size > largest {
			if err == nil || !strings.Contains(err.Error(), "of 1 scopes takes more than 67108864 bytes") {
				t.Errorf("%d bytes: %v", size, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > largest { // what is larger is not read
			t.Errorf("%d bytes: %d in the file, %v", size, info.Size(), err)
		}
	}
}

// TestReadingLeavesNothingOpen: a console reads the file every few seconds.
func TestReadingLeavesNothingOpen(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here")
		}
		return len(all)
	}
	file := openFile(t, filepath.Join(t.TempDir(), "use.json"))
	if err := file.Save(nil); err != nil {
		t.Fatal(err)
	}
	before := open()
	for range 50 {
		if _, err := file.Load(); err != nil {
			t.Fatal(err)
		}
	}
	if n := open() - before; n > 25 {
		t.Errorf("%d more files are open", n)
	}
}
