package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/reason"
)

// The maximum size of a slice of a replay.
const (
	replayRecords = 1000
	replayBytes   = 8 << 20
)

// ReplayOptions are the options of [RunReplay]. All fields but From, Holder, LeaseTTL,
// Stop and OnProgress are required.
type ReplayOptions struct {
	Connection string
	Connector  connector.Connector
	Store      Store
	// Sink is the sink to copy to: the connection's current one.
	Sink Sink
	// From is the sink to copy from. Default nil: the sink that the connection had
	// before.
	From *Location
	// Open opens the records of the sink from. former are the connection's sinks with
	// their positions. Open returns [ErrNotKept] if such a sink keeps no records.
	Open func(ctx context.Context, from Location, former []FormerSink, streams []StreamInfo) (Kept, error)
	// Holder names this process for people. Default "this process".
	Holder string
	// LeaseTTL is how long the lease outlives its last renewal. Default 30 s.
	LeaseTTL time.Duration
	// Stop ends the replay when closed, after the slice under way is committed.
	Stop <-chan struct{}
	// OnProgress is called after each slice.
	OnProgress func(ReplaySummary)
}

// ReplaySummary is the progress or the result of a replay.
type ReplaySummary struct {
	Run      string    `json:"run"`
	State    RunState  `json:"state"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
	Replay   Replay    `json:"replay"`
	Total    int64     `json:"total"`
	LeftOut  []string  `json:"left_out,omitempty"`
	Resumed  bool      `json:"resumed"`
	Error    string    `json:"error,omitempty"`
	Repeated bool      `json:"repeated,omitempty"`
}

// replaying is a running replay.
type replaying struct {
	o       ReplayOptions
	lease   Lease
	at      Replay
	others  []Replay
	summary ReplaySummary
	streams []StreamInfo
}

// RunReplay copies the records of a former sink into the connection's sink. It fetches
// nothing and moves no cursor. Each slice is committed with its position, so that a
// replay that was stopped or killed can be resumed. RunReplay returns nil if the replay
// is done or was stopped by Stop, a *HeldError if another run holds the connection, and
// a *ReplayError if the replay is not possible.
func RunReplay(ctx context.Context, o ReplayOptions) (ReplaySummary, error) {
	id, err := newRunID(time.Now())
	if err != nil {
		return ReplaySummary{}, err
	}
	o.LeaseTTL, o.Holder = cmp.Or(o.LeaseTTL, 30*time.Second), cmp.Or(o.Holder, "this process")
	r := &replaying{o: o, streams: streamsOf(o.Connector), summary: ReplaySummary{Run: id, State: RunRunning, Started: time.Now().Round(0)}}
	state, err := o.Store.Load(ctx, o.Connection)
	if err != nil {
		return ReplaySummary{}, err
	}
	// Check before taking the lease, so that an impossible replay has no run record.
	if r.at, _, err = planReplay(ctx, state, o.From, o.Sink); err != nil {
		return ReplaySummary{}, err
	}
	if r.at.State == ReplayDone {
		r.summary.State, r.summary.Replay, r.summary.Repeated = RunDrained, r.at.shown(), true
		r.summary.Ended = r.summary.Started
		return r.summary, nil
	}
	if r.lease, err = o.Store.Acquire(ctx, LeaseRequest{
		Connection: o.Connection, Run: id, Kind: RunReplays, Holder: o.Holder, Now: r.summary.Started, TTL: o.LeaseTTL,
	}); err != nil {
		return ReplaySummary{}, err
	}
	fault.Point(fault.LeaseAcquired)
	within, lost := context.WithCancelCause(ctx)
	beat := heartbeat(within, o.Store, r.lease, o.LeaseTTL, lost)
	done, err := r.copy(within)
	err = errors.Join(err, o.Sink.Close())
	if errors.Is(context.Cause(within), ErrLeaseLost) {
		err = ErrLeaseLost
	}
	lost(nil)
	beat.Wait()
	return r.finish(ctx, done, err)
}

// copy opens both sinks and copies until nothing is left or Stop is closed.
func (r *replaying) copy(ctx context.Context) (done bool, err error) {
	state, err := r.o.Store.Load(ctx, r.o.Connection)
	if err != nil {
		return false, err
	}
	var position []byte
	if r.at, position, err = planReplay(ctx, state, r.o.From, r.o.Sink); err != nil || r.at.State == ReplayDone {
		return err == nil, err
	}
	r.summary.Resumed = r.at.Stream != "" || r.at.Records > 0
	r.at.Started = cmp.Or(r.at.Started, r.summary.Started)
	r.others = slices.DeleteFunc(slices.Clone(state.Replays), func(o Replay) bool { return o.From == r.at.From && o.To == r.at.To })
	kept, err := r.o.Open(ctx, r.at.From, formerly(state), r.streams)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	there, err := kept.Streams(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range there {
		i := slices.IndexFunc(r.streams, func(s StreamInfo) bool { return s.Name == name })
		if i < 0 {
			r.summary.LeftOut = append(r.summary.LeftOut, name)
			continue
		}
		n, err := kept.Count(ctx, r.streams[i])
		if err != nil {
			return false, err
		}
		r.summary.Total += n
	}
	if err := r.o.Sink.Open(ctx, position, r.streams); err != nil {
		return false, err
	}
	fault.Point(fault.SinkOpened)
	// Commit the sink's initial position, as in a run.
	if err := r.commit(ctx); err != nil {
		return false, err
	}
	for i, s := range r.streams {
		if i < slices.IndexFunc(r.streams, func(s StreamInfo) bool { return s.Name == r.at.Stream }) {
			continue // copied before
		}
		if done, err := r.stream(ctx, kept, s, slices.Contains(there, s.Name)); err != nil || !done {
			return false, err
		}
	}
	r.at.State, r.at.Ended = ReplayDone, time.Now().Round(0)
	return true, r.commit(ctx)
}

// stream copies one stream; done is false when Stop was closed.
func (r *replaying) stream(ctx context.Context, kept Kept, s StreamInfo, there bool) (done bool, err error) {
	if r.at.Stream != s.Name {
		r.at.Stream, r.at.After = s.Name, RecordID{}
	}
	for there {
		select {
		case <-r.o.Stop:
			return false, nil
		default:
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		records, err := kept.Read(ctx, s, r.at.After, replayRecords, replayBytes)
		if err != nil || len(records) == 0 {
			return err == nil, err
		}
		if err := r.age(ctx, s, records); err != nil {
			return false, err
		}
		if err := r.write(ctx, s, records); err != nil {
			return false, err
		}
		fault.Point(fault.SinkWritten)
		last := records[len(records)-1]
		r.at.After = RecordID{Parent: last.Parent, Key: last.Key}
		r.at.Records += int64(len(records))
		for _, k := range records {
			if !k.Deleted.IsZero() {
				r.at.Deleted++
			}
		}
		if err := r.commit(ctx); err != nil {
			return false, err
		}
		if r.o.OnProgress != nil {
			r.summary.Replay = r.at.shown()
			r.o.OnProgress(r.summary)
		}
	}
	return true, nil
}

// age marks detail records as deleted that are no longer among the known children of
// their item: the provider may have deleted them since the connection left that sink.
func (r *replaying) age(ctx context.Context, s StreamInfo, records []KeptRecord) error {
	if s.Parent == "" {
		return nil
	}
	var parents []string
	for _, k := range records {
		if len(parents) == 0 || parents[len(parents)-1] != k.Parent {
			parents = append(parents, k.Parent)
		}
	}
	known, err := r.o.Store.Known(ctx, r.o.Connection, s.Parent, parents)
	if err != nil {
		return err
	}
	now := time.Now().Round(0)
	var of children
	for i := range records {
		k := &records[i]
		it := known[k.Parent]
		if i == 0 || records[i-1].Parent != k.Parent {
			of = readChildren(it.Children)
		}
		if len(it.Children) > 0 && k.Deleted.IsZero() && !of.vague && !of.has(k.Key) {
			k.Deleted = now
		}
	}
	return nil
}

// write writes a slice to the sink. A Restorer keeps the records that it has. Other sinks
// get every record, followed by a tombstone for each deleted one.
func (r *replaying) write(ctx context.Context, s StreamInfo, records []KeptRecord) error {
	if sink, ok := r.o.Sink.(Restorer); ok {
		return sink.Restore(ctx, s.Name, records)
	}
	plain := make([]Record, len(records))
	for i, k := range records {
		plain[i] = k.Record
	}
	if err := r.o.Sink.Write(ctx, s.Name, plain); err != nil {
		return err
	}
	sink, ok := r.o.Sink.(Burier)
	if !ok {
		return nil
	}
	for _, k := range records {
		if k.Deleted.IsZero() {
			continue
		}
		if err := sink.Gone(ctx, s.Name, k.Parent, []string{k.Key}, k.Deleted); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the written records and the position durable.
func (r *replaying) commit(ctx context.Context) error {
	position, err := r.o.Sink.Sync(ctx)
	if err != nil {
		return err
	}
	fault.Point(fault.SinkSynced)
	c := Commit{
		At: time.Now().Round(0), Sink: position, SinkAt: r.at.To,
		Replays: append(slices.Clone(r.others), r.at), Progress: Progress{Records: r.at.Records},
	}
	if t, ok := r.o.Sink.(Transactional); ok {
		c.Within = t.Pending()
	}
	fault.Point(fault.SliceCommitting)
	if err := r.o.Store.Commit(ctx, r.lease, c); err != nil {
		return err
	}
	fault.Point(fault.SliceCommitted)
	if sink, ok := r.o.Sink.(Informed); ok {
		return sink.Committed(ctx, position)
	}
	return nil
}

// finish stores how the replay ended. It leaves the connection's pacing and cooldown.
func (r *replaying) finish(ctx context.Context, done bool, failure error) (ReplaySummary, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	s := &r.summary
	s.Replay, s.Ended = r.at.shown(), time.Now().Round(0)
	why := reason.Drained
	switch {
	case errors.Is(failure, context.Canceled), failure == nil && !done:
		s.State, why, failure = RunDeferred, reason.Interrupted, nil
	case failure != nil:
		s.State, why, s.Error = RunFailed, reason.Internal, failure.Error()
	default:
		s.State = RunDrained
	}
	if errors.Is(failure, ErrLeaseLost) {
		return *s, failure
	}
	state, err := r.o.Store.Load(ctx, r.o.Connection)
	if err != nil {
		return *s, errors.Join(failure, err)
	}
	fault.Point(fault.RunFinishing)
	err = r.o.Store.Finish(ctx, r.lease, RunEnd{
		At: s.Ended, State: s.State, Reason: why, Error: s.Error, Progress: Progress{Records: r.at.Records}, Cooldown: state.Cooldown,
		Events: []event.Event{
			{Type: event.RunStart, At: s.Started, Connection: r.o.Connection, Run: s.Run, Phase: string(RunReplays)},
			{Type: event.RunEnd, At: s.Ended, Connection: r.o.Connection, Run: s.Run, Reason: why},
		},
	})
	fault.Point(fault.RunFinished)
	if failure == nil && err != nil {
		return *s, fmt.Errorf("collect: ending the replay: %w", err)
	}
	return *s, failure
}
