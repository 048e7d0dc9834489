//go:build unix

package bulk_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// entry is a row of the three formats.
type entry struct {
	ID    int64   `parquet:"id"`
	Name  string  `parquet:"name"`
	Large int64   `parquet:"large"`
	Share float64 `parquet:"share"`
}

// entries have texts that each format has its trouble with.
func entries(rows int) []entry {
	names := []string{`plain`, `with "quotes", a comma`, "two\nlines", "ünïcode \u2028 <&>", ``, ` spaces `}
	all := make([]entry, rows)
	for n := range all {
		all[n] = entry{int64(n), names[n%len(names)], 1<<53 + int64(n), float64(n) / 8}
	}
	return all
}

// formats write entries as a file.
var formats = map[string]func(t *testing.T, path string, all []entry){
	"rows.jsonl": func(t *testing.T, path string, all []entry) {
		var b strings.Builder
		for _, e := range all {
			fmt.Fprintf(&b, "{\"id\":%d,\"name\":%s,\"large\":%d,\"share\":%v}\n", e.ID, quoted(e.Name), e.Large, e.Share)
		}
		harness.Write(t, path, b.String())
	},
	"rows.csv": func(t *testing.T, path string, all []entry) {
		var b strings.Builder
		b.WriteString("id,name,large,share\n")
		for _, e := range all {
			fmt.Fprintf(&b, "%d,\"%s\",%d,%v\n", e.ID, strings.ReplaceAll(e.Name, `"`, `""`), e.Large, e.Share)
		}
		harness.Write(t, path, b.String())
	},
	"rows.parquet": func(t *testing.T, path string, all []entry) {
		if err := parquet.WriteFile(path, all); err != nil {
			t.Fatal(err)
		}
	},
}

func quoted(s string) string {
	return `"` + strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(s) + `"`
}

// TestRejectedRowsAreLoadedAgain corrects what was wrong, loads the rows that the
// program prints, and holds them against what the rows of the input were.
func TestRejectedRowsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	const rows = 600
	for input, write := range formats {
		t.Run(input, func(t *testing.T) {
			t.Parallel()
			// What the rows are is seen where none is refused.
			all := newOffice(t)
			whole := newPlace(t, all, upsert, input, "")
			write(t, filepath.Join(whole.dir, input), entries(rows))
			types := []string{}
			if strings.HasSuffix(input, ".csv") {
				types = []string{"--csv-type", "id=number,large=number,share=number"}
			}
			whole.run(harness.ExitDrained, types...)

			o := newOffice(t)
			fault := func(row map[string]any) bool { return int(row["id"].(float64))%5 == 1 }
			o.refuses = fault
			p := newPlace(t, o, upsert, input, "")
			write(t, filepath.Join(p.dir, input), entries(rows))
			p.run(harness.ExitDrained, types...)
			if s := p.accounted(o, rows, upsert); s.Rejected != rows/5 {
				t.Fatalf("%+v", s.Totals)
			}
			says(t, p.bulk(0, "rejects", load), "200 E7: the office does not take this")

			// The first half goes in as it is printed, the second as it is filed.
			printed := p.bulk(0, "rejects", load, "--rows").Stdout
			if n := strings.Count(printed, "\n"); n != rows/5 {
				t.Errorf("%d rows are printed, want %d", n, rows/5)
			}
			p.write("fixed.jsonl", printed)
			o.locked(func() {
				o.refuses = func(row map[string]any) bool { return fault(row) && int(row["id"].(float64)) >= rows/2 }
			})
			p.bulk(harness.ExitDrained, "run", "fixed.jsonl", "--target", "target.yaml", "--dir", "again")
			o.locked(func() { o.refuses = nil })
			filed := filepath.Join("again", "rejects.jsonl")
			p.bulk(harness.ExitDrained, "run", filed, "--target", "target.yaml", "--dir", "last")
			if held, writes := o.count(); held != rows || writes != rows {
				t.Errorf("the office holds %d rows, written %d times, want %d", held, writes, rows)
			}
			var want, got map[string]string
			all.locked(func() { want = maps.Clone(all.held) })
			o.locked(func() { got = maps.Clone(o.held) })
			harness.Same(t, "the rows that were loaded again", got, want)
		})
	}
}

// TestMalformedRowsAreLoadedAgain corrects the text of rows that were none.
func TestMalformedRowsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	const rows = 300
	o := newOffice(t)
	p := newPlace(t, o, create, "rows.jsonl", lines(rows, func(n int) bool { return n%100 == 50 }))
	p.run(harness.ExitDrained)
	p.accounted(o, rows, create)
	printed := p.bulk(0, "rejects", load, "--rows").Stdout
	if printed != "{\"id\":50,oops\n{\"id\":150,oops\n{\"id\":250,oops\n" {
		t.Errorf("printed %q", printed)
	}
	// Not corrected, they are rejected again, by the lines of the new file.
	p.write("same.jsonl", printed)
	p.bulk(harness.ExitDrained, "run", "same.jsonl", "--target", "target.yaml", "--dir", "same")
	says(t, p.bulk(0, "rejects", "same"), "line 1: malformed", "line 3: malformed")
	p.write("fixed.jsonl", strings.ReplaceAll(printed, "oops", `"name":"well"}`))
	p.bulk(harness.ExitDrained, "run", "fixed.jsonl", "--target", "target.yaml", "--dir", "again")
	if held, writes := o.count(); held != rows || writes != rows {
		t.Errorf("the office holds %d rows, written %d times, want %d", held, writes, rows)
	}
}

// TestUncertainRowsArePrinted as those that were refused.
func TestUncertainRowsArePrinted(t *testing.T) {
	t.Parallel()
	const rows = 100
	o := newOffice(t)
	o.answer = func(n int, _ request) (reply, bool) { return reply{body: "garbage", writes: n == 1}, true }
	p := newPlace(t, o, create, "rows.jsonl", lines(rows, nil))
	says(t, p.run(harness.ExitDrained), "rejects "+load+" --uncertain")
	p.accounted(o, rows, create)
	printed := p.bulk(0, "rejects", load, "--uncertain", "--rows").Stdout
	text, err := os.ReadFile(filepath.Join(p.dir, p.input))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		want[line] = true
	}
	for line := range strings.Lines(printed) {
		if !want[line] {
			t.Errorf("%q is not a row of the input, or printed twice", line)
		}
		delete(want, line)
	}
	if len(want) > 0 {
		t.Errorf("%d rows are not printed", len(want))
	}
}

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
