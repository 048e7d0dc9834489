package bulk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/ledger"
	"github.com/headway-go/headway/reason"
)

// session is one run of a load. Its fields belong to the goroutine of run, except those
// that the reader and the senders use.
type session struct {
	o       Options
	source  Source
	target  Target
	traits  Traits
	journal *journal.Journal
	state   journal.State // at the start of the run; not changed
	origin  time.Time
	core    *dispatch.Core

	account  account
	decision dispatch.Decision // the current wait
	sent     atomic.Int64      // batches sent without a response yet

	sending  context.Context
	gates    gates
	awaiting int64           // batches that wait for a permit
	permits  context.Context // ends the waits for permits
	grants   chan grant
	items    chan item
	results  chan result
	quit     chan struct{} // closed at the end
	commits  *committer

	rows      map[int64]Row       // rows without a fate
	flying    map[int64]*shipment // by the core's number
	open      map[int64]journaled // batches in doubt that will be sent again, by first row
	gathering []*gathering        // batches in doubt from an earlier run
	lastBatch int64
	taken     int64 // rows read
	offset    int64 // of the last row read
	ended     bool  // no more rows come
	waiting   reason.Reason
	cause     error // the last error of the target
	err       error // an error of this process, see fail
}

// item is a row or an error from the reader.
type item struct {
	row Row
	err error
}

// result is a batch's outcome from its sender.
type result struct {
	id      int64
	outcome Outcome
}

// shipment is a batch in flight.
type shipment struct {
	batch Batch
	journaled
	launched atomic.Bool // it is in the journal and was sent
}

// journaled is a batch in the journal; Number is 0 if it is not there.
type journaled struct {
	ledger.Batch
	// doubt reports that an earlier attempt may have written the batch.
	doubt bool
}

// gathering is a batch of an earlier run whose rows are being read again.
type gathering struct {
	ledger.Batch
	want int64
	rows []Row
}

func newSession(src Source, target Target, traits Traits, o Options, j *journal.Journal, state journal.State) *session {
	s := &session{
		o: o, source: src, target: target, traits: traits, journal: j, state: state, origin: time.Now(),
		items: make(chan item, 64), results: make(chan result), grants: make(chan grant), quit: make(chan struct{}),
		rows: map[int64]Row{}, flying: map[int64]*shipment{}, open: map[int64]journaled{}, lastBatch: state.LastBatch,
	}
	s.core = dispatch.New(&s.o.Params, len(traits.Identities), 0)
	for _, b := range state.Open {
		s.gathering = append(s.gathering, &gathering{Batch: b, want: ledger.Count(b.Rows)})
	}
	return s
}

func (s *session) now() time.Duration { return time.Since(s.origin) }

// fail records an error of this process and stops the load.
func (s *session) fail(why reason.Reason, err error) {
	if s.err == nil {
		s.err = fmt.Errorf("bulk: %w", err)
	}
	s.core.Halt(dispatch.Stop{Reason: why})
}

// read is the goroutine that reads the source. It skips settled rows. If the source blocks,
// the goroutine may outlive the load.
func (s *session) read() {
	for number := int64(0); ; number++ {
		row, err := s.source.Next()
		row.Number = number
		if _, malformed := errors.AsType[*MalformedError](err); (err == nil || malformed) && s.state.Settled.Has(number) {
			continue
		}
		select {
		case s.items <- item{row, err}:
		case <-s.quit:
			return
		}
		if _, malformed := errors.AsType[*MalformedError](err); err != nil && !malformed {
			return
		}
	}
}

// take handles an item of the reader.
func (s *session) take(it item) {
	for {
		s.taken, s.offset = max(s.taken, it.row.Number+1), max(s.offset, it.row.Offset)
		s.takeOne(it)
		if s.ended || s.core.Full() {
			return
		}
		select {
		case it = <-s.items:
		default:
			return
		}
	}
}

func (s *session) takeOne(it item) {
	bad, malformed := errors.AsType[*MalformedError](it.err)
	switch {
	case it.err == nil:
		if !s.gather(it.row) {
			s.rows[it.row.Number] = it.row
			s.core.Offer(s.now(), rowOf(it.row))
		}
	case malformed && s.o.StopOnMalformed:
		s.fail(reason.ClientError, bad)
	case malformed:
		s.core.Reject(1)
		s.commits.add(journal.Entry{
			Rejected: []ledger.Span{{First: it.row.Number, Last: it.row.Number}},
			Rejects: appendReject(nil, Reject{
				Text: string(bad.Text), Number: it.row.Number, Line: bad.Line,
				Error: Problem{Code: "malformed", Message: bad.Err.Error()},
			}),
		}, nil)
	case errors.Is(it.err, io.EOF):
		for _, g := range s.gathering { // the input has changed, so these batches cannot be completed
			s.doubt(g, "it was being sent when the load was killed, and other rows of its batch cannot be read any more")
		}
		s.gathering = nil
		s.ended, s.taken = true, it.row.Number
		s.core.End()
		s.commits.add(journal.Entry{End: true, Rows: s.taken}, nil)
	default:
		// The rows before the error are still sent. The error is returned at the end.
		s.ended, s.taken = true, it.row.Number
		s.err = fmt.Errorf("bulk: the input ends after row %d: %w", it.row.Number, it.err)
		s.core.End()
	}
}

// gather handles a row of a batch that an earlier run left in doubt. Once all rows of the
// batch are read, they are sent again together if the target recognizes the batch's key;
// otherwise they are uncertain.
func (s *session) gather(row Row) bool {
	i := slices.IndexFunc(s.gathering, func(g *gathering) bool {
		return slices.ContainsFunc(g.Rows, func(a ledger.Span) bool { return a.First <= row.Number && row.Number <= a.Last })
	})
	if i < 0 {
		return false
	}
	g := s.gathering[i]
	g.rows = append(g.rows, row)
	if int64(len(g.rows)) < g.want {
		return true
	}
	s.gathering = slices.Delete(s.gathering, i, i+1)
	if s.traits.Resend == dispatch.ResendNothing {
		s.doubt(g, "it was being sent when the load was killed")
		return true
	}
	rows := make([]dispatch.Row, len(g.rows))
	for i, r := range g.rows {
		s.rows[r.Number] = r
		rows[i] = rowOf(r)
	}
	s.open[rows[0].Number] = journaled{g.Batch, true}
	s.core.Resume(s.now(), rows)
	return true
}

// doubt gives up a batch of an earlier run: the rows that were read are uncertain.
func (s *session) doubt(g *gathering, why string) {
	e := journal.Entry{Batch: g.Number}
	for _, r := range g.rows {
		e.Uncertain = ledger.Append(e.Uncertain, r.Number)
		e.Doubts = appendReject(e.Doubts, Reject{Row: r.Data, Number: r.Number, Line: r.Line, Error: Problem{Code: "uncertain", Message: why}})
	}
	s.commits.add(e, nil)
}

// overhead is the memory that a row needs in addition to its bytes.
const overhead = 160

func rowOf(r Row) dispatch.Row { return dispatch.Row{Number: r.Number, Bytes: len(r.Data) + overhead} }

// send sends a batch; if batches are paced, once it has a permit.
func (s *session) send(b dispatch.Batch) {
	f := &shipment{batch: Batch{Rows: make([]Row, len(b.Rows)), Attempt: b.Attempt}}
	for i, r := range b.Rows {
		f.batch.Rows[i] = s.rows[r.Number]
		f.Rows = ledger.Append(f.Rows, r.Number)
	}
	f.batch.Key = key(s.state.Header.Load, f.Rows)
	s.flying[b.ID] = f
	if s.gates != nil {
		s.await(b)
		return
	}
	s.record(b, headway.Permit{})
}

// record passes a batch to a goroutine that sends it: at once, or after the journal has
// recorded it as in flight.
func (s *session) record(b dispatch.Batch, permit headway.Permit) {
	f := s.flying[b.ID]
	launch := func() {
		f.launched.Store(true)
		s.sent.Add(1)
		go func() {
			o := s.target.Send(s.sending, b.Identity, f.batch)
			permit.Settle(headway.Outcome{Class: o.Class, RetryAfter: o.RetryAfter})
			s.results <- result{b.ID, o}
		}()
	}
	if s.traits.Resend == dispatch.ResendAny {
		launch()
		return
	}
	if known, ok := s.open[b.Rows[0].Number]; ok && slices.Equal(known.Rows, f.Rows) {
		delete(s.open, b.Rows[0].Number)
		f.journaled = known
		launch()
		return
	}
	s.lastBatch++
	f.Number = s.lastBatch
	s.commits.add(journal.Entry{Batch: f.Number, Sent: f.Rows}, func(err error) {
		if err == nil {
			launch()
			return
		}
		permit.Cancel()
		go func() { // it was not sent
			s.results <- result{b.ID, Outcome{Outcome: dispatch.Outcome{Class: reason.Unknown, Reason: reason.Internal}}}
		}()
	})
}

// key returns the idempotency key of a batch, which is the same for the same rows of a load.
func key(load string, spans []ledger.Span) string {
	sum := sha256.Sum256(fmt.Append(nil, load, spans))
	return hex.EncodeToString(sum[:16])
}

// settle handles the result of a sender.
func (s *session) settle(r result) {
	f := s.flying[r.id]
	delete(s.flying, r.id)
	if f.launched.Load() {
		s.sent.Add(-1)
	}
	if r.outcome.Err != nil {
		s.cause = r.outcome.Err
	}
	st, _ := s.core.Settle(s.now(), r.id, r.outcome.Outcome)
	e := journal.Entry{Batch: f.Number}
	settled := false
	for i, fate := range st.Fates {
		row := f.batch.Rows[i]
		line := Reject{Row: row.Data, Number: row.Number, Line: row.Line, Error: r.outcome.problem(i)}
		switch fate {
		case dispatch.Again:
			continue
		case dispatch.Acknowledged:
			e.Acknowledged = ledger.Append(e.Acknowledged, row.Number)
		case dispatch.Rejected:
			e.Rejected = ledger.Append(e.Rejected, row.Number)
			e.Rejects = appendReject(e.Rejects, line)
		case dispatch.Uncertain:
			e.Uncertain = ledger.Append(e.Uncertain, row.Number)
			e.Doubts = appendReject(e.Doubts, line)
		case dispatch.Owed:
		}
		settled = settled || fate != dispatch.Owed
		delete(s.rows, row.Number)
	}
	switch {
	case f.Number != 0 && !settled && (r.outcome.Doubt || f.doubt && !r.outcome.divides()):
		// The server may recognize the batch by its key, so it must be sent again with the
		// same rows and stays open in the journal.
		f.doubt = true
		s.open[f.batch.Rows[0].Number] = f.journaled
	case settled || f.Number != 0:
		s.commits.add(e, nil)
	}
}

// standstill returns what the load waits for now.
func (s *session) standstill() standstill {
	sent := s.sent.Load()
	return standstill{
		Decision: s.decision, sent: sent, unwritten: int64(len(s.flying)) - sent - s.awaiting, awaiting: s.awaiting,
		held: s.core.Bound(), read: s.ended || s.core.Full(),
	}
}

// woke accounts for the wait that just ended.
func (s *session) woke() { s.account.to(s.now(), s.standstill().bound()) }

// progress calls OnProgress.
func (s *session) progress() {
	if s.o.OnProgress != nil {
		s.o.OnProgress(s.standing(s.journal.State()))
	}
}

func (s *session) standing(state journal.State) Progress {
	p := Progress{
		Totals: totals(state, s.taken), InFlight: s.core.InFlight(), BatchRows: s.core.BatchRows(),
		Counts: s.core.Counts(), Elapsed: s.now(), Waiting: s.waiting, Offset: s.offset,
	}
	p.BoundBy = s.account.bounds(p.Elapsed, s.standstill().bound())
	if seconds := p.Elapsed.Seconds(); seconds > 0 {
		p.RowsPerSecond = float64(state.Counts.Acknowledged-s.state.Counts.Acknowledged) / seconds
	}
	for i, id := range s.core.Identities(s.now()) {
		p.Identities = append(p.Identities, IdentityProgress{Name: s.traits.Identities[i], Identity: id})
	}
	return p
}
