package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/memory"
	"github.com/headway-go/headway/reason"
)

// pair is a connection in the store under test and in one in memory, to which the same
// happens.
type pair struct {
	store, memory collect.Store
	connection    string
	at            time.Time
	runs          int
	leases        [][2]collect.Lease // all that were ever given, the newest last: of the store and of memory
}

// keys are few, so that sequences meet the same ones again.
var keys = []string{"a", "b", "c", "d"}

// agreesWithMemory runs random sequences of calls, each on a connection of its own, on
// the store and on one in memory, and compares all that both show now and then and at
// the end.
func agreesWithMemory(t *testing.T, s collect.Store) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		p := &pair{store: s, memory: memory.New(), connection: fmt.Sprintf("c%d", n), at: now().Add(-24 * time.Hour)}
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": p.acquire,
			"commit":  p.commit,
			"serve":   p.serve,
			"renew":   p.renew,
			"finish":  p.finish,
			"forget":  p.forget,
			"drop":    p.drop,
			"check":   p.check,
		})
		p.check(rt)
	})
}

// equal ends the sequence unless both stores gave the same.
func equal(rt *rapid.T, what string, want, got any) {
	rt.Helper()
	if d := diff(want, got); d != "" {
		rt.Fatalf("%s (-memory +store):\n%s", what, d)
	}
}

// acquire asks for the connection, sometimes once the lease has expired.
func (p *pair) acquire(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "expired") {
		p.at = p.at.Add(time.Minute)
	}
	req := collect.LeaseRequest{Connection: p.connection, Run: fmt.Sprintf("%s-r%d", p.connection, p.runs), Holder: "h", Now: p.at, TTL: time.Minute}
	want, refused := p.memory.Acquire(rt.Context(), req)
	got, err := p.store.Acquire(rt.Context(), req)
	equal(rt, "acquired", refused == nil, err == nil)
	if err == nil {
		p.runs++
		p.leases = append(p.leases, [2]collect.Lease{got, want})
	}
}

// write makes a call with a lease, mostly the newest, and compares whether both stores
// allow it.
func (p *pair) write(rt *rapid.T, what string, call func(context.Context, collect.Store, collect.Lease) error) {
	if len(p.leases) == 0 {
		rt.Skip("no lease was given yet")
	}
	i := len(p.leases) - 1
	if rapid.IntRange(0, 3).Draw(rt, "stale") == 0 {
		i = rapid.IntRange(0, i).Draw(rt, "lease")
	}
	want, got := call(rt.Context(), p.memory, p.leases[i][1]), call(rt.Context(), p.store, p.leases[i][0])
	if (want == nil) != (got == nil) {
		rt.Fatalf("%s gave %v, and %v in memory", what, got, want)
	}
}

func (p *pair) renew(rt *rapid.T) {
	p.write(rt, "renew", func(ctx context.Context, s collect.Store, l collect.Lease) error {
		return s.Renew(ctx, l, p.at, time.Minute)
	})
}

func (p *pair) forget(rt *rapid.T) {
	p.write(rt, "forget", func(ctx context.Context, s collect.Store, l collect.Lease) error { return s.Forget(ctx, l) })
}

func (p *pair) finish(rt *rapid.T) {
	end := collect.RunEnd{
		At: p.at, State: rapid.SampledFrom([]collect.RunState{collect.RunDrained, collect.RunIncomplete, collect.RunDeferred, collect.RunFailed}).Draw(rt, "state"),
		Events: drawEvents(rt),
	}
	p.write(rt, "finish", func(ctx context.Context, s collect.Store, l collect.Lease) error { return s.Finish(ctx, l, end) })
}

// serve leases gaps; which ones, and in which order, has to be the same.
func (p *pair) serve(rt *rapid.T) {
	ask := collect.ServeRequest{Now: p.at, Before: p.at.Add(time.Second), MaxRows: rapid.IntRange(1, 3).Draw(rt, "rows"), MaxBytes: 1 << 20}
	served := map[collect.Store][]string{}
	p.write(rt, "serve", func(ctx context.Context, s collect.Store, l collect.Lease) error {
		gaps, err := s.Serve(ctx, l, ask)
		for _, g := range gaps {
			served[s] = append(served[s], g.Key)
		}
		return err
	})
	equal(rt, "served", served[p.memory], served[p.store])
}

func (p *pair) commit(rt *rapid.T) {
	c := collect.Commit{At: p.at, Stream: "x", Progress: collect.Progress{Pages: rapid.Int64Range(0, 99).Draw(rt, "pages")}, Events: drawEvents(rt)}
	if rapid.Bool().Draw(rt, "lane") {
		c.Lane = &collect.Lane{Stream: rapid.SampledFrom(keys).Draw(rt, "stream"), Kind: collect.Steady, Cursor: rapid.String().Draw(rt, "cursor")}
	}
	for _, k := range rapid.SliceOfN(rapid.SampledFrom(keys), 0, 4).Draw(rt, "items") {
		c.Items = append(c.Items, collect.KnownItem{Key: k, Fingerprint: rapid.StringN(0, 3, -1).Draw(rt, "fingerprint"), Owed: rapid.Bool().Draw(rt, "owed")})
	}
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 2, rapid.ID).Draw(rt, "recovered") {
		c.Recovered = append(c.Recovered, collect.GapKey{Stream: "d", Key: k})
	}
	for _, k := range rapid.SliceOfN(rapid.SampledFrom(keys), 0, 3).Draw(rt, "opened") {
		g := gap("d", k)
		g.Attempts = rapid.Int64Range(-3, 3).Draw(rt, "attempts")
		g.Status = rapid.SampledFrom([]collect.GapStatus{"", collect.GapPending, collect.GapLeased, collect.GapTerminal}).Draw(rt, "status")
		g.Reason = rapid.SampledFrom([]reason.Reason{reason.ServerError, reason.RateLimited.Reason()}).Draw(rt, "reason")
		c.Opened = append(c.Opened, g)
	}
	if rapid.IntRange(0, 4).Draw(rt, "reshaped") == 0 {
		c.Reshaped = []collect.Reshaped{{
			Shape:       shaped("x", rapid.SampledFrom(keys).Draw(rt, "shape")),
			ForgetItems: rapid.Bool().Draw(rt, "items"), ForgetFingerprints: rapid.Bool().Draw(rt, "fingerprints"),
			ForgetChildren: rapid.Bool().Draw(rt, "children"), OweDetails: rapid.Bool().Draw(rt, "owe"),
		}}
	}
	if rapid.Bool().Draw(rt, "sink") {
		c.Sink = position(rapid.IntRange(0, 99).Draw(rt, "position"))
	}
	if rapid.Bool().Draw(rt, "pacing") {
		c.Pacing = &collect.Pacing{Version: 1, Law: "aimd", IntervalMS: rapid.Float64Range(0, 1e6).Draw(rt, "interval")}
		if rapid.Bool().Draw(rt, "pools") {
			c.Pacing.Pools = map[string]collect.Pacing{rapid.SampledFrom(keys).Draw(rt, "pool"): *c.Pacing}
		}
	}
	p.write(rt, "commit", func(ctx context.Context, s collect.Store, l collect.Lease) error { return s.Commit(ctx, l, c) })
}

// drop gives gaps of the connection up, some by their reason.
func (p *pair) drop(rt *rapid.T) {
	f := collect.GapFilter{Connection: p.connection, Reason: rapid.SampledFrom([]reason.Reason{reason.None, reason.ServerError}).Draw(rt, "reason")}
	act := func(s collect.Store) int64 { return must(s.Act(rt.Context(), collect.GapDrop, f, nil))(rt) }
	equal(rt, "dropped", act(p.memory), act(p.store))
}

func drawEvents(rt *rapid.T) []event.Event {
	counts := rapid.SliceOfN(rapid.Int64Range(1, 9), 0, 2).Draw(rt, "events")
	list := make([]event.Event, len(counts))
	for i, n := range counts {
		list[i] = event.Event{Type: event.Deferral, Count: n}
	}
	return list
}

// view is all that a store shows of a connection.
type view struct {
	State  collect.State
	Status collect.ConnectionStatus
	Known  map[string]collect.KnownItem
	Owed   []string
	Gaps   []collect.Gap
	Runs   []collect.Run
	Events map[string][]event.Event
}

func (p *pair) view(rt *rapid.T, s collect.Store) view {
	ctx := rt.Context()
	v := view{
		State:  must(s.Load(ctx, p.connection))(rt),
		Known:  must(s.Known(ctx, p.connection, "x", keys))(rt),
		Owed:   must(s.Owed(ctx, p.connection, "x", 0))(rt),
		Gaps:   must(s.Gaps(ctx, collect.GapFilter{Connection: p.connection}))(rt),
		Runs:   must(s.Runs(ctx, p.connection, 0))(rt),
		Events: map[string][]event.Event{},
	}
	for i := range v.Gaps {
		v.Gaps[i].ID = 0 // the store has gaps of other connections too
	}
	for _, r := range v.Runs {
		v.Events[r.ID] = must(s.Events(ctx, r.ID))(rt)
	}
	all := must(s.Connections(ctx))(rt)
	if i := slices.IndexFunc(all, func(c collect.ConnectionStatus) bool { return c.Name == p.connection }); i >= 0 {
		v.Status = all[i]
	}
	return v
}

// check compares all that both show.
func (p *pair) check(rt *rapid.T) { equal(rt, "shown", p.view(rt, p.memory), p.view(rt, p.store)) }
