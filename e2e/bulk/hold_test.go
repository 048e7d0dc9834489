//go:build linux

package bulk_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// TestAFullDisk lets the load's files not grow beyond 8 KiB, which the rejected
// rows soon do.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	const rows = 2000
	o := newOffice(t)
	o.refuses = func(row map[string]any) bool { return int(row["id"].(float64))%4 == 0 }
	p := newPlace(t, o, upsert, "rows.jsonl", lines(rows, nil))
	out := harness.LaunchAs(t, nil, p.dir, []string{"OFFICE_TOKEN=" + p.token},
		"/bin/sh", "-c", `ulimit -f 16; exec "$@"`, "sh", harness.Program(), "bulk", "run", p.input, "--target", "target.yaml", "--dir", load).Wait(t)
	if out.Code != harness.ExitInternal {
		t.Fatalf("want exit code %d: %s", harness.ExitInternal, out)
	}
	says(t, out, "rejects.jsonl", "file too large", "see to the cause, then headway bulk resume "+load)
	s := p.status()
	held, _ := o.count()
	if s.Acknowledged > int64(held) {
		t.Errorf("%d rows are acknowledged, and the office holds %d", s.Acknowledged, held)
	}
	// On a slow machine nothing that was recorded as read may be owed, but then there is more to read.
	if s.InputRead && s.Owed == 0 {
		t.Errorf("nothing is left to do: %+v", s.Totals)
	}
	if n := len(p.rejects()); int64(n) != s.Rejected {
		t.Errorf("%d rejects on file, %d counted", n, s.Rejected)
	}
	p.resume(harness.ExitDrained)
	if s := p.accounted(o, rows, upsert); s.Rejected != rows/4 {
		t.Errorf("%+v", s.Totals)
	}
}

// TestALoadIsRunByOneProcess starts a second one, which is refused and changes
// nothing.
func TestALoadIsRunByOneProcess(t *testing.T) {
	t.Parallel()
	const rows = 500
	o := newOffice(t)
	held := make(chan struct{})
	o.answer = func(int, request) (reply, bool) {
		// Under the lock: everybody waits.
		select {
		case <-held:
		case <-t.Context().Done():
		}
		return reply{}, false
	}
	p := newPlace(t, o, create, "rows.jsonl", lines(rows, nil))
	first := p.start("run", p.input, "--target", "target.yaml", "--dir", load)
	harness.Eventually(t, "the first load has begun", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, load, "load.json"))
		return err == nil
	})
	if s := p.status(); s.Running == nil || !*s.Running {
		t.Errorf("the status does not say that it runs: %+v", s)
	}
	says(t, p.run(harness.ExitDeferred), "another process runs this load", load)
	says(t, p.resume(harness.ExitDeferred), "another process runs this load")
	close(held)
	if out := first.Wait(t); out.Code != harness.ExitDrained {
		t.Errorf("the first: %s", out)
	}
	if s := p.accounted(o, rows, create); s.Acknowledged != rows || *s.Running {
		t.Errorf("%+v", s)
	}
}

// TestInterrupted lets the batches under way end after the first signal, and cuts
// them off after the second.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	const rows = 5000
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t)
		o.took = 20 * time.Millisecond
		p := newPlace(t, o, create, "rows.jsonl", lines(rows, nil))
		process := p.start("run", p.input, "--target", "target.yaml", "--dir", load)
		harness.Eventually(t, "rows are written", func() bool { held, _ := o.count(); return held > 200 })
		process.Signal(t, syscall.SIGINT)
		out := process.Wait(t)
		if out.Code != harness.ExitDeferred {
			t.Fatalf("want exit code %d: %s", harness.ExitDeferred, out)
		}
		says(t, out, "waiting for the batches under way", "interrupted", "headway bulk resume "+load)
		s := p.status()
		if held, _ := o.count(); s.Acknowledged != int64(held) || s.Uncertain != 0 || s.Owed == 0 {
			t.Errorf("%+v, and the office holds %d", s.Totals, held)
		}
		says(t, p.bulk(harness.ExitDrained, "resume", load), "in this run")
		if s := p.accounted(o, rows, create); s.Acknowledged != rows {
			t.Errorf("%+v", s.Totals)
		}
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		o := newOffice(t)
		// It takes batches and never answers. Once a body is read, the server sees
		// that the client has gone.
		o.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		p := newPlace(t, o, keyed, "rows.jsonl", lines(rows, nil))
		process := p.start("run", p.input, "--target", "target.yaml", "--dir", load)
		process.Await(t, &process.Stderr, "on record in")
		process.Signal(t, syscall.SIGTERM)
		process.Await(t, &process.Stderr, "once more to cut them off")
		process.Signal(t, syscall.SIGTERM)
		out := process.Wait(t)
		if out.Code != harness.ExitDeferred {
			t.Errorf("want exit code %d: %s", harness.ExitDeferred, out)
		}
		if s := p.status(); s.Acknowledged != 0 || s.Rejected != 0 || s.Uncertain != 0 {
			t.Errorf("%+v of batches that were never answered", s.Totals)
		}
	})
}

// TestAnotherInputOrTargetIsRefused goes on only with what the load is of, and
// changes nothing otherwise.
func TestAnotherInputOrTargetIsRefused(t *testing.T) {
	t.Parallel()
	const rows = 400
	o := newOffice(t)
	o.answer = func(_ int, r request) (reply, bool) {
		return reply{status: http.StatusUnauthorized}, r.token == "Bearer wrong"
	}
	p := newPlace(t, o, create, "rows.jsonl", lines(rows, nil))
	p.token = "wrong"
	p.run(harness.ExitRefused)
	before := p.files()
	p.token = harness.Token
	p.write("longer.jsonl", lines(rows+1, nil))
	p.write("other.jsonl", strings.Replace(lines(rows, nil), "Row 7", "Raw 7", 1))
	target, err := os.ReadFile(filepath.Join(p.dir, "target.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p.write("elsewhere.yaml", strings.Replace(string(target), "/rows", "/others", 1))
	says(t, p.resume(harness.ExitUsage, "--input", "longer.jsonl"), "bytes", "resume with the same file")
	says(t, p.resume(harness.ExitUsage, "--input", "other.jsonl"), "begins otherwise", "resume with the same file")
	says(t, p.resume(harness.ExitUsage, "--target", "elsewhere.yaml"), "use the same target, or another folder")
	says(t, p.bulk(harness.ExitUsage, "resume", "nowhere"), "no load was started here")
	after := p.files()
	delete(before, "lock") // it names who had it last
	delete(after, "lock")
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("a load that was refused has changed the folder: %v, was %v", after, before)
	}
	// The same file under another name is the same.
	p.write("moved.jsonl", lines(rows, nil))
	if err := os.Remove(filepath.Join(p.dir, p.input)); err != nil {
		t.Fatal(err)
	}
	p.resume(harness.ExitDrained, "--input", "moved.jsonl")
	if s := p.accounted(o, rows, create); s.Acknowledged != rows {
		t.Errorf("%+v", s.Totals)
	}
}

// files are the contents of the load's folder by name.
func (p *place) files() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(p.dir, load), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[d.Name()] = string(b)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// TestSpoiledFoldersAreNotGuessedAt damages each file of a load's folder.
func TestSpoiledFoldersAreNotGuessedAt(t *testing.T) {
	t.Parallel()
	const rows = 1200
	for _, c := range []struct {
		file, with string
		code       int
		texts      []string
	}{
		{"journal", "0000", harness.ExitInternal, []string{"journal", "line 1", "nothing was changed"}},
		{"load.json", "{", harness.ExitUsage, []string{"load.json", "headway bulk run FILE", "--dir " + load}},
		{"load.json", `{"version":9}`, harness.ExitUsage, []string{"load.json", "version 9"}},
		{"rejects.jsonl", "", harness.ExitInternal, []string{"rejects.jsonl", "put the file back"}},
	} {
		t.Run(c.file+" "+c.with, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.refuses = func(row map[string]any) bool { return row["id"].(float64) == 3 }
			o.answer = func(n int, _ request) (reply, bool) { return reply{status: http.StatusForbidden}, n == 12 }
			p := newPlace(t, o, upsert, "rows.jsonl", lines(rows, nil))
			p.run(harness.ExitRefused)
			o.locked(func() { o.answer = nil })
			path := filepath.Join(load, c.file)
			whole := p.files()[c.file]
			p.write(path, c.with)
			before, _ := o.count()
			says(t, p.resume(c.code), c.texts...)
			if after, _ := o.count(); after != before {
				t.Errorf("rows were sent from a folder that is damaged")
			}
			p.write(path, whole)
			p.resume(harness.ExitDrained)
			p.accounted(o, rows, upsert)
		})
	}
}

// TestWhatIsNotKnownIsShownAsUnknown looks at a load whose end was not read.
func TestWhatIsNotKnownIsShownAsUnknown(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.answer = func(n int, _ request) (reply, bool) { return reply{status: http.StatusForbidden}, n > 3 }
	p := newPlace(t, o, upsert, "rows.jsonl", lines(150_000, nil)) // more than is held at once
	p.run(harness.ExitRefused)
	says(t, p.bulk(0, "status", load), "unknown, the input was not read to its end")
	var all []map[string]any
	if err := json.Unmarshal([]byte(p.bulk(0, "status", load, "--json").Stdout), &all); err != nil {
		t.Fatal(err)
	}
	if all[0]["input_read"] != false {
		t.Errorf("the JSON takes the rows that were read for all: %v", all[0])
	}
}

// TestStandardInput is resumed where it is a file, and never where it is a
// pipe.
func TestStandardInput(t *testing.T) {
	t.Parallel()
	const rows = 2000
	for _, c := range []struct {
		name, shell, next string
		code              int
	}{
		{"a file", `exec "$@" < rows.jsonl`, "headway bulk resume " + load, harness.ExitDeferred},
		{"a pipe", `cat rows.jsonl | "$@"`, "save the rows to a file", harness.ExitRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			well := false
			o.answer = func(n int, _ request) (reply, bool) {
				return reply{status: http.StatusTooManyRequests, header: map[string]string{"Retry-After": "7200"}}, n > 10 && !well
			}
			p := newPlace(t, o, create, "rows.jsonl", lines(rows, nil))
			shell := func(args ...string) harness.Outcome {
				return harness.LaunchAs(t, nil, p.dir, []string{"OFFICE_TOKEN=" + p.token, "PATH=" + os.Getenv("PATH")},
					append([]string{"/bin/sh", "-c", c.shell, "sh", harness.Program(), "bulk"}, args...)...).Wait(t)
			}
			out := shell("run", "-", "--target", "target.yaml", "--dir", load)
			if out.Code != c.code {
				t.Fatalf("want exit code %d: %s", c.code, out)
			}
			says(t, out, "cooldown", "retry at", c.next)
			s := p.status()
			if held, _ := o.count(); s.Acknowledged != int64(held) || s.Owed == 0 {
				t.Errorf("%+v, and the office holds %d", s.Totals, held)
			}
			o.locked(func() { well = true })
			out = shell("resume", load)
			if c.code == harness.ExitRefused {
				says(t, out, "cannot be read again")
				if out.Code != harness.ExitUsage {
					t.Errorf("want exit code %d: %s", harness.ExitUsage, out)
				}
				return
			}
			if s := p.accounted(o, rows, create); out.Code != harness.ExitDrained || s.Acknowledged != rows {
				t.Errorf("%+v: %s", s.Totals, out)
			}
		})
	}
}
