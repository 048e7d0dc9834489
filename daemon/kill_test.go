package daemon_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/quota/governor"
)

// TestWhatCallsUseSurvivesAKill: a call that a kill cuts is in the books by its
// estimate, so that an estimate far below what calls use would hand out part of the
// day again after each kill.
func TestWhatCallsUseSurvivesAKill(t *testing.T) {
	const output, calls = 2000, 6
	reached, let := make(chan struct{}), make(chan struct{})
	var holds atomic.Bool
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if holds.Load() {
			close(reached)
			<-let
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.NewReplacer(`"completion_tokens":5`, `"completion_tokens":2000`, `:10}`, `:2005}`).Replace(answer))
	})
	text := openai(url, "    quota: {global: {max_daily_tokens: 1000000}}\n")
	first, second := place(t), place(t)
	first.start(text)
	for range calls {
		if status, _, body := first.call(""); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	was, is := filepath.Join(first.dir, "state"), filepath.Join(second.dir, "state")
	eventually(t, "what was learned is stored while it runs", func() bool {
		b, err := os.ReadFile(filepath.Join(was, "rates.json"))
		return err == nil && strings.Contains(string(b), `"estimates"`)
	})
	if err := os.Mkdir(is, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rates.json", "quota-openai.json"} { // as a kill leaves them
		b, err := os.ReadFile(filepath.Join(was, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(is, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second.start(text)
	holds.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		second.call("")
	}()
	<-reached
	use, err := governor.ReadFile(filepath.Join(is, "quota-openai.json"))
	close(let)
	<-done
	if err != nil || len(use) == 0 {
		t.Fatal(use, err)
	}
	if held := use[0].Tokens - calls*(output+5); held < output/2 {
		t.Errorf("a call under way is stored as %d tokens, where the calls before it used %d", held, output)
	}
}
