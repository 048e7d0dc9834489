package governor_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

// memory is a store that shows what a crash would leave.
type memory struct {
	mu    sync.Mutex
	use   []quota.DayUse
	fails error
	saves int
}

func (m *memory) Load() ([]quota.DayUse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.use, m.fails
}

func (m *memory) Save(use []quota.DayUse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return m.fails
	}
	m.use = use
	m.saves++
	return nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = err
}

// tokens is the stored use of the model "m".
func (m *memory) tokens() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.use {
		if u.Scope == (quota.Scope{Model: "m"}) {
			return u.Tokens
		}
	}
	return 0
}

func TestTheStoreNeverHoldsLessThanWasHandedOut(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 64_000}), Store: store})
	var (
		wg   sync.WaitGroup
		used atomic.Int64
	)
	for range 8 {
		wg.Go(func() {
			for range 500 {
				d, err := g.Approve(ask(10))
				if err != nil {
					t.Error(err)
					return
				}
				at := used.Add(10)
				if kept := store.tokens(); kept < at {
					t.Errorf("%d stored of %d", kept, at)
				}
				if used.Load() > 20_000 {
					// More than was estimated.
					if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 15}); err != nil {
						t.Error(err)
					}
					used.Add(5)
				}
			}
		})
	}
	wg.Wait()
	if kept, all := store.tokens(), used.Load(); kept < all || kept > all+1000 {
		t.Errorf("%d stored of %d, want at most a lease of 1000 more", kept, all)
	}
	if store.saves > 100 {
		t.Errorf("%d saves for 4000 approvals", store.saves)
	}
	if s := g.Statistics(); s.Saves != int64(store.saves) {
		t.Errorf("%+v", s)
	}
	if err := g.Close(); err != nil || store.tokens() != used.Load() {
		t.Errorf("closed: %d stored of %d, %v", store.tokens(), used.Load(), err)
	}
}

func TestARestartDoesNotHandTheBudgetOutTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "use.json")
	c := oneModel(quota.Limits{MaxDailyTokens: 1000})
	for range 3 {
		file, err := governor.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := governor.OpenFile(path); !errors.Is(err, governor.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("this process (%d) has it", os.Getpid())) {
			t.Errorf("two have one file: %v", err)
		}
		g, err := governor.New(governor.Options{Config: c, Store: file})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Approve(ask(300)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.Close(), file.Close(), file.Close()); err != nil {
			t.Fatal(err)
		}
		if err := file.Save(nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("saved after close: %v", err)
		}
	}
	file := openFile(t, path)
	g := open(t, governor.Options{Config: c, Store: file})
	_, err := g.Approve(ask(300))
	denied(t, err, quota.CodeHardLimit)
	if _, err := g.Approve(ask(100)); err != nil {
		t.Error(err)
	}
}

// TestAProcess is what the test below kills: it approves, and says so with a byte
// an approval. It ends by itself after more bytes than a pipe holds and the test
// reads, or when the test has gone.
func TestAProcess(t *testing.T) {
	path, ok := os.LookupEnv("GOVERNOR_TEST_FILE")
	if !ok {
		return // it has nothing to do by itself
	}
	file, err := governor.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := governor.New(governor.Options{Config: killConfig(), Store: file})
	if err != nil {
		t.Fatal(err)
	}
	for range 150_000 {
		if _, err := g.Approve(ask(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(os.Stdout, "+"); err != nil {
			t.Fatal(err)
		}
	}
}

func killConfig() quota.Config { return oneModel(quota.Limits{MaxDailyCalls: 640_000}) }

func TestAProcessThatIsKilledForgetsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "use.json")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	approved := 0
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestAProcess$")
		cmd.Env = append(os.Environ(), "GOVERNOR_TEST_FILE="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		for seen := 0; seen < 12_000; {
			n, err := out.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			seen += strings.Count(string(b[:n]), "+")
			approved += strings.Count(string(b[:n]), "+")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for { // what it said before it died
			n, err := out.Read(b)
			approved += strings.Count(string(b[:n]), "+")
			if err != nil {
				break
			}
		}
		_ = cmd.Wait()
		use, err := governor.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kept := int64(0)
		for _, u := range use {
			if u.Scope.Model == "m" {
				kept = u.Calls
			}
		}
		if kept < int64(approved) || kept > int64(approved)+int64(round+1)*10_001 {
			t.Errorf("%d stored of %d approved, want at most a lease of 10000 more for each death", kept, approved)
		}
	}
}

func TestAStoreThatFailsLetsNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		var out bytes.Buffer
		g := open(t, governor.Options{
			Config: oneModel(quota.Limits{MaxDailyTokens: 640, CallsPerMinute: 60, Burst: 1}), Store: store,
			Log: slog.New(slog.NewTextHandler(&out, nil)),
		})
		full := errors.New("the disk is full")
		store.fail(full)
		for range 2 {
			d, err := g.Approve(ask(100))
			if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.Internal || !errors.Is(err, full) || d.Approved {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		if n := g.Statistics().SavesFailed; n < 2 || strings.Count(out.String(), `msg="[RG][HARD] daily use was not saved"`) != int(n) {
			t.Errorf("%d saves failed, the log has\n%s", n, out.String())
		}
		if _, err := g.ApproveWait(t.Context(), ask(100)); !errors.Is(err, full) || !strings.Contains(err.Error(), "save the daily use") {
			t.Error(err)
		}
		store.fail(nil)
		if _, err := g.Approve(ask(100)); err != nil {
			t.Error("the budget was not given back:", err)
		}
		if store.tokens() != 100 || g.Statistics().SavesFailed < 3 {
			t.Errorf("%d stored, want the use; %+v", store.tokens(), g.Statistics())
		}
		store.fail(full)
		if _, err := g.ApproveWait(t.Context(), ask(100)); !errors.Is(err, full) {
			t.Error("after a wait:", err)
		}
		store.fail(nil)
	})
}

func TestAScopeWhoseUseWasGivenBackIsCoveredAgain(t *testing.T) {
	store := &memory{}
	c := oneModel(quota.Limits{MaxDailyTokens: 640})
	c.Models["n"] = quota.Model{Limits: quota.Limits{MaxDailyTokens: 640}}
	g := open(t, governor.Options{Config: c, Store: store})
	d, err := g.Approve(ask(100))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Cancel(d.Permit); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Approve(quota.Request{Model: "n", InputTokens: 1}); err != nil || store.tokens() != 0 {
		t.Fatal(store.tokens(), err)
	}
	if _, err := g.Approve(ask(50)); err != nil || store.tokens() < 50 {
		t.Errorf("%d stored of 50, %v", store.tokens(), err)
	}
}

func TestACapThatComesLaterIsCovered(t *testing.T) {
	store := &memory{}
	g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyCalls: 640}), Store: store})
	for _, patch := range []string{`{"models":{"m":{"maxDailyTokens":6400}}}`, `{"models":{"m":{"maxDailyTokens":64000}}}`} {
		if _, err := g.Approve(ask(100)); err != nil {
			t.Fatal(err)
		}
		if err := g.UpdateConfig([]byte(patch)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Approve(ask(100)); err != nil || store.tokens() < 300 {
		t.Errorf("%d stored of 300, %v", store.tokens(), err)
	}
}

func TestADayThatTurnsBeginsANewPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		g := open(t, governor.Options{Config: oneModel(quota.Limits{MaxDailyTokens: 640}), Store: store})
		for range 2 {
			if _, err := g.Approve(ask(600)); err != nil {
				t.Fatal(err)
			}
			use := store.crashed().use
			if store.tokens() != 600 || len(use) != 2 || use[0].Day != time.Now().UTC().Format(time.DateOnly) {
				t.Errorf("stored %+v", use)
			}
			time.Sleep(24 * time.Hour)
			synctest.Wait()
		}
	})
}

// crashed is what a process that is killed leaves to the next one.
func (m *memory) crashed() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{use: slices.Clone(m.use)}
}

// TestACrashLoopLeavesTheDay: processes that are killed after one call of one token
// take little more of the day than they used.
func TestACrashLoopLeavesTheDay(t *testing.T) {
	for name, settled := range map[string]bool{"settled": true, "under way": false} {
		store := &memory{}
		c := oneModel(quota.Limits{MaxDailyTokens: 64_000, MaxDailyCalls: 64_000})
		for range 64 {
			g := open(t, governor.Options{Config: c, Store: store})
			estimate := int64(1)
			if settled {
				estimate = 500
			}
			d, err := g.Approve(ask(estimate))
			if err != nil {
				t.Fatal(err)
			}
			if settled {
				if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 1}); err != nil {
					t.Fatal(err)
				}
			}
			store = store.crashed()
		}
		s := open(t, governor.Options{Config: c, Store: store}).Snapshot().Models["m"]
		if tokens, calls := *s.DailyTokensRemaining, *s.DailyCallsRemaining; tokens < 63_360 || calls < 63_360 || tokens > 64_000-64 || calls > 64_000-64 {
			t.Errorf("%s: %d tokens and %d calls are left of 64,000", name, tokens, calls)
		}
	}
}

// TestTwoHundredKillsHandOutNothingTwice: whatever each life did, and whether its
// calls were settled, canceled or under way.
func TestTwoHundredKillsHandOutNothingTwice(t *testing.T) {
	const dailyCap = 20_000
	random := rand.New(rand.NewPCG(7, 7))
	store := &memory{}
	c := oneModel(quota.Limits{MaxDailyTokens: dailyCap})
	var used int64
	for life := range 200 {
		g := open(t, governor.Options{Config: c, Store: store})
		for range random.IntN(60) {
			cost := 1 + random.Int64N(8)
			d, err := g.Approve(ask(cost))
			if err != nil {
				break
			}
			switch random.IntN(4) {
			case 0: // under way
			case 1:
				if _, err := g.Cancel(d.Permit); err != nil {
					t.Fatal(err)
				}
				cost = 0
			default:
				cost = random.Int64N(2 * cost)
				if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: cost, Output: 1}); err != nil {
					t.Fatal(err)
				}
				cost++
			}
			used += cost
		}
		store = store.crashed()
		if kept := store.tokens(); kept < used && kept < dailyCap {
			t.Fatalf("life %d: %d stored of %d that were used", life, kept, used)
		}
	}
	if used < dailyCap*3/4 || used > dailyCap+16 {
		t.Errorf("%d of %d were used in all", used, dailyCap)
	}
}

// TestAModelThatWasAwayKeepsItsDay: through a configuration without it, also when
// the process ends meanwhile.
func TestAModelThatWasAwayKeepsItsDay(t *testing.T) {
	for name, restart := range map[string]bool{"in one process": false, "across restarts": true} {
		store := &memory{}
		with := oneModel(quota.Limits{MaxDailyTokens: 100})
		with.Models["n"] = quota.Model{Limits: quota.Limits{MaxDailyTokens: 100}}
		without := quota.Config{Models: map[string]quota.Model{"n": with.Models["n"]}}
		g := open(t, governor.Options{Config: with, Store: store})
		become := func(c quota.Config) {
			if restart {
				store = store.crashed()
				g = open(t, governor.Options{Config: c, Store: store})
			} else if err := g.Replace(c); err != nil {
				t.Fatal(err)
			}
		}
		d, err := g.Approve(ask(90))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 90}); err != nil {
			t.Fatal(err)
		}
		become(without)
		if _, err := g.Approve(quota.Request{Model: "n", InputTokens: 1}); err != nil { // stores
			t.Fatal(err)
		}
		become(with)
		if _, err := g.Approve(ask(20)); err == nil {
			t.Errorf("%s: the day was handed out again", name)
		}
		if _, err := g.Approve(ask(10)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
