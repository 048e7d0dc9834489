//go:build unix

package hold_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/sim/serve"
)

// connection is a connection file. Zero fields take defaults that are fast.
type connection struct {
	auth     string // default: a bearer token
	ceiling  string
	step     string
	page     int
	provider string // more of the provider section, indented by two
	run      string // default: as long as it takes
	sink     string // default: files in the folder out
}

// pageSize is the default of connection.page.
const pageSize = 5

func (c connection) yaml() string {
	return fmt.Sprintf(`connection: chat-archive
provider:
  base_url: ${CHAT_URL}
  auth: %s
  ceiling: %s
  pacing: {initial: 1ms, step: %s, law: aimd, jitter: 0s}
%sstreams:
  - name: conversations
    list: {path: /conversations, query: {limit: "%d"}}
    records: .items
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    incremental: {cursor: .updated_at, param: updated_after}
    detail:
      stream: messages
      path: /conversations/{key}
      records: .messages
      key: .id
run: %s
sink: %s
`, cmp.Or(c.auth, "{bearer: ${CHAT_TOKEN}}"), cmp.Or(c.ceiling, "1ms"), cmp.Or(c.step, "1ms"), c.provider,
		cmp.Or(c.page, pageSize), cmp.Or(c.run, "{max_wall_clock: 15m}"), cmp.Or(c.sink, "{jsonl: {dir: ./out}}"))
}

// workplace is a folder with a connection file, its state and its output.
type workplace struct{ harness.Workplace }

func newWorkplace(t *testing.T, url string, c connection) workplace {
	t.Helper()
	return workplace{harness.NewWorkplace(t, url, c.yaml())}
}

// headway runs the program to its end.
func (w workplace) headway(t *testing.T, args ...string) harness.Outcome {
	t.Helper()
	return w.Headway(t, args...).Wait(t)
}

// records are the lines of a stream's file by id.
func (w workplace) records(t *testing.T, stream string) map[string]string {
	t.Helper()
	_, texts := w.Records(t, stream)
	return texts
}

// truthOf reads everything that a provider with these data has.
func truthOf(t *testing.T, data serve.Options) harness.Truth {
	t.Helper()
	return harness.TruthOf(t, data, 100)
}

// at is the same folder with another provider, and more in the environment.
func (w workplace) at(url string, env ...string) workplace {
	w.Env = append([]string{"CHAT_URL=" + url, "CHAT_TOKEN=" + harness.Token}, env...)
	return w
}

// healed runs until nothing is left, as an operator does once the provider is
// well: what is owed is made due at once. It must take two runs at most.
func (w workplace) healed(t *testing.T, want harness.Truth) {
	t.Helper()
	if _, err := os.Stat(w.State()); err == nil {
		if o := w.headway(t, "gaps", "retry", "--all"); o.Code != 0 {
			t.Errorf("gaps retry: %s", o)
		}
	}
	if o := w.Collect(t); o.Code != harness.ExitDrained {
		t.Errorf("when all was well again: %s", o)
	}
	w.Complete(t, want)
}

// files are the contents of all files below the given folders, by path. Locks are not
// among them: they name who had them last.
func (w workplace) files(t *testing.T, below ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range below {
		err := filepath.WalkDir(filepath.Join(w.Dir, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, ".lock") {
				return err
			}
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// says fails unless the program said each of the texts.
func says(t *testing.T, o harness.Outcome, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.Stdout+o.Stderr, text) {
			t.Errorf("nothing says %q: %s", text, o)
		}
	}
}
