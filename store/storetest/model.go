package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// model is a connection in memory, simple enough to be right by inspection.
type model struct {
	store      collect.Store
	connection string
	at         time.Time

	leases []collect.Lease // all that were ever given, the newest last
	free   bool            // the newest was given back
	runs   []collect.Run   // oldest first
	lanes  map[string]collect.Lane
	known  map[string]collect.KnownItem
	gaps   map[string]collect.Gap
	sink   json.RawMessage
	shape  *collect.StreamShape // of stream x
	pacing *collect.Pacing
	events map[string][]event.Event
}

// keys are few, so that sequences meet the same ones again.
var keys = []string{"a", "b", "c", "d"}

// agreesWithModel runs random sequences of calls, each on a connection of its
// own, and compares all that the store shows now and then and at the end.
func agreesWithModel(t *testing.T, s collect.Store) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := &model{store: s, connection: fmt.Sprintf("c%d", n), at: now().Add(-24 * time.Hour), free: true, events: map[string][]event.Event{}}
		m.clear()
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": m.acquire,
			"commit":  m.commit,
			"renew":   m.renew,
			"finish":  m.finish,
			"forget":  m.forget,
			"drop":    m.drop,
			"check":   m.check,
		})
		m.check(rt)
	})
}

func (m *model) clear() {
	m.lanes, m.known, m.gaps = map[string]collect.Lane{}, map[string]collect.KnownItem{}, map[string]collect.Gap{}
	m.sink, m.pacing, m.shape = nil, nil, nil
}

// lease draws one that was given at some time, mostly the newest, and tells
// whether it may write.
func (m *model) lease(rt *rapid.T) (l collect.Lease, current bool) {
	if len(m.leases) == 0 {
		rt.Skip("no lease was given yet")
	}
	i := len(m.leases) - 1
	if rapid.IntRange(0, 3).Draw(rt, "stale") == 0 {
		i = rapid.IntRange(0, i).Draw(rt, "lease")
	}
	return m.leases[i], i == len(m.leases)-1 && !m.free
}

// wrote checks a write's error and tells whether the model follows.
func wrote(rt *rapid.T, err error, current bool) bool {
	rt.Helper()
	if (err == nil) != current {
		rt.Fatalf("a write with a lease that is current=%t gave %v", current, err)
	}
	return current
}

func (m *model) acquire(rt *rapid.T) {
	run := fmt.Sprintf("%s-r%d", m.connection, len(m.runs))
	expired := rapid.Bool().Draw(rt, "expired")
	if expired {
		m.at = m.at.Add(time.Minute)
	}
	l, err := m.store.Acquire(rt.Context(), collect.LeaseRequest{Connection: m.connection, Run: run, Holder: "h", Now: m.at, TTL: time.Minute})
	if won := m.free || expired; (err == nil) != won {
		rt.Fatalf("acquire with free=%t expired=%t gave %v", m.free, expired, err)
	} else if !won {
		return
	}
	if len(m.runs) > 0 {
		if last := &m.runs[len(m.runs)-1]; last.State == collect.RunRunning {
			last.State = collect.RunAbandoned
		}
	}
	m.unlease()
	m.leases, m.free = append(m.leases, l), false
	m.runs = append(m.runs, collect.Run{ID: run, State: collect.RunRunning})
}

// unlease puts back what a holder was served and did not finish.
func (m *model) unlease() {
	for k, g := range m.gaps {
		if g.Status == collect.GapLeased {
			g.Status = collect.GapPending
			m.gaps[k] = g
		}
	}
}

func (m *model) renew(rt *rapid.T) {
	l, current := m.lease(rt)
	wrote(rt, m.store.Renew(rt.Context(), l, m.at, time.Minute), current)
}

func (m *model) forget(rt *rapid.T) {
	l, current := m.lease(rt)
	if wrote(rt, m.store.Forget(rt.Context(), l), current) {
		m.clear()
	}
}

func (m *model) finish(rt *rapid.T) {
	l, current := m.lease(rt)
	end := collect.RunEnd{
		At: m.at, State: rapid.SampledFrom([]collect.RunState{collect.RunDrained, collect.RunIncomplete, collect.RunDeferred, collect.RunFailed}).Draw(rt, "state"),
		Events: drawEvents(rt),
	}
	if wrote(rt, m.store.Finish(rt.Context(), l, end), current) {
		m.free = true
		m.unlease()
		m.runs[len(m.runs)-1].State, m.runs[len(m.runs)-1].Progress = end.State, end.Progress
		m.append(l, end.Events)
	}
}

func (m *model) commit(rt *rapid.T) {
	l, current := m.lease(rt)
	c := collect.Commit{At: m.at, Stream: "x", Progress: collect.Progress{Pages: rapid.Int64Range(0, 99).Draw(rt, "pages")}, Events: drawEvents(rt)}
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
	}
	if wrote(rt, m.store.Commit(rt.Context(), l, c), current) {
		m.follow(l, c)
	}
}

// follow is what a commit means.
func (m *model) follow(l collect.Lease, c collect.Commit) {
	for _, r := range c.Reshaped {
		m.reshape(r)
	}
	if c.Lane != nil {
		m.lanes[c.Lane.Stream] = *c.Lane
	}
	for _, it := range c.Items {
		m.known[it.Key] = it
	}
	for _, k := range c.Recovered {
		if g, ok := m.gaps[k.Key]; ok {
			g.Status = collect.GapRecovered
			m.gaps[k.Key] = g
		}
	}
	for _, g := range c.Opened {
		if old, ok := m.gaps[g.Key]; ok && old.Status != collect.GapRecovered {
			g.Attempts += old.Attempts
		}
		g.Attempts = max(0, g.Attempts)
		if g.Status == "" {
			g.Status = collect.GapPending
		}
		m.gaps[g.Key] = g
	}
	if c.Sink != nil {
		m.sink = c.Sink
	}
	if c.Pacing != nil {
		m.pacing = c.Pacing
	}
	m.runs[len(m.runs)-1].Progress = c.Progress
	m.append(l, c.Events)
}

// reshape is what another shape of stream x means. Its gaps have another parent.
func (m *model) reshape(r collect.Reshaped) {
	m.shape = &r.Shape
	for k, it := range m.known {
		if r.ForgetItems {
			delete(m.known, k)
			continue
		}
		if r.ForgetFingerprints {
			it.Fingerprint = ""
		}
		if r.ForgetChildren {
			it.Children = nil
		}
		it.Owed = it.Owed || r.OweDetails
		m.known[k] = it
	}
}

// drop gives gaps of the connection up, some by their status.
func (m *model) drop(rt *rapid.T) {
	why := rapid.SampledFrom([]reason.Reason{reason.None, reason.ServerError}).Draw(rt, "reason")
	n := must(m.store.Act(rt.Context(), collect.GapDrop, collect.GapFilter{Connection: m.connection, Reason: why}, nil))(rt)
	for k, g := range m.gaps {
		if g.Status != collect.GapRecovered && (why == reason.None || g.Reason == why) {
			delete(m.gaps, k)
			n--
		}
	}
	if n != 0 {
		rt.Fatalf("%d gaps more were dropped than are gone", n)
	}
}

func (m *model) append(l collect.Lease, events []event.Event) {
	for _, e := range events {
		e.Seq = int64(len(m.events[l.Run]) + 1)
		m.events[l.Run] = append(m.events[l.Run], e)
	}
}

func drawEvents(rt *rapid.T) []event.Event {
	counts := rapid.SliceOfN(rapid.Int64Range(1, 9), 0, 2).Draw(rt, "events")
	list := make([]event.Event, len(counts))
	for i, n := range counts {
		list[i] = event.Event{Type: event.Deferral, Count: n}
	}
	return list
}

// check compares what the store shows with the model.
func (m *model) check(rt *rapid.T) {
	ctx := rt.Context()
	equal := func(what string, want, got any) {
		if d := diff(want, got); d != "" {
			rt.Fatalf("%s (-want +got):\n%s", what, d)
		}
	}
	state := must(m.store.Load(ctx, m.connection))(rt)
	equal("sink", m.sink, state.Sink)
	equal("pacing", m.pacing, state.Pacing)
	for _, c := range must(m.store.Connections(ctx))(rt) {
		if c.Name != m.connection {
			continue
		}
		var shape *collect.StreamShape
		if len(c.Shapes) > 0 {
			shape = &c.Shapes[0]
		}
		equal("shape", m.shape, shape)
	}
	lanes := map[string]collect.Lane{}
	for _, l := range state.Lanes {
		lanes[l.Stream] = l
	}
	equal("lanes", m.lanes, lanes)
	equal("known", m.known, must(m.store.Known(ctx, m.connection, "x", keys))(rt))

	var owed []string
	for _, k := range keys {
		if m.known[k].Owed {
			owed = append(owed, k)
		}
	}
	equal("owed", owed, must(m.store.Owed(ctx, m.connection, "x", 0))(rt))

	gaps := map[string]collect.Gap{}
	for _, g := range must(m.store.Gaps(ctx, collect.GapFilter{Connection: m.connection}))(rt) {
		gaps[g.Key] = collect.Gap{Status: g.Status, Attempts: g.Attempts, Reason: g.Reason}
	}
	want := map[string]collect.Gap{}
	for k, g := range m.gaps {
		want[k] = collect.Gap{Status: g.Status, Attempts: g.Attempts, Reason: g.Reason}
	}
	equal("gaps", want, gaps)

	var shown []collect.Run
	for _, r := range slices.Backward(must(m.store.Runs(ctx, m.connection, 0))(rt)) {
		shown = append(shown, collect.Run{ID: r.ID, State: r.State, Progress: r.Progress})
		equal("events", m.events[r.ID], must(m.store.Events(ctx, r.ID))(rt))
	}
	wantRuns := slices.Clone(m.runs)
	for i, r := range wantRuns {
		if r.State == collect.RunRunning {
			wantRuns[i].State = collect.RunAbandoned // its lease is of yesterday
		}
	}
	equal("runs", wantRuns, shown)
}
