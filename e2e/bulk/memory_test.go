//go:build linux

package bulk_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
)

// maxMemory is what the process may take in the memory test, for any number of
// rows.
const maxMemory = 100 << 20

// rowsEnv is another number of rows for the memory test.
const rowsEnv = "HEADWAY_BULK_ROWS"

// TestMemoryIsBoundedByTheWindow pipes many rows into a load, of which one in
// a thousand is malformed, and watches the process.
func TestMemoryIsBoundedByTheWindow(t *testing.T) {
	rows := longtest.Size(150_000, 1_000_000)
	if text := os.Getenv(rowsEnv); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	var taken atomic.Int64
	server := harness.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		taken.Add(int64(bytes.Count(b, []byte(`{"id":`))))
	}))
	dir := t.TempDir()
	harness.Write(t, filepath.Join(dir, "target.yaml"), fmt.Sprintf("target: fast\nhttp: {url: \"%s\", resend: any}\n", server.URL))

	cmd := exec.CommandContext(t.Context(), harness.Program(), "bulk", "run", "-", "--target", "target.yaml", "--dir", load, "--quiet")
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		w := bufio.NewWriterSize(in, 64<<10)
		for n := range rows {
			end := "}\n"
			if n%1000 == 999 {
				end = "\n"
			}
			// A load that has ended shows below.
			_, _ = fmt.Fprintf(w, `{"id":%d,"name":"Row %d","city":"Springfield","amount":%d.5%s`, n, n, n%977, end)
		}
		_ = w.Flush()
		_ = in.Close()
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	peak := int64(0)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-look.C:
			peak = max(peak, highWater(cmd.Process.Pid))
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	bad := int64(rows / 1000)
	if taken.Load() != int64(rows)-bad {
		t.Errorf("the target took %d rows, want %d", taken.Load(), int64(rows)-bad)
	}
	p := &place{t: t, dir: dir}
	if s := p.status(); s.Acknowledged != int64(rows)-bad || s.Rejected != bad || s.Owed != 0 || !s.InputRead {
		t.Errorf("%+v", s.Totals)
	}
	if peak == 0 || peak > maxMemory {
		t.Errorf("the process took %d MiB at most, want no more than %d", peak>>20, maxMemory>>20)
	}
	t.Logf("%d rows in %v, %d MiB at most", rows, time.Since(began).Round(time.Millisecond), peak>>20)
}

// highWater is the most memory that a process had at once, in bytes; 0 when it
// has ended.
func highWater(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
