//go:build unix

// Package bulk_test runs "headway bulk" as it is shipped, as processes: loads
// that are killed, interrupted, refused and lied to. What the load says became of
// each row is held against what the target took, both ways.
package bulk_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
)

// TestMalformedRowsAreNamedAndTheRestLoads has two bad lines in a large file.
func TestMalformedRowsAreNamedAndTheRestLoads(t *testing.T) {
	t.Parallel()
	rows := longtest.Size(30_000, 100_000)
	middle := rows * 7 / 10
	bad := func(n int) bool { return n == middle || n == rows-1 }
	comma := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	for _, c := range []struct{ input, text string }{
		{"rows.jsonl", lines(rows, bad)},
		{"rows.csv", csvLines(rows, bad)},
	} {
		t.Run(c.input, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			p := newPlace(t, o, upsert, c.input, c.text)
			says(t, p.run(harness.ExitDrained, "--batch-rows", "1000"), comma(rows), comma(rows-2), filepath.Join(load, "rejects.jsonl"))
			s := p.accounted(o, rows, upsert)
			if s.Acknowledged != int64(rows-2) || s.Rejected != 2 {
				t.Errorf("%+v", s.Totals)
			}
			if held, _ := o.count(); held != rows-2 {
				t.Errorf("the office holds %d rows, want %d", held, rows-2)
			}
			line := map[string]int{"rows.jsonl": middle + 1, "rows.csv": middle + 2}[c.input]
			says(t, p.bulk(0, "rejects", load), "line "+comma(line)+": malformed")
			// The owner may rather have it stop there.
			stopped := p.bulk(harness.ExitUsage, "run", c.input, "--target", "target.yaml", "--dir", "other", "--stop-on-malformed")
			says(t, stopped, fmt.Sprintf("line %d:", line))
		})
	}
}

// csvLines are the rows of lines as CSV with a header.
func csvLines(rows int, bad func(n int) bool) string {
	var b strings.Builder
	b.WriteString("id,name\n")
	for n := range rows {
		if bad(n) {
			b.WriteString("one field\n")
			continue
		}
		fmt.Fprintf(&b, "%d,\"Row, %d\"\n", n, n)
	}
	return b.String()
}

// garbage are answers of 200 that tell nothing.
var garbage = []string{"", "thanks", "<html>OK</html>", `{"ok":true}`, `[{"ok":true}]`, "[", strings.Repeat("[", 1<<16), "\x00\xff", "null"}

// TestGarbageIsNotTakenForAYes answers 200 with garbage, with the rows written or
// not: nothing of such a batch is acknowledged on that word.
func TestGarbageIsNotTakenForAYes(t *testing.T) {
	t.Parallel()
	const rows = 3000
	for _, kind := range []string{create, keyed, upsert} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.keyed = kind == keyed
			lied := 0
			o.answer = func(n int, _ request) (reply, bool) {
				if n%8 != 3 || lied >= len(garbage) {
					return reply{}, false
				}
				lied++
				return reply{status: http.StatusOK, body: garbage[lied-1] + " ", writes: lied%2 == 0}, true
			}
			p := newPlace(t, o, kind, "rows.jsonl", lines(rows, nil))
			p.run(harness.ExitDrained)
			s := p.accounted(o, rows, kind)
			o.mu.Lock()
			defer o.mu.Unlock()
			switch {
			case kind == create && s.Uncertain != int64(50*lied):
				t.Errorf("%d rows are uncertain after %d lies about 50 each", s.Uncertain, lied)
			case kind != create && s.Acknowledged != rows:
				t.Errorf("%d rows are acknowledged, want all", s.Acknowledged)
			}
			if lied == 0 || s.Rejected != 0 {
				t.Errorf("%d lies, %d rows rejected", lied, s.Rejected)
			}
		})
	}
}

// TestTooLargeBatchesAreSplit meets a server that takes 20 rows at once.
func TestTooLargeBatchesAreSplit(t *testing.T) {
	t.Parallel()
	const rows = 2000
	o := newOffice(t)
	o.answer = func(_ int, r request) (reply, bool) {
		return reply{status: http.StatusRequestEntityTooLarge, body: "too much"}, r.rows > 20
	}
	p := newPlace(t, o, create, "rows.jsonl", lines(rows, nil))
	sum := summaryOf(t, p.run(harness.ExitDrained, "--json"))
	if s := p.accounted(o, rows, create); s.Acknowledged != rows {
		t.Errorf("%+v", s.Totals)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if sum.Counts.Split == 0 || o.largest > 20 {
		t.Errorf("%d batches were split, the largest written had %d rows", sum.Counts.Split, o.largest)
	}
}

// TestACredentialThatIsRefusedInTheMiddle stops the load with the rest on record,
// and with another credential it goes on.
func TestACredentialThatIsRefusedInTheMiddle(t *testing.T) {
	t.Parallel()
	const rows = 3000
	o := newOffice(t)
	good := "Bearer " + harness.Token
	o.answer = func(n int, r request) (reply, bool) {
		if n == 20 {
			good = "Bearer another"
		}
		return reply{status: http.StatusUnauthorized, body: `{"error":"expired"}`}, r.token != good
	}
	p := newPlace(t, o, create, "rows.jsonl", lines(rows, nil))
	out := p.run(harness.ExitRefused)
	says(t, out, "unauthorized", "correct the credential", "headway bulk resume "+load)
	s := p.status()
	held, _ := o.count()
	if s.Owed == 0 || s.Uncertain != 0 || s.Rejected != 0 || s.Acknowledged != int64(held) || held == 0 {
		t.Errorf("%+v, and the office holds %d", s.Totals, held)
	}
	says(t, p.bulk(0, "status", load), "unauthorized", "headway bulk resume "+load)
	p.resume(harness.ExitRefused) // nothing has changed
	p.secretless()
	p.token = "another"
	p.resume(harness.ExitDrained)
	if s := p.accounted(o, rows, create); s.Acknowledged != rows {
		t.Errorf("%+v", s.Totals)
	}
	if _, writes := o.count(); writes != rows {
		t.Errorf("%d rows were written, want each of %d once", writes, rows)
	}
}

// TestAHintThatDropsToOne is obeyed with what was under way, and to the end.
func TestAHintThatDropsToOne(t *testing.T) {
	t.Parallel()
	const rows, drop, settle = 4000, 30, 16
	o := newOffice(t)
	o.took = 4 * time.Millisecond
	before, after := 0, 0
	o.answer = func(n int, r request) (reply, bool) {
		hint := "8"
		switch {
		case n < drop:
			before = max(before, r.inFlight)
		case n > drop+settle: // what was sent before the client knew is over
			after = max(after, r.inFlight)
			fallthrough
		default:
			hint = "1"
		}
		return reply{status: http.StatusNoContent, header: map[string]string{"x-ms-dop-hint": hint}, writes: true}, true
	}
	p := newPlace(t, o, upsert, "rows.jsonl", lines(rows, nil))
	p.write("target.yaml", fmt.Sprintf(`target: dataverse
auth: {bearer: "${OFFICE_TOKEN}"}
dataverse: {url: "%s", table: contacts, type: contact, operation: upsert, key: [id]}
`, o.URL)+quick)
	sum := summaryOf(t, p.run(harness.ExitDrained, "--json"))
	if s := p.accounted(o, rows, upsert); s.Acknowledged != rows {
		t.Errorf("%+v", s.Totals)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if before < 2 || after != 1 {
		t.Errorf("at most %d batches were under way before the hint of 1, and %d after it", before, after)
	}
	if len(sum.Identities) != 1 || sum.Identities[0].Ceiling != 1 || sum.Identities[0].Level != 1 {
		t.Errorf("the summary has %+v", sum.Identities)
	}
}

// TestKilledAtRandomInstants kills loads wherever they are and goes on
// with them until each is done, with "run" or with "resume".
func TestKilledAtRandomInstants(t *testing.T) {
	t.Parallel()
	const rows = 3000
	kills := longtest.Size(15, 200) // over all kinds of operation
	for i, kind := range []string{create, keyed, upsert} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			chance := rand.New(rand.NewPCG(seed, 0))
			died, loads, uncertain := 0, 0, int64(0)
			for died < kills/3+i%2 && !t.Failed() {
				o := newOffice(t)
				o.took, o.keyed = 15*time.Millisecond, kind == keyed
				o.refuses = func(row map[string]any) bool { return int(row["id"].(float64))%211 == 210 }
				p := newPlace(t, o, kind, "rows.jsonl", lines(rows, func(n int) bool { return n%701 == 700 }))
				died += p.live(o, chance)
				loads++
				s := p.accounted(o, rows, kind)
				uncertain += s.Uncertain
				if s.Rejected != rejected(rows) && kind != create || s.Rejected > rejected(rows) {
					t.Errorf("%d rows are rejected, of %d that are at fault", s.Rejected, rejected(rows))
				}
				o.Close()
			}
			t.Logf("%d kills in %d loads, %d rows uncertain", died, loads, uncertain)
		})
	}
}

// rejected is how many rows of that test's input are at fault.
func rejected(rows int) (n int64) {
	for i := range rows {
		if i%211 == 210 || i%701 == 700 {
			n++
		}
	}
	return n
}

// live kills a load now and then until it is done. After twenty deaths it is
// left alone: a machine can be so slow that every process dies before it has
// loaded anything.
func (p *place) live(o *office, chance *rand.Rand) (died int) {
	p.t.Helper()
	for {
		args := []string{"run", p.input, "--target", "target.yaml", "--dir", load, "--quiet"}
		if _, err := os.Stat(filepath.Join(p.dir, load, "load.json")); err == nil && chance.IntN(2) == 0 {
			args = []string{"resume", load}
		}
		process := p.start(args...)
		if died < 20 {
			timer := time.NewTimer(time.Duration(chance.Int64N(int64(150 * time.Millisecond))))
			select {
			case <-timer.C:
				process.Signal(p.t, os.Kill)
			case <-process.Ended():
			}
			timer.Stop()
		}
		switch out := process.Wait(p.t); {
		case out.Killed:
			died++
		case out.Code == harness.ExitDrained:
			return died
		default:
			p.t.Fatalf("after %d kills: %s", died, out)
		}
		if _, err := os.Stat(filepath.Join(p.dir, load, "journal")); err != nil {
			continue // killed before there was any
		}
		if died%4 == 0 {
			s := p.status()
			if held, _ := o.count(); s.Acknowledged > int64(held) {
				p.t.Errorf("after %d kills %d rows are acknowledged, and the office holds %d", died, s.Acknowledged, held)
			}
			if s.Running == nil || *s.Running {
				p.t.Errorf("after a kill, the load is said to run: %v", fmt.Sprint(s.Running))
			}
		}
	}
}

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Setup{}))
}

// summary is the last line of "bulk run --json", as scripts read it.
type summary struct {
	bulk.Totals
	State  string
	Reason string
	Dir    string
	Counts struct {
		Sent      int64 `json:"batches_sent"`
		Throttled int64 `json:"batches_throttled"`
		Split     int64 `json:"batches_split"`
	}
	Identities []struct {
		Name           string
		Level, Ceiling int
		Throttles      int64
	}
}

// summaryOf reads the output of "bulk run --json": valid JSON in every line, of a
// known type, the last one and no other a summary.
func summaryOf(t *testing.T, o harness.Outcome) summary {
	t.Helper()
	var last *summary
	for text := range strings.Lines(o.Stdout) {
		var l struct {
			Type     string
			Progress *bulk.Totals
			Summary  *summary
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q is not JSON: %v", text, err)
		}
		if last != nil {
			t.Errorf("a line after the summary: %s", text)
		}
		if known := map[string]bool{"progress": l.Progress != nil, "summary": l.Summary != nil}; !known[l.Type] {
			t.Errorf("a line of type %q without it: %s", l.Type, text)
		}
		last = l.Summary
	}
	if last == nil {
		t.Fatalf("the last line is not a summary: %s", o)
	}
	if o.Stderr != "" {
		t.Errorf("with --json something stands on standard error: %s", o.Stderr)
	}
	return *last
}
