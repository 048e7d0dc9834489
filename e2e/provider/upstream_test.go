//go:build unix

package provider_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

// upstream is a provider in a process of its own.
type upstream struct {
	*harness.Process
	url, log string
}

// provide starts a provider whose scenario has that provider section, and waits
// until it serves. It is stopped when the test ends.
func provide(t *testing.T, section string, data serve.Options) *upstream {
	t.Helper()
	dir := t.TempDir()
	scenario, ready := filepath.Join(dir, "scenario.yaml"), filepath.Join(dir, "ready")
	u := &upstream{log: filepath.Join(dir, "admissions.jsonl")}
	harness.Write(t, scenario, "name: e2e\n"+section)
	u.Process = harness.Launch(t, dir, nil, "provider", "serve", scenario,
		"--listen", "127.0.0.1:0", "--ready-file", ready, "--log", u.log, "--token", harness.Token,
		"--seed", fmt.Sprint(data.Seed), "--conversations", fmt.Sprint(data.Conversations), "--messages", fmt.Sprint(data.Messages))
	u.Await(t, &u.Stderr, "serving e2e at ")
	url, err := os.ReadFile(ready)
	if err != nil {
		t.Fatal(err)
	}
	u.url = strings.TrimSpace(string(url))
	t.Cleanup(func() {
		u.Signal(t, syscall.SIGTERM)
		if o := u.Wait(t); o.Code != 0 {
			t.Errorf("the provider did not stop in order: %s", o)
		}
	})
	return u
}

// admissions is what the provider has logged so far. A line that is being
// written is left for the next time.
func (u *upstream) admissions(t *testing.T) []serve.Entry {
	t.Helper()
	f, err := os.Open(u.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var entries []serve.Entry
	for e, err := range serve.ReadLog(f) {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// stats is what the provider counts.
func (u *upstream) stats(t *testing.T) serve.Stats {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.url+"/-/stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var s serve.Stats
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// served are the answers of a log: pages by cursor, details by conversation,
// each with the statuses of its admitted requests in order.
type served struct {
	pages, details map[string][]int
	refused        int
}

func servedIn(log []serve.Entry) served {
	s := served{pages: map[string][]int{}, details: map[string][]int{}}
	for _, e := range log {
		id, detail := strings.CutPrefix(e.Path, "/conversations/")
		switch {
		case !e.Admitted:
			s.refused++
		case detail:
			s.details[id] = append(s.details[id], e.Status)
		case e.UpdatedAfter == "":
			s.pages[e.Cursor] = append(s.pages[e.Cursor], e.Status)
		}
	}
	return s
}

// delivered reports whether a request was answered with what it asked for.
func delivered(statuses []int) bool {
	return len(statuses) > 0 && statuses[len(statuses)-1] == http.StatusOK
}

// lost reports whether an admitted request did not reach its client in full.
func lost(status int) bool { return status == 0 || status == 499 || status >= 500 }
