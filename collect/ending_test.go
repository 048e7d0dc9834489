package collect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/sink/jsonl"
)

// unclosed is a sink that cannot be closed.
type unclosed struct {
	collect.Sink
	err error
}

func (s unclosed) Close() error { return errors.Join(s.err, s.Sink.Close()) }

func TestASinkThatCannotBeClosedFailsTheRun(t *testing.T) {
	b, full := newBench(t, 3), errors.New("the disk is full")
	b.o.Sink = unclosed{jsonl.New(b.dir + "/out"), full}
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Run(t.Context()); !errors.Is(err, full) || s.State != collect.RunFailed || s.Reason != reason.Internal || !strings.Contains(s.Error, "full") {
		t.Errorf("got %s (%s), %v", s.State, s.Reason, err)
	}
}

// A provider that refuses with a 200, as the connection's rules say.
func TestARefusalInsideASuccessIsNoDetail(t *testing.T) {
	b := newBench(t, 3)
	b.o.Retry = retry.Backoff{Attempts: 1}
	b.o.Classify = func(_ int, body []byte) (reason.Class, reason.Reason, bool) {
		return reason.Rejected, reason.Forbidden, strings.Contains(string(body), "hello 1")
	}
	s, err := b.run(t)
	if err != nil || s.Details != 2 || s.GapsOpened != 1 {
		t.Fatalf("%d details, %d gaps, %v", s.Details, s.GapsOpened, err)
	}
	if gaps := b.gaps(t, collect.GapPending); len(gaps) != 1 || gaps[0].Key != "d01" || gaps[0].Reason != reason.Forbidden || gaps[0].LastError != "200 forbidden" {
		t.Errorf("gaps %+v", gaps)
	}
	if got := b.lines(t, "messages"); len(got) != 4 {
		t.Errorf("%d messages of two details", len(got))
	}
}
