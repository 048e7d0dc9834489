package governor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headway-go/headway/quota"
)

// Fleet is the server that holds the budgets which several processes share. Its methods are
// called one at a time.
type Fleet interface {
	// Exchange carries out one exchange of this member in one step, at most once.
	Exchange(ctx context.Context, x *quota.Exchange) (*quota.Exchanged, error)
	// Server returns its host and port.
	Server() string
	// Close ends the use of the server, after the last exchange.
	Close()
}

// answerTime bounds an exchange. After it the server counts as away.
const answerTime = time.Second

// storeEvery is how often the use is stored in a fleet, where the server keeps it.
const storeEvery = 5 * time.Second

// member is a governor's membership in a fleet: a loop that exchanges messages with the
// server, one at a time.
type member struct {
	server Fleet
	skew   time.Duration // of the server's wall clock from this machine's; guarded by g.mu
	next   chan struct{} // closed after the next exchange that begins; guarded by g.mu
	asked  []*asked      // they wait for that exchange; guarded by g.mu
	kicked chan struct{} // capacity 1
	ending chan struct{}
	loop   sync.WaitGroup
	stored time.Duration // of the loop alone
}

// join makes the governor a member and waits for the first answer. Without one nothing is
// approved until there is one.
func (g *Governor) join(o *Options) {
	g.fleet = &member{server: o.Fleet, next: make(chan struct{}), kicked: make(chan struct{}, 1), ending: make(chan struct{})}
	g.mu.Lock()
	g.core.Share(g.now(), o.Share)
	g.mu.Unlock()
	_ = g.exchange(false) // the error is reported there
	g.fleet.loop.Go(g.exchanges)
}

// exchanges exchanges messages until the governor is closed.
func (g *Governor) exchanges() {
	f := g.fleet
	beat := time.NewTimer(quota.FleetBeat)
	defer beat.Stop()
	for {
		select {
		case <-f.ending:
			_ = g.exchange(true) // otherwise what it holds expires
			f.server.Close()
			return
		case <-f.kicked:
		case <-beat.C:
		}
		_ = g.exchange(false) // the error is reported there
		beat.Reset(quota.FleetBeat)
		if now, _ := g.clock(); now-f.stored >= storeEvery {
			f.stored = now
			_ = g.saveNow() // an error is counted and logged there
		}
	}
}

// exchange sends one message to the server and takes its answer.
func (g *Governor) exchange(leave bool) error {
	f := g.fleet
	g.mu.Lock()
	x := g.core.Exchange(g.now(), leave)
	done, waiting := f.next, f.asked
	f.next, f.asked = make(chan struct{}), nil
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	a, err := f.server.Exchange(ctx, x)
	cancel()
	g.mu.Lock()
	before := *g.core.Fleet()
	if err == nil {
		_, wall := g.clock()
		f.skew = a.At.Sub(wall)
	}
	now := g.now()
	if err == nil {
		g.core.Exchanged(now, x, a)
	} else {
		g.core.Unanswered(now)
	}
	if !g.closed {
		for _, a := range waiting {
			if a.decide {
				a.decision, a.at = g.core.Approve(now, a.request), g.at(now)
			}
		}
		g.settled(now)
	}
	wake, after := g.waking(), *g.core.Fleet()
	g.mu.Unlock()
	close(done)
	g.tell()
	wake.all()
	log := g.log.With(slog.String("server", f.server.Server()))
	switch {
	case before.Away && !after.Away:
		log.Info("[RG][FLEET] the server that holds the shared budgets is back")
	case !before.Away && after.Away && err != nil:
		log.Warn("[RG][FLEET] the server that holds the shared budgets is away", slog.Any("error", err))
	case !before.Away && after.Away:
		log.Warn("[RG][FLEET] the server that holds the shared budgets goes on losing them, and counts as away", slog.Int64("lost", after.Lost))
	case !before.Evicts && after.Evicts:
		log.Warn("[RG][FLEET] the server may lose the shared budgets: set its maxmemory-policy to noeviction, and let this user call INFO")
	}
	return err
}

// kick has the loop exchange a message soon.
func (f *member) kick() {
	select {
	case f.kicked <- struct{}{}:
	default:
	}
}

// asked is a request that waits for an exchange. Its decision is made with the answer, before
// anything else can take what the server granted for it.
type asked struct {
	request  quota.Request
	decision quota.Decision
	at       time.Time
	decide   bool // otherwise it only waits
}

// ask has the next exchange get what a request needs, and waits for its answer, with the lock
// held. It releases the lock while it waits. It returns nil if no exchange is needed.
func (g *Governor) ask(r *quota.Request, decide bool) *asked {
	if g.fleet == nil || g.closed || !g.core.Needs(g.now(), *r) {
		return nil
	}
	a := &asked{request: *r, decide: decide}
	g.fleet.asked = append(g.fleet.asked, a)
	done := g.fleet.next
	g.mu.Unlock()
	g.fleet.kick()
	<-done
	g.mu.Lock()
	return a
}

// leave ends the membership.
func (g *Governor) leave() {
	if g.fleet != nil {
		close(g.fleet.ending)
		g.fleet.loop.Wait()
	}
}

// Away reports whether budgets are shared and the server that holds them is away.
func (g *Governor) Away() bool {
	if g.fleet == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Away()
}

// Fleet returns where shared budgets are held, and whether that server is away; nil if this
// governor shares none.
func (g *Governor) Fleet() *quota.FleetStatus {
	if g.fleet == nil {
		return nil
	}
	g.mu.Lock()
	s := g.core.Fleet()
	g.mu.Unlock()
	s.Server = g.fleet.server.Server()
	return s
}
