package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// serve runs a server for a handler within the bubble and dials it.
func serve(t *testing.T, h http.Handler) (dial func() net.Conn) {
	t.Helper()
	_, l := pipenet.Serve(t, h)
	return func() net.Conn {
		c, err := l.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// listener reads a stream as it comes.
type listener struct {
	net.Conn
	lines *bufio.Reader
}

// listen opens a stream.
func listen(t *testing.T, dial func() net.Conn, path, key string, headers ...string) *listener {
	t.Helper()
	conn := dial()
	t.Cleanup(func() { _ = conn.Close() })
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: headway\r\nAuthorization: Bearer %s\r\n%s\r\n", path, key, strings.Join(append(headers, ""), "\r\n"))
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 200 {
		t.Fatalf("%s: %s", path, res.Status)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	l := &listener{conn, bufio.NewReader(res.Body)}
	l.next(t) // the greeting
	return l
}

// next is the fields of the next block.
func (l *listener) next(t *testing.T) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return nil // the stream has ended
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if line == "\n" {
			return fields
		}
		fields[name] = value
	}
}

// note is an event that a test can tell from others.
func note(connection string, n int) event.Event {
	return event.Event{At: time.Now(), Type: event.Phase, Connection: connection, Count: int64(n)}
}

func counts(stream string) (counts []int64, ids []string) {
	for _, b := range blocks(stream) {
		var e events.Entry
		if b["data"] == "" || json.Unmarshal([]byte(b["data"]), &e) != nil {
			continue
		}
		n := int64(-1)
		if e.Event != nil {
			n = e.Event.Count
		}
		if e.Type == events.Dropped {
			n = -int64(e.Dropped)
		}
		counts, ids = append(counts, n), append(ids, b["id"])
	}
	return counts, ids
}

func TestAReaderThatComesBackGetsExactlyWhatItMissed(t *testing.T) {
	w := newWorld(t, nil)
	for n := range 10 {
		w.hub.Connection(note("chat", n+1))
	}
	w.hub.Close() // so that streams end
	all, ids := counts(w.do("GET", "/v1/events?since=oldest", "admin", "").Body.String())
	if d := cmp.Diff([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, all); d != "" {
		t.Fatal(d)
	}
	for i, id := range ids {
		rest, _ := counts(w.do("GET", "/v1/events?since="+id, "admin", "").Body.String())
		// A browser asks with the address it began with; the header is newer.
		r := request("GET", "/v1/events?since="+ids[0], "admin", "")
		r.Header.Set("Last-Event-ID", id)
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		again, _ := counts(rec.Body.String())
		if want := append([]int64(nil), all[i+1:]...); !cmp.Equal(want, rest) || !cmp.Equal(want, again) {
			t.Errorf("after %s: %v and %v, want %v", id, rest, again, want)
		}
	}
	if fresh, _ := counts(w.do("GET", "/v1/events", "admin", "").Body.String()); fresh != nil {
		t.Errorf("without a place to begin: %v, want only what comes", fresh)
	}
}

func TestAReaderLearnsWhatItMissed(t *testing.T) {
	w := newWorld(t, nil) // keeps 100
	w.hub.Connection(note("chat", 1))
	w.hub.Close()
	_, ids := counts(w.do("GET", "/v1/events?since=oldest", "admin", "").Body.String())
	for n := range 150 {
		w.hub.Connection(note("chat", n+2))
	}
	got, _ := counts(w.do("GET", "/v1/events?since="+ids[0], "admin", "").Body.String())
	if len(got) != 101 || got[0] != -50 || got[1] != 52 || got[100] != 151 {
		t.Errorf("%d entries: %v", len(got), got)
	}
	// Of another process, of the future, of nobody: all that is kept, and a mark
	// without a count, as nobody knows it.
	epoch, _, _ := strings.Cut(ids[0], "-")
	for _, id := range []string{"k3f9x2a1-5", epoch + "-152", epoch + "-007", epoch + "-+7", "5"} {
		got, marks := counts(w.do("GET", "/v1/events?type=nothing&since="+strings.ReplaceAll(id, "+", "%2B"), "admin", "").Body.String())
		if !cmp.Equal(got, []int64{0}) || marks[0] != epoch+"-51" {
			t.Errorf("%s: %v %v", id, got, marks)
		}
	}
}

// TestAnUnknownIDBeforeAnythingHappened: the mark is of the instant at which it is
// given, since there is nothing yet that happened.
func TestAnUnknownIDBeforeAnythingHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.hub.Close() // so that the stream ends
		l := listen(t, serve(t, w), "/v1/events", "admin", "Last-Event-ID: k3f9x2a1-5")
		var e events.Entry
		if err := json.Unmarshal([]byte(l.next(t)["data"]), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != events.Dropped || !e.Unknown || !e.At.Equal(time.Now()) {
			t.Errorf("the mark is %+v, want one of %v", e, time.Now())
		}
	})
}

func TestEventsArriveAsTheyHappenAndSilenceHasAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		l := listen(t, serve(t, w), "/v1/events?type=phase", "admin")
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			w.hub.Connection(note("chat", 1))
			time.Sleep(time.Second)
			w.hub.Connection(event.Event{Type: event.RunEnd}) // not asked for
		}()
		got := l.next(t)
		if time.Since(began) != time.Second || got["event"] != "phase" || !strings.HasSuffix(got["id"], "-1") {
			t.Errorf("after %v: %v", time.Since(began), got)
		}
		for beat := range 3 {
			got = l.next(t)
			// The id moves on, so that what was not asked for is not missed later.
			if want := time.Duration(beat+1) * 15 * time.Second; time.Since(began) != want || !strings.HasSuffix(got["id"], "-2") || got["data"] != "" {
				t.Errorf("after %v, want %v: %v", time.Since(began), want, got)
			}
		}
		w.hub.Close()
		if got := l.next(t); got != nil || time.Since(began) != 45*time.Second {
			t.Errorf("after the end, %v: %v", time.Since(began), got)
		}
	})
}

func TestAReaderThatDoesNotReadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		var open atomic.Int32
		dial := serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			open.Add(1)
			defer open.Add(-1)
			w.ServeHTTP(rw, r)
		}))
		slow, quick := listen(t, dial, "/v1/events", "admin"), listen(t, dial, "/v1/events", "admin")
		_ = slow // it never reads again
		for n := range 1000 {
			w.hub.Connection(note("chat", n))
			if got := quick.next(t); got["id"] == "" {
				t.Fatalf("event %d: %v", n, got)
			}
		}
		if n := open.Load(); n != 2 {
			t.Errorf("%d streams open, want 2: there is time to read", n)
		}
		time.Sleep(14 * time.Second)
		if n := open.Load(); n != 2 {
			t.Errorf("%d streams open after 14 s, want 2", n)
		}
		time.Sleep(1500 * time.Millisecond)
		go func() {
			for quick.next(t) != nil {
			}
		}()
		synctest.Wait()
		if n := open.Load(); n != 1 {
			t.Errorf("%d streams open, want the one that reads", n)
		}
		w.hub.Close()
	})
}

func TestAStreamEndsWithItsClientOrItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revoked atomic.Bool
		w := newWorld(t, func(o *api.Options) {
			o.Authorize = func(r *http.Request, need api.Role) (api.Caller, error) {
				if revoked.Load() {
					return api.Caller{}, &reason.Refusal{Reason: reason.Unauthorized}
				}
				return authorize(r, need)
			}
			o.Streams = 1
		})
		dial := serve(t, w)
		l := listen(t, dial, "/v1/events", "plain")
		rec := w.do("GET", "/v1/events", "plain", "")
		if p := into[api.Problem](t, rec, 503); p.RetryInMS != 15_000 {
			t.Errorf("beyond the bound: %+v", p)
		}
		_ = l.Close()
		synctest.Wait()
		l = listen(t, dial, "/v1/events", "plain") // its place is free again
		if got := l.next(t); got["id"] == "" {
			t.Errorf("no heartbeat: %v", got)
		}
		revoked.Store(true)
		began := time.Now()
		for l.next(t) != nil {
		}
		if ended := time.Since(began); ended > 15*time.Second {
			t.Errorf("ended after %v, want 15 s at most", ended)
		}
	})
}

func TestAKeyHearsOnlyWhatConcernsIt(t *testing.T) {
	w := newWorld(t, nil)
	tell := func(provider, tenant, agent, model string) {
		w.hub.Quota(provider)(quota.Event{Type: quota.EventThrottle, Scope: quota.Scope{Tenant: tenant, Agent: agent, Model: model}})
	}
	tell("openai", "", "", "m")
	tell("openai", "a", "", "")
	tell("openai", "a", "planner", "")
	tell("openai", "a", "coder", "")
	tell("openai", "b", "", "")
	tell("openai", "", "", "free")
	tell("gemini", "a", "", "")
	w.hub.Proxied("openai")(note("openai", 1))
	w.hub.Proxied("gemini")(note("gemini", 2))
	w.hub.Connection(note("archive", 3))
	w.hub.Close()
	for key, want := range map[string][]string{
		"team-a": {"-1", "-2", "-3", "-8"},
		"team-b": {"-1", "-5", "-6", "-8", "-9"},
		"plain":  {"-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9"},
		"admin":  {"-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "-10"},
	} {
		if _, got := counts(w.do("GET", "/v1/events?since=oldest", key, "").Body.String()); !cmp.Equal(want, suffixes(got)) {
			t.Errorf("%s hears %v, want %v", key, suffixes(got), want)
		}
	}
	for query, want := range map[string][]string{
		"type=phase":                        {"-8", "-9", "-10"},
		"type=phase&type=rate:throttle":     {"-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9", "-10"},
		"connection=archive":                {"-10"},
		"provider=gemini":                   {"-7", "-9"},
		"provider=gemini&connection=gemini": {"-9"},
		"provider=nobody":                   nil,
	} {
		if _, got := counts(w.do("GET", "/v1/events?since=oldest&"+query, "admin", "").Body.String()); !cmp.Equal(want, suffixes(got)) {
			t.Errorf("%s: %v, want %v", query, suffixes(got), want)
		}
	}
}

func suffixes(ids []string) (all []string) {
	for _, id := range ids {
		all = append(all, id[strings.IndexByte(id, '-'):])
	}
	return all
}

func TestAFilterIsBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.hub.Close()
	into[api.Problem](t, w.do("GET", "/v1/events?"+strings.Repeat("type=x&", 65), "plain", ""), 400)
	if rec := w.do("GET", "/v1/events?"+strings.Repeat("type=x&", 64), "plain", ""); rec.Code != 200 {
		t.Errorf("64 names: %d", rec.Code)
	}
}

func TestWaitingForAnApprovalOverTheWireEndsWhenTheClientHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		for range 2 {
			w.approved(t, "plain", `{"provider":"openai","model":"m"}`)
		}
		conn := serve(t, w)()
		const body = `{"provider":"openai","model":"m","wait_ms":5000}`
		if _, err := fmt.Fprintf(conn, "POST /v1/quota/approve HTTP/1.1\r\nHost: headway\r\nAuthorization: Bearer plain\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.openai.Snapshot().Statistics.Waiting; n != 1 {
			t.Fatalf("%d wait, want 1", n)
		}
		_ = conn.Close()
		synctest.Wait()
		if s := w.openai.Snapshot().Statistics; s.Waiting != 0 || s.Open != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestABodyThatDoesNotArriveIsNotWaitedForForever(t *testing.T) {
	for key, want := range map[string]int{"plain": 400, "nobody": 401} {
		t.Run(key, func(t *testing.T) { stall(t, key, want) })
	}
}

// stall sends a part of a body and waits.
func stall(t *testing.T, key string, want int) {
	synctest.Test(t, func(t *testing.T) {
		conn := serve(t, newWorld(t, nil))()
		if _, err := fmt.Fprint(conn, "POST /v1/quota/approve HTTP/1.1\r\nHost: headway\r\nAuthorization: Bearer ", key, "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want || time.Since(began) != 15*time.Second {
			t.Errorf("%s after %v, want %d after 15 s", res.Status, time.Since(began), want)
		}
		if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes, %v; want the end of the connection", n, err)
		}
		_ = conn.Close()
	})
}
