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
	// Load gives what was saved last; nothing when nothing was.
	Load() ([]quota.DayUse, error)
	// Save replaces all that was saved before. When it returns nil, Load gives
	// exactly this, also after a crash of the process or the machine; after an
	// error it gives this or what was there before.
	Save([]quota.DayUse) error
}

// leaseShare is the part of a daily cap that is stored ahead of its use, at most.
// A process that is killed loses what it had stored ahead, so that one that began
// a moment ago stores nothing ahead in the first exactSaves saves of a scope, and
// then little beside what it has used itself.
const (
	leaseShare = 64
	exactSaves = 8
)

// ledger is what the store has to cover. A lease is covered once its generation
// is saved.
type ledger struct {
	leases     map[quota.Scope]lease
	before     map[quota.Scope]quota.DayUse // what was used before this process
	changed    []quota.DayUse
	generation uint64 // of the newest lease
	saved      uint64 // all up to this one are in the store
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

// restore takes over what the store kept.
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

// lease makes room in the books for the use that changed, with the lock held,
// and says which generation has to be saved before anybody relies on it.
func (g *Governor) lease(now time.Duration) (need uint64) {
	if g.store == nil || g.closed {
		return 0
	}
	b := &g.book
	b.changed = g.core.TakeChangedUse(now, b.changed[:0])
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

// caps are the daily caps of a scope; math.MaxInt64 stands for no cap.
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

// ahead is the use with a lease on top, within the cap: a quarter of what this
// process used itself, and no more than a share of the cap.
func ahead(used, own, limit int64) int64 {
	if limit == math.MaxInt64 {
		return limit // no cap, so nothing to lease; page gives the exact use
	}
	return max(used, min(used+min(limit/leaseShare, max(own, 0)/4), limit))
}

// exact ends all leases: the next save writes what is really used.
func (b *ledger) exact() uint64 {
	clear(b.leases)
	b.generation++
	return b.generation
}

// page is what is saved: the use of every scope, raised to its lease. Leases of
// scopes without use are over.
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

// save returns once the store covers a generation. Who comes while another saves
// finds it done, or saves for all who came meanwhile.
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
