//go:build unix

package bulk_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// environment is a simulated Dataverse, in a process of its own.
type environment struct{ url string }

// held is what it has to tell.
type held struct {
	Sets map[string]struct {
		Rows, Creates, Duplicates int64
	}
	Users map[string]struct {
		Admitted, Throttled int64
		Peak                int
	}
}

func newEnvironment(t *testing.T, flags ...string) environment {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "url")
	p := harness.Launch(t, dir, nil, append([]string{
		"provider", "serve", "--data", "dataverse", "--listen", "127.0.0.1:0", "--ready-file", ready, "--scale", "60",
	}, flags...)...)
	var url string
	harness.Eventually(t, "the provider serves", func() bool {
		b, err := os.ReadFile(ready)
		url = strings.TrimSpace(string(b))
		return err == nil && url != ""
	})
	t.Cleanup(func() {
		p.Signal(t, syscall.SIGTERM)
		if o := p.Wait(t); o.Code != 0 {
			t.Errorf("the provider: %s", o)
		}
	})
	return environment{url}
}

func (e environment) held(t *testing.T) held {
	t.Helper()
	var h held
	harness.Get(t, e.url+"/-/dataverse", &h)
	return h
}

// contacts is a place with a load of contacts by two users.
func (e environment) contacts(t *testing.T, rows int, operation string) *place {
	t.Helper()
	var b strings.Builder
	b.WriteString("emailaddress1,lastname\n")
	for n := range rows {
		fmt.Fprintf(&b, "contact%d@example.com,Name %d\n", n, n)
	}
	p := &place{t: t, dir: t.TempDir(), input: "contacts.csv", token: harness.Token}
	p.write(p.input, b.String())
	p.write("target.yaml", fmt.Sprintf(`target: crm
identities:
  - {name: ana, auth: {bearer: "ana-${OFFICE_TOKEN}"}}
  - {name: ben, auth: {bearer: "ben-${OFFICE_TOKEN}"}}
dataverse: {url: "%s", table: contacts, type: contact, %s}
load: {batch_rows: 50}
`, e.url, operation))
	return p
}

// TestDataverseLosesNoUpsert kills upserts now and then: what is acknowledged is
// what the environment has, no row is there twice, and what it refuses is named.
func TestDataverseLosesNoUpsert(t *testing.T) {
	t.Parallel()
	const rows = 4000
	e := newEnvironment(t, "--fail-every", "400", "--fault", "broken@7,garbage@12,cut@17,too-large@22")
	p := e.contacts(t, rows, "operation: upsert, key: [emailaddress1]")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance, died := rand.New(rand.NewPCG(seed, 0)), 0
	for died < 6 {
		process := p.start("run", p.input, "--target", "target.yaml", "--dir", load)
		timer := time.NewTimer(50*time.Millisecond + time.Duration(chance.Int64N(int64(250*time.Millisecond))))
		select {
		case <-timer.C:
			process.Signal(t, os.Kill)
		case <-process.Ended():
		}
		timer.Stop()
		if out := process.Wait(t); !out.Killed {
			break
		}
		died++
	}
	p.run(harness.ExitDrained)
	s, h := p.status(), e.held(t)
	set := h.Sets["contacts"]
	if s.Rows != rows || s.Owed != 0 || s.Uncertain != 0 || s.Rejected == 0 || s.Acknowledged+s.Rejected != rows {
		t.Errorf("%+v", s.Totals)
	}
	if set.Rows != s.Acknowledged || set.Creates != set.Rows || set.Duplicates != 0 {
		t.Errorf("%d rows are acknowledged, and the environment has %+v", s.Acknowledged, set)
	}
	for _, r := range p.rejects() {
		if r.Error.Status == 0 || r.Error.Code == "" || r.Error.Message == "" {
			t.Errorf("row %d is rejected without a reason: %+v", r.Number, r.Error)
		}
	}
	t.Logf("%d kills, %d rows rejected", died, s.Rejected)
}

// TestDataverseCreatesNoRowTwice loses answers of creates, which cannot be sent
// again: their rows are uncertain, and no row is there twice.
func TestDataverseCreatesNoRowTwice(t *testing.T) {
	t.Parallel()
	const rows = 3000
	e := newEnvironment(t, "--fault", "garbage@5,cut@11,broken@14,unauthorized@20")
	p := e.contacts(t, rows, "operation: create")
	out := p.start("run", p.input, "--target", "target.yaml", "--dir", load).Wait(t)
	if out.Code != harness.ExitDrained {
		t.Fatalf("one user is refused, the other goes on: %s", out)
	}
	says(t, out, "stopped: unauthorized")
	s, set := p.status(), e.held(t).Sets["contacts"]
	if s.Uncertain == 0 || s.Rejected != 0 || s.Owed != 0 || s.Acknowledged+s.Uncertain != rows {
		t.Errorf("%+v", s.Totals)
	}
	if set.Rows < s.Acknowledged || set.Rows > rows || set.Duplicates != 0 {
		t.Errorf("%d rows are acknowledged and %d uncertain, and the environment has %+v", s.Acknowledged, s.Uncertain, set)
	}
}
