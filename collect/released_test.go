package collect_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// misread is a connector whose first page holds an entry that is not an item.
type misread struct {
	connector.Connector
	pages int
}

func (m *misread) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	page, err := m.Connector.List(ctx, call, r)
	if m.pages++; m.pages == 1 {
		page.Unread = []connector.Unread{{Position: 2, ID: "0a", Problem: "it has no key"}}
	}
	return page, err
}

// A bad entry of a list that an operator releases cannot be asked for: it goes
// back into quarantine, and still says where it stood.
func TestAReleasedBadEntryIsQuarantinedAgain(t *testing.T) {
	b := newBench(t, 3)
	b.o.Connector = &misread{Connector: b.o.Connector}
	for range 2 {
		s, err := b.run(t)
		if err != nil || s.State != collect.RunIncomplete || s.Quarantined != 1 || len(s.Owed) != 0 {
			t.Fatalf("got %s, %d quarantined, owed %v, %v", s.State, s.Quarantined, s.Owed, err)
		}
		gaps := b.gaps(t, collect.GapTerminal)
		if len(gaps) != 1 || gaps[0].Reason != reason.InvalidResponse || !strings.Contains(gaps[0].LastError, "record 2: it has no key") {
			t.Fatalf("gaps %+v, want the entry with its place", gaps)
		}
		if n, err := b.store.Act(t.Context(), collect.GapRelease, collect.GapFilter{Connection: "bench"}, nil); err != nil || n != 1 {
			t.Fatalf("released %d, %v", n, err)
		}
	}
	b.complete(t)
}

// A stream that fails is on record in the phase that it failed in.
func TestAFailedStreamIsOnRecordInItsPhase(t *testing.T) {
	b := newBench(t, 3)
	b.o.Retry.Attempts = 1
	b.overrule = func(_ int, _ *http.Request, w http.ResponseWriter) bool { return fail(w, http.StatusForbidden) }
	var failed []event.Event
	b.o.OnEvent = func(e event.Event) {
		if e.Note == "stream_failed" {
			failed = append(failed, e)
		}
	}
	_, _ = b.run(t)
	if len(failed) != 1 || failed[0].Phase != string(collect.Catchup) || failed[0].Stream != "docs" || failed[0].Reason != reason.Forbidden {
		t.Errorf("events %+v, want one of the catch-up of docs", failed)
	}
}
