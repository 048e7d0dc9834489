package collect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	reader "github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
)

// manyMessages are so many that they take more than one slice.
const manyMessages = 2500

// collected has one doc with many messages in a SQLite file, one of which is gone.
func collected(t *testing.T) (b *bench, from string) {
	t.Helper()
	b = newBench(t, 1)
	b.onDisk(t)
	from = filepath.Join(b.dir, "data.db")
	messages := make([]string, manyMessages+1)
	for i := range messages {
		messages[i] = fmt.Sprint(i)
	}
	b.version(0, messages...)
	b.into(t, sqlsink.For("bench", from, filepath.Join(b.dir, "state.db")))
	b.version(1, messages[:manyMessages]...)
	b.into(t, sqlsink.For("bench", from, filepath.Join(b.dir, "state.db")))
	return b, from
}

// replay copies into a sink; after each slice then is called.
func (b *bench) replay(t *testing.T, ctx context.Context, from string, into collect.Sink, stop <-chan struct{}, then func(collect.ReplaySummary)) (collect.ReplaySummary, error) {
	t.Helper()
	return collect.RunReplay(ctx, collect.ReplayOptions{
		Connection: "bench", Connector: b.o.Connector, Store: b.store, Sink: into, Stop: stop, OnProgress: then,
		Open: func(ctx context.Context, at collect.Location, former []collect.FormerSink, streams []collect.StreamInfo) (collect.Kept, error) {
			return sqlsink.OpenKept(ctx, from, "bench", at, former, streams)
		},
	})
}

// onceEach checks that each message is in the Parquet files once, and the one that
// is gone twice: as it was, and as a tombstone after it.
func onceEach(t *testing.T, dir string) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, "messages", "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	times, gone, total := map[string]int{}, "", 0
	for _, path := range parts {
		rows, err := reader.ReadFile[struct {
			Key string `parquet:"_key,optional"`
			At  string `parquet:"_headway_deleted_at,optional"`
		}](path)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for _, r := range rows {
			total++
			if r.At != "" {
				gone += r.Key
				continue
			}
			times[r.Key]++
		}
	}
	if len(times) != manyMessages+1 || total != manyMessages+2 || gone != fmt.Sprint(manyMessages) {
		t.Errorf("%d rows of %d messages, and gone is %q", total, len(times), gone)
	}
}

func TestAReplayIntoParquetGoesOnAfterCtrlC(t *testing.T) {
	b, from := collected(t)
	dir := filepath.Join(b.dir, "out")

	// The first Ctrl-C: the slice under way is committed, and no other begun.
	stop := make(chan struct{})
	slices := 0
	sum, err := b.replay(t, t.Context(), from, parquet.New(dir), stop, func(s collect.ReplaySummary) {
		if slices++; slices == 2 {
			close(stop)
		}
	})
	if err != nil || sum.State != collect.RunDeferred || slices != 2 || sum.Replay.State != collect.ReplayUnfinished || sum.Replay.Records == 0 || sum.Replay.Records > manyMessages {
		t.Fatalf("stopped after %d slices: %+v, %v", slices, sum, err)
	}
	if runs, err := b.store.Runs(t.Context(), "bench", 1); err != nil || runs[0].State != collect.RunDeferred || runs[0].Reason != reason.Interrupted || runs[0].Records != sum.Replay.Records {
		t.Errorf("on record: %+v, %v", runs, err)
	}

	// The second one ends it at once, in the middle of a slice.
	ctx, cancel := context.WithCancel(t.Context())
	second, err := b.replay(t, ctx, from, cutSink{parquet.New(dir), cancel}, nil, nil)
	if err != nil || second.State != collect.RunDeferred || second.Replay.Records != sum.Replay.Records || !second.Resumed {
		t.Fatalf("cut off: %+v, %v", second, err)
	}

	sum, err = b.replay(t, t.Context(), from, parquet.New(dir), nil, nil)
	if err != nil || sum.State != collect.RunDrained || !sum.Resumed || sum.Replay.Records != manyMessages+2 || sum.Replay.Deleted != 1 {
		t.Fatalf("to the end: %+v, %v", sum, err)
	}
	onceEach(t, dir)
	if run := b.into(t, parquet.New(dir)); run.Records != 0 {
		t.Errorf("a run afterwards wrote %d records", run.Records)
	}
	onceEach(t, dir)
}

// cutSink has the context end once a slice has been written to it.
type cutSink struct {
	*parquet.Sink
	cancel context.CancelFunc
}

func (s cutSink) Write(ctx context.Context, stream string, records []collect.Record) error {
	err := s.Sink.Write(ctx, stream, records)
	s.cancel()
	return err
}

// A replay that was stopped before its first slice leaves a sink that the next
// one begins with, and a run says what comes first.
func TestAReplayThatIsStoppedAtOnceGoesOn(t *testing.T) {
	b, from := collected(t)
	stop := make(chan struct{})
	close(stop)
	dir := filepath.Join(b.dir, "out")
	sum, err := b.replay(t, t.Context(), from, jsonl.New(dir), stop, nil)
	if err != nil || sum.State != collect.RunDeferred || sum.Replay.Records != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	b.o.Sink = jsonl.New(dir)
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context()); err == nil {
		t.Error("a run began beside a replay that is not finished")
	}
	if sum, err = b.replay(t, t.Context(), from, jsonl.New(dir), nil, nil); err != nil || sum.State != collect.RunDrained || sum.Replay.Records != manyMessages+2 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if n := len(lastLines(t, b)); n < manyMessages {
		t.Errorf("%d messages", n)
	}
}
