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

// Summary is the result of a run.
type Summary struct {
	Run
	// Streams are the streams to which the run was restricted; nil means all. The
	// counts below are those of these streams.
	Streams []string `json:"streams,omitempty"`
	// Lane is the lane to which the run was restricted; empty means both.
	Lane LaneKind `json:"lane,omitempty"`
	// Owed counts the items whose details are owed after the run, by reason.
	Owed map[string]int64 `json:"owed"`
	// More reports that pages are left, so that the remaining work is unknown.
	More bool `json:"more"`
	// Quarantined counts the gaps in quarantine, about which an operator has to decide.
	Quarantined int64 `json:"quarantined"`
	// Orphaned counts, by stream, the quarantined gaps that no stream of the connection
	// can fetch any more.
	Orphaned map[string]int64 `json:"orphaned,omitempty"`
	// Sink lists what changed in the sink since the last run.
	Sink []Change `json:"sink,omitempty"`
	// Rate is the rate at the end of the run; nil means unknown.
	Rate *event.Rate `json:"rate"`
	// Limits are the known limits at the end of the run.
	Limits []event.Limit `json:"limits"`
	// Cooldown is the source-pressure cooldown after the run.
	Cooldown Cooldown `json:"pressure"`
	// Warnings are signs that the configuration does not match the provider's responses.
	Warnings []connector.Warning `json:"warnings,omitempty"`
	// WarmStart reports whether the run started at a stored rate.
	WarmStart bool `json:"warm_start"`
}

// finish stores how the run ended. A run that lost its lease stores nothing, since the
// connection belongs to another run.
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
	var missing int64 // quarantined gaps of the whole connection
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
		s.State, s.Reason, s.RetryAt = RunDeferred, next.Reason, nextRun(due)
	case s.Quarantined > 0:
		s.State, s.Reason = RunIncomplete, reason.Quarantined
	}
	s.Cooldown = r.cooldown
	if r.o.Streams == nil || end != nil || len(owed) > 0 { // some streams having drained must not end the cooldown
		s.Cooldown = r.cooldown.after(s.Reason, r.progressed(), s.Ended)
	}
	s.Cooldown.NeedsAttention = s.Cooldown.NeedsAttention || missing > 0
	if s.State == RunDeferred && s.Cooldown.holds(s.Ended) && s.RetryAt.Before(s.Cooldown.Until) && reason.KindPressure == s.Reason.Kind() {
		s.RetryAt = s.Cooldown.Until
	}
	r.live.enter(stage{Phase: PhaseDone})
	if s.Rate != nil {
		// The final rate, even if it never changed.
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

// progressed reports whether the run made progress: details if any stream has them, since
// walking a list again is no progress, otherwise records.
func (r *execution) progressed() bool {
	p := r.live.counted()
	for _, s := range r.chosen() {
		if s.DetailStream != "" {
			return p.Details+p.GapsRecovered > 0
		}
	}
	return p.Records > 0
}

// nextRun returns when the next run should start, given the times at which gaps are due:
// at the first of them or up to a minute later if more are due by then. Each run walks
// the lists again, so one run for several gaps is cheaper.
func nextRun(due []time.Time) (at time.Time) {
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

// owed counts the owed items by reason. It also returns the gap that is due first, and
// when each gap is due.
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
				continue // an empty backlog, or a gap of another stream
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

// quarantined returns the number of terminal gaps of the run's streams, and of the whole
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

// redactedError replaces the text of an error that may quote what the provider sent, such
// as a header or a line of a body, which must not go into a log, event or store. It wraps
// the original error.
type redactedError struct {
	what  string
	cause error
}

func (w *redactedError) Error() string { return w.what }
func (w *redactedError) Unwrap() error { return w.cause }

// safeErrors are errors whose text, including what net/http adds to it, holds nothing of
// a response.
var safeErrors = []error{
	errRedirect, errRedirectLoop, transport.ErrTooLarge, transport.ErrResent,
	context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	gzip.ErrHeader, gzip.ErrChecksum,
}

// safePrefixes are prefixes of error texts of net/http that hold nothing of a response.
var safePrefixes = []string{
	"net/http: server response headers exceeded ",
	"http: server closed idle connection",
	"http2: timeout awaiting response headers",
	"stream error: ",
}

// redact returns err in a form that is safe to print. net/http may quote what it could not
// parse, so the text of an error is kept only if it is known to quote nothing.
func redact(err error) error {
	if transport.IsWrongScheme(err) {
		what := errSpeaksTLS
		if errors.Is(err, http.ErrSchemeMismatch) {
			what = errSpeaksPlain
		}
		return &redactedError{what: what.Error(), cause: err}
	}
	for _, e := range safeErrors {
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
	for _, prefix := range safePrefixes {
		if strings.HasPrefix(text, prefix) {
			return err
		}
	}
	what := "invalid HTTP response; details are left out, since they may quote what the provider sent"
	if strings.Contains(text, "http2: server sent GOAWAY") {
		what = "the provider ended the connection before it had answered (GOAWAY)"
	}
	return &redactedError{what: what, cause: err}
}
