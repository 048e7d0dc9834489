// Package storetest is the contract of [collect.Store] as tests: a store that
// passes [Run] can take the place of any other.
//
// It is for the tests of a store's own package, and for nothing else; what a
// kind of store adds, such as files and processes, that package tests itself.
// It needs no clock of its own: it reads the time once a test, since the read
// side of a store asks the clock whether a lease is alive.
//
// Stability: settling.
package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
)

// ttl is how long a lease of these tests lives: longer than any of them takes.
const ttl = time.Hour

// Run runs the contract against stores that open gives. Each call of open must
// give an empty store, and close it when its test ends.
func Run(t *testing.T, open func(t *testing.T) collect.Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(t *testing.T, s collect.Store)
	}{
		{"acquire gives the connection to one holder", acquireIsExclusive},
		{"acquire names the holder that is in the way", heldNamesHolder},
		{"acquire refuses a run id that was used", acquireRefusesUsedRun},
		{"acquire refuses what is not complete", acquireRefusesIncomplete},
		{"of concurrent acquires exactly one wins", concurrentAcquires},
		{"connections do not hold one another", connectionsAreApart},
		{"a lease that expired is taken over", takeover},
		{"a lease that expired and was not taken over may go on", lateHolder},
		{"renew extends the lease", renewExtends},
		{"a stale token can write nothing", staleToken},
		{"the token rises with each holder", tokenRises},
		{"finish records the end and frees the connection", finish},
		{"finish refuses a state that is not an end", finishRefusesRunning},

		{"a connection never seen is the zero state", zeroState},
		{"lanes keep every field", laneFields},
		{"lanes of a stream are apart", lanesAreApart},
		{"sink position and pacing stay until replaced", keptUntilReplaced},
		{"unreadable pacing and position do not block", unreadable},
		{"items are known by key and stream", knownItems},
		{"items are replaced whole", itemsReplaced},
		{"owed items are listed by key", owedItems},
		{"a batch of keys of any size is answered", knownBatches},
		{"text is kept byte for byte", oddText},
		{"a commit that fails changes nothing", commitIsAtomic},
		{"a commit whose context has ended changes nothing", canceledCommit},
		{"concurrent commits of one holder all count", concurrentCommits},

		{"a gap keeps every field", gapFields},
		{"a gap that opens again is updated", gapReopens},
		{"a recovered gap that opens again is a new debt", recoveredReopens},
		{"a gap recovered and opened in one commit is owed", recoveredAndOpened},
		{"a gap takes the status it is given", gapStatus},
		{"a backlog takes the start it is given and counts what is owed", backlogCounts},
		{"gaps are listed by id, filtered and in pages", gapListing},
		{"gaps are served in fair order, each to one", serveOrder},
		{"what is served is bounded", serveBounds},
		{"operators retry, quarantine and release gaps", operatorActs},

		{"shapes and the sink's kind stay until replaced", shapesAreKept},
		{"a sink that is replaced keeps its position aside", sinksReplaced},
		{"replays are kept, and are not collections", replaysKept},
		{"a new shape changes what is known of its stream's items", reshapedItems},
		{"gaps are dropped by id and by stream", gapsDropped},

		{"runs are listed newest first", runListing},
		{"a run without a live lease is shown as abandoned", abandonedRuns},
		{"events come in order with numbers", eventOrder},
		{"connections are summed up", connectionStatus},
		{"forget leaves runs, events and the lease", forget},

		{"any sequence of calls agrees with a model", agreesWithModel},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// now is the time of a test, without the monotonic part that no store keeps.
func now() time.Time { return time.Now().UTC().Round(0) }

// acquire takes a connection for a run at an instant, or ends the test.
func acquire(t *testing.T, s collect.Store, connection, run string, at time.Time) collect.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), request(connection, run, at))
	if err != nil {
		t.Fatalf("Acquire(%s for %s): %v", connection, run, err)
	}
	return l
}

func request(connection, run string, at time.Time) collect.LeaseRequest {
	return collect.LeaseRequest{Connection: connection, Run: run, Holder: "host-" + run, Now: at, TTL: ttl}
}

// commit writes a slice, or ends the test.
func commit(t *testing.T, s collect.Store, l collect.Lease, c collect.Commit) {
	t.Helper()
	if c.At.IsZero() {
		c.At = now()
	}
	if err := s.Commit(t.Context(), l, c); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

// must gives what a call gave, or ends the test: must(call())(t).
func must[T any](v T, err error) func(rapid.TB) T {
	return func(t rapid.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// same compares what the store gave with what it should have.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// diff takes an empty list for the same as none, and instants to the
// millisecond, which is what a store must keep.
func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(time.Millisecond))
}

// lost checks that err is collect.ErrLeaseLost.
func lost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, collect.ErrLeaseLost) {
		t.Errorf("%s with a lease that was lost: got %v, want collect.ErrLeaseLost", what, err)
	}
}

func items(from, n int) []collect.KnownItem {
	list := make([]collect.KnownItem, n)
	for i := range list {
		list[i] = collect.KnownItem{Key: fmt.Sprintf("k%06d", from+i), Fingerprint: fmt.Sprintf("f%d", from+i)}
	}
	return list
}

func position(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"at":%d}`, n)) }
