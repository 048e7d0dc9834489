package collect

import (
	"context"
	"time"

	"github.com/headway-go/headway/connector"
)

// gapPage is how many gaps are looked at together.
const gapPage = 100

// PhaseRecovery is the phase in which gaps are worked off.
const PhaseRecovery Phase = "recovery"

// recover tries each gap that is pending and due once. Serving a page of them
// attempts nothing; a gap is recovered only when its detail was written.
func (r *run) recover(ctx context.Context) *stop {
	streams := map[string]connector.Stream{}
	for _, s := range r.o.Connector.Streams() {
		if s.DetailStream != "" {
			streams[s.DetailStream] = s
		}
	}
	f := GapFilter{Connection: r.o.Connection, Status: GapPending, Limit: gapPage}
	for {
		gaps, err := r.o.Store.Gaps(ctx, f)
		if err != nil {
			return r.broken(ctx, err)
		}
		if len(gaps) == 0 {
			return nil
		}
		f.AfterID = gaps[len(gaps)-1].ID
		now := time.Now()
		due := map[string][]Gap{} // by parent stream
		for _, g := range gaps {
			if s, ok := streams[g.Stream]; ok && s.Name == g.Parent && !g.RetryAt.After(now) {
				due[g.Parent] = append(due[g.Parent], g)
			}
		}
		for _, s := range r.o.Connector.Streams() {
			if len(due[s.Name]) == 0 {
				continue
			}
			if stop := r.halted(ctx); stop != nil {
				return stop
			}
			r.enter(stage{Phase: PhaseRecovery, Stream: s.DetailStream})
			if stop := r.recoverPage(ctx, s, due[s.Name], len(gaps) < gapPage); stop != nil {
				return stop
			}
		}
	}
}

func (r *run) recoverPage(ctx context.Context, s connector.Stream, gaps []Gap, last bool) *stop {
	keys := make([]string, len(gaps))
	for i, g := range gaps {
		keys[i] = g.Key
	}
	known, err := r.o.Store.Known(ctx, r.o.Connection, s.Name, keys)
	if err != nil {
		return r.broken(ctx, err)
	}
	b := r.newBatch(s.Name)
	todo := make([]task, len(gaps))
	for i, g := range gaps {
		it := known[g.Key]
		it.Key = g.Key
		b.items[g.Key] = it
		todo[i] = task{
			item: connector.Item{Key: g.Key, Data: g.Locator},
			from: s.Name, to: s.DetailStream, children: readChildren(it.Children), known: true,
		}
	}
	end := r.details(ctx, b, todo, last)
	if end != nil && end.abort {
		return end.stop
	}
	// What was never sent stays as it is: being served is not an attempt.
	sent := b.Opened[:0]
	for _, g := range b.Opened {
		if g.Attempts > 0 {
			sent = append(sent, g)
		}
	}
	b.Opened, b.Progress.GapsOpened = sent, 0
	b.Progress.GapsRecovered = int64(len(b.Recovered))
	for _, g := range b.Recovered {
		b.order = append(b.order, g.Key)
	}
	if err := b.commit(ctx); err != nil {
		return r.broken(ctx, err)
	}
	if end != nil {
		return end.stop
	}
	return nil
}
