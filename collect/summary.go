package collect

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// Summary is what a run came to.
type Summary struct {
	Run
	// Streams are those that the run was bounded to; nil is all. What follows
	// counts only theirs.
	Streams []string `json:"streams,omitempty"`
	// Lane is the one that the run was bounded to; empty is both.
	Lane LaneKind `json:"lane,omitempty"`
	// Owed counts the items whose details are owed, by reason, after the run.
	Owed map[string]int64 `json:"owed"`
	// More says that pages are left to walk, so that nobody knows what they hold.
	More bool `json:"more"`
	// Quarantined counts the gaps that failed too often: an operator's to decide.
	Quarantined int64 `json:"quarantined"`
	// Orphaned counts those of them, by stream, that no stream of the connection
	// can fetch any more: an operator's to drop.
	Orphaned map[string]int64 `json:"orphaned,omitempty"`
	// Sink says what differed in the sink from the last run; empty is nothing.
	Sink []Change `json:"sink,omitempty"`
	// Rate is the pacing at the end; nil is unknown.
	Rate *event.Rate `json:"rate"`
	// Limits are what is known of limits at the end.
	Limits []event.Limit `json:"limits"`
	// Cooldown is the source-pressure cooldown from now on.
	Cooldown Cooldown `json:"pressure"`
	// Warnings are signs that a list was not read as its provider means it.
	Warnings []connector.Warning `json:"warnings,omitempty"`
	// WarmStart says whether the run began at a stored interval.
	WarmStart bool `json:"warm_start"`
}

// finish writes how the run ended. A run that lost its lease leaves no mark:
// the connection is another's.
func (r *execution) finish(ctx context.Context, end *stop) (Summary, error) {
	if err := r.o.Sink.Close(); err != nil && end == nil {
		end = &stop{why: reason.Internal, err: err}
	}
	r.warnOfDetails()
	r.mu.Lock()
	r.warnings = append(r.warnings, r.refusedKeys...)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	pacing := r.governor.Snapshot()
	s := Summary{Run: Run{
		ID: r.id, Connection: r.o.Connection, Holder: r.o.Holder,
		State: RunDrained, Reason: reason.Drained, Started: r.started.Round(0), Ended: time.Now().Round(0),
		Progress: r.live.counted(),
	}, Streams: r.o.Streams, Lane: r.o.Lane, Rate: pacing.Rate, Limits: pacing.Limits, WarmStart: r.warm, Orphaned: r.orphaned, Warnings: r.warnings, Sink: r.noticed}
	var failure error
	owed, next, due, err := r.owed(ctx)
	if err != nil && end == nil {
		end = &stop{why: reason.Internal, err: err}
	}
	s.Owed = owed
	var missing int64 // of the whole connection
	if s.Quarantined, missing, err = r.quarantined(ctx); err != nil && end == nil {
		end = &stop{why: reason.Internal, err: err}
	}
	if end != nil || r.o.Lane != "" {
		if s.More, err = r.unfinished(ctx); err != nil && (end == nil || end.err == nil) {
			end = &stop{why: reason.Internal, err: err}
		}
	}
	switch {
	case end != nil && end.err != nil:
		s.State, s.Reason, s.RetryAt, s.Error = RunFailed, end.why, end.retryAt, end.err.Error()
		failure = end.err
	case end != nil:
		s.State, s.Reason, s.RetryAt = RunDeferred, end.why, end.retryAt
		if end.cause != nil {
			s.Error = end.cause.Error()
		}
	case len(owed) > 0:
		s.State, s.Reason, s.RetryAt = RunDeferred, next.Reason, together(due)
	case s.Quarantined > 0:
		s.State, s.Reason = RunIncomplete, reason.Quarantined
	}
	s.Cooldown = r.cooldown
	if r.o.Streams == nil || end != nil || len(owed) > 0 { // that one stream drained says nothing of the others
		s.Cooldown = r.cooldown.after(s.Reason, r.progressed(), s.Ended)
	}
	s.Cooldown.NeedsAttention = s.Cooldown.NeedsAttention || missing > 0
	if s.State == RunDeferred && s.Cooldown.holds(s.Ended) && s.RetryAt.Before(s.Cooldown.Until) && reason.KindPressure == s.Reason.Kind() {
		s.RetryAt = s.Cooldown.Until
	}
	r.live.enter(stage{Phase: PhaseDone})
	if s.Rate != nil {
		// How the rate stood at the end, also where it never changed.
		r.emit(event.Event{Type: event.CollectionRate, Note: "end", Rate: s.Rate, Limits: s.Limits})
	}
	r.emit(event.Event{Type: event.RunEnd, Reason: s.Reason, Bound: boundEvent(s.BoundBy)})
	fault.Point(fault.RunFinishing)
	err = r.o.Store.Finish(ctx, r.lease, RunEnd{
		At: s.Ended, State: s.State, Reason: s.Reason, RetryAt: s.RetryAt, Error: s.Error,
		Progress: s.Progress, Events: r.drain(), Pacing: r.learned(s.Ended, true), Cooldown: s.Cooldown,
	})
	fault.Point(fault.RunFinished)
	if err != nil && failure == nil {
		s.State, s.Reason, s.Error = RunFailed, reason.Internal, err.Error()
		if errors.Is(err, ErrLeaseLost) {
			s.Reason = reason.LeaseLost
		}
		failure = err
	}
	return s, failure
}

// progressed reports whether the run got anything of what pressure holds back:
// details where there are any, since walking a list again is not progress.
func (r *execution) progressed() bool {
	p := r.live.counted()
	for _, s := range r.chosen() {
		if s.DetailStream != "" {
			return p.Details+p.GapsRecovered > 0
		}
	}
	return p.Records > 0
}

// together is when a run is to come back for gaps that are due at these instants:
// when the first is, or as much as a minute later where others are due by then. A
// run for each would walk the lists again each time.
func together(due []time.Time) (at time.Time) {
	if len(due) == 0 {
		return at
	}
	last := slices.MinFunc(due, time.Time.Compare).Add(firstTryWait)
	for _, d := range due {
		if !d.After(last) && d.After(at) {
			at = d
		}
	}
	return at
}

// owed counts what the connection owes, and tells the gap that can be tried first
// and when each can.
func (r *execution) owed(ctx context.Context) (owed map[string]int64, next Gap, due []time.Time, err error) {
	owed = map[string]int64{}
	f := GapFilter{Connection: r.o.Connection, Status: GapPending, Limit: gapPageRows}
	for {
		gaps, err := r.o.Store.Gaps(ctx, f)
		if err != nil {
			return owed, next, due, err
		}
		for _, g := range gaps {
			f.AfterID = g.ID
			n := g.owes()
			if n == 0 || !r.concerns(g) {
				continue // a walk has fetched all of it meanwhile, or another run will
			}
			owed[g.Reason.String()] += n
			due = append(due, g.RetryAt)
			if next.ID == 0 || g.RetryAt.Before(next.RetryAt) {
				next = g
			}
		}
		if len(gaps) < gapPageRows {
			return owed, next, due, nil
		}
	}
}

// quarantined counts the terminal gaps of the run's streams, and of the whole
// connection.
func (r *execution) quarantined(ctx context.Context) (of, all int64, err error) {
	was, _, err := StatusOf(ctx, r.o.Store, r.o.Connection)
	if all = was.Quarantined; r.o.Streams == nil || all == 0 || err != nil {
		return all, all, err
	}
	f := GapFilter{Connection: r.o.Connection, Status: GapTerminal, Limit: gapPageRows}
	for {
		gaps, err := r.o.Store.Gaps(ctx, f)
		if err != nil {
			return of, all, err
		}
		for _, g := range gaps {
			f.AfterID = g.ID
			if r.concerns(g) {
				of++
			}
		}
		if len(gaps) < gapPageRows {
			return of, all, nil
		}
	}
}

// withheld is an error whose own words may quote what the provider sent: a
// header, a line of a body. Those words go into no log, event or store; the
// cause stays matchable.
type withheld struct {
	what  string
	cause error
}

func (w *withheld) Error() string { return w.what }
func (w *withheld) Unwrap() error { return w.cause }

// spoken are errors whose text, and that of what net/http wraps around them,
// holds nothing of a response.
var spoken = []error{
	errRedirect, errRedirectLoop, transport.ErrTooLarge, transport.ErrResent,
	context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	gzip.ErrHeader, gzip.ErrChecksum,
}

// plain are beginnings of texts of net/http that hold nothing of a response.
var plain = []string{
	"net/http: server response headers exceeded ",
	"http: server closed idle connection",
	"http2: timeout awaiting response headers",
	"stream error: ",
}

// tellable is the error as it may be printed. net/http quotes what it could not
// parse, so an error passes only when it is known not to.
func tellable(err error) error {
	if transport.IsWrongScheme(err) {
		what := errSpeaksTLS
		if errors.Is(err, http.ErrSchemeMismatch) {
			what = errSpeaksPlain
		}
		return &withheld{what: what.Error(), cause: err}
	}
	for _, e := range spoken {
		if errors.Is(err, e) {
			return err
		}
	}
	if transport.IsTLS(err) {
		return err
	}
	_, network := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	_, system := errors.AsType[syscall.Errno](err)
	_, packed := errors.AsType[flate.CorruptInputError](err)
	if network || name || system || packed {
		return err
	}
	text := err.Error()
	for _, beginning := range plain {
		if strings.HasPrefix(text, beginning) {
			return err
		}
	}
	what := "what came was not HTTP as it should be, and is not shown: it may hold what the provider sent"
	if strings.Contains(text, "http2: server sent GOAWAY") {
		what = "the provider ended the connection before it had answered (GOAWAY)"
	}
	return &withheld{what: what, cause: err}
}
