package governor

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/headway-go/headway/quota"
)

// Store keeps the daily use. Its methods are called one at a time.
type Store interface {
	// Load returns what was saved last; nothing if nothing was saved.
	Load() ([]quota.DayUse, error)
	// Save replaces all that was saved before. After it returned nil, Load returns
	// exactly this, even after a crash of the process or the machine. After an error Load
	// returns either this or what was saved before.
	Save([]quota.DayUse) error
}

// leaseShare bounds the part of a daily cap that is stored ahead of its use. A killed
// process loses what it had stored ahead, so a new process stores nothing ahead in the
// first exactSaves saves of a scope, and then only in proportion to its own use.
const (
	leaseShare = 64
	exactSaves = 8
)

// ledger is what the store has to cover. A lease is covered once its generation is saved.
type ledger struct {
	leases     map[quota.Scope]lease
	before     map[quota.Scope]quota.DayUse // what was used before this process
	changed    []quota.DayUse
	generation uint64 // of the last lease
	saved      uint64 // all generations up to this one are in the store
}

// lease is the use of a scope that is stored before it happens.
type lease struct {
	day           string
	tokens, calls int64
	generation    uint64
	saves         int // of this scope
}

// givesBack reports whether less is used than was stored.
func (l *lease) givesBack(u *quota.DayUse) bool {
	return l.tokens != math.MaxInt64 && u.Tokens < l.tokens || l.calls != math.MaxInt64 && u.Calls < l.calls
}

// restore loads the stored use.
func (g *Governor) restore(now time.Duration) error {
	if g.store == nil {
		return nil
	}
	g.book.leases = map[quota.Scope]lease{}
	kept, err := g.store.Load()
	if err != nil {
		return fmt.Errorf("governor: load the daily use: %w", err)
	}
	if err := g.core.Restore(now, kept); err != nil {
		return fmt.Errorf("governor: the stored daily use: %w", err)
	}
	g.book.before = map[quota.Scope]quota.DayUse{}
	for _, u := range g.core.Use(now, nil) {
		g.book.before[u.Scope] = u
	}
	return nil
}

// lease takes leases for the use that changed, with the lock held, and returns the
// generation that must be saved before the use is relied on.
func (g *Governor) lease(now time.Duration) (need uint64) {
	if g.store == nil || g.closed {
		return 0
	}
	b := &g.book
	b.changed = g.core.TakeChangedUse(now, b.changed[:0])
	if g.fleet != nil {
		return 0 // the server keeps the use
	}
	grown := b.generation + 1
	for _, u := range b.changed {
		l, ok := b.leases[u.Scope]
		covered := ok && l.day == u.Day && u.Tokens <= l.tokens && u.Calls <= l.calls
		if covered && (l.saves >= exactSaves || !l.givesBack(&u)) {
			need = max(need, l.generation)
			continue
		}
		tokens, calls, capped := g.caps(now, u)
		if !capped {
			continue // it is stored along with the others
		}
		need, b.generation = grown, grown
		own := quota.DayUse{}
		if l.saves >= exactSaves {
			own.Tokens, own.Calls = u.Tokens, u.Calls
			if before := b.before[u.Scope]; before.Day == u.Day {
				own.Tokens -= before.Tokens
				own.Calls -= before.Calls
			}
		}
		b.leases[u.Scope] = lease{
			u.Day, ahead(u.Tokens, own.Tokens, tokens), ahead(u.Calls, own.Calls, calls), grown, l.saves + 1,
		}
	}
	return need
}

// caps returns the daily caps of a scope; math.MaxInt64 means no cap.
func (g *Governor) caps(now time.Duration, u quota.DayUse) (tokens, calls int64, capped bool) {
	tokens, calls = math.MaxInt64, math.MaxInt64
	s, _ := g.core.Inspect(now, u.Scope)
	if left := s.DailyTokensRemaining; left != nil {
		tokens, capped = *left+u.Tokens, true
	}
	if left := s.DailyCallsRemaining; left != nil {
		calls, capped = *left+u.Calls, true
	}
	return tokens, calls, capped
}

// ahead returns the use plus a lease, within the cap: a quarter of what this process used
// itself, at most a share of the cap.
func ahead(used, own, limit int64) int64 {
	if limit == math.MaxInt64 {
		return limit // no cap, so nothing to lease; page gives the exact use
	}
	return max(used, min(used+min(limit/leaseShare, max(own, 0)/4), limit))
}

// exact ends all leases: the next save writes the actual use.
func (b *ledger) exact() uint64 {
	clear(b.leases)
	b.generation++
	return b.generation
}

// page returns what is saved: the use of every scope, raised to its lease. Leases of
// scopes without use end.
func (g *Governor) page(now time.Duration) []quota.DayUse {
	page := g.core.Use(now, nil)
	live := make(map[quota.Scope]lease, len(g.book.leases))
	for i := range page {
		u := &page[i]
		l, ok := g.book.leases[u.Scope]
		if !ok || l.day != u.Day {
			continue
		}
		live[u.Scope] = l
		if l.tokens != math.MaxInt64 {
			u.Tokens = max(u.Tokens, l.tokens)
		}
		if l.calls != math.MaxInt64 {
			u.Calls = max(u.Calls, l.calls)
		}
	}
	g.book.leases = live
	return page
}

// saveNow saves the exact use.
func (g *Governor) saveNow() error {
	g.mu.Lock()
	generation := uint64(0)
	if !g.closed {
		generation = g.book.exact()
	}
	g.mu.Unlock()
	return g.save(generation)
}

// save returns once the store covers a generation. A caller that waits for another save
// finds its generation covered, or saves for all that came meanwhile.
func (g *Governor) save(generation uint64) error {
	if generation == 0 || g.store == nil {
		return nil
	}
	g.mu.Lock()
	done := g.book.saved >= generation
	g.mu.Unlock()
	if done {
		return nil
	}
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	if g.book.saved >= generation {
		g.mu.Unlock()
		return nil
	}
	now, _ := g.clock()
	page, upTo := g.page(now), g.book.generation
	g.mu.Unlock()
	if err := g.store.Save(page); err != nil {
		g.saveFailed.Add(1)
		err = fmt.Errorf("governor: save the daily use: %w", err)
		g.log.Error("[RG][HARD] daily use was not saved", slog.Any("error", err))
		return err
	}
	g.saves.Add(1)
	g.mu.Lock()
	g.book.saved = upTo
	g.mu.Unlock()
	return nil
}
