//go:build unix

package hold_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// login is a provider with a token endpoint that takes each refresh token once.
type login struct {
	mu     sync.Mutex
	valid  string
	tokens int
	reused int
	listed chan struct{} // gets a value when the list is asked for the first time
	hold   chan struct{} // closed to let the list answer
}

func (l *login) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/token" {
		select {
		case l.listed <- struct{}{}:
		default:
		}
		select {
		case <-l.hold:
		case <-r.Context().Done():
		}
		_, _ = fmt.Fprint(w, `{"items": [{"id": "1"}]}`)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.FormValue("refresh_token") != l.valid {
		l.reused++
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(w, `{"error": "invalid_grant"}`)
		return
	}
	l.tokens++
	l.valid = fmt.Sprintf("%s-%d", harness.Token, l.tokens)
	_, _ = fmt.Fprintf(w, `{"access_token": "%s-access-%d", "refresh_token": %q}`, harness.Token, l.tokens, l.valid)
}

func TestARotatedTokenSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	l := &login{valid: harness.Token, listed: make(chan struct{}, 1), hold: make(chan struct{})}
	s := harness.Serve(t, l)
	w := harness.NewWorkplace(t, s.URL, fmt.Sprintf(`
connection: login
provider:
  base_url: %q
  auth: {oauth2: {token_url: "%s/token", client_id: me, refresh_token: "${CHAT_TOKEN}"}}
  ceiling: 1ms
  pacing: {initial: 1ms}
streams:
  - {name: docs, list: {path: /docs}, records: .items, key: .id}
sink: {jsonl: {dir: ./out}}
`, s.URL, s.URL))
	p := w.Start(t)
	select {
	case <-l.listed:
	case <-p.Ended():
		t.Fatal("the run ended before it asked for the list")
	}
	p.Signal(t, syscall.SIGKILL)
	p.Wait(t)
	close(l.hold)
	said := ""
	for range 2 {
		o := w.Collect(t, "--json")
		if o.Code != harness.ExitDrained && o.Code != harness.ExitDeferred || strings.Contains(o.String(), "unauthorized") {
			t.Fatalf("after the kill: %s", o)
		}
		said += o.String()
		if o.Code == harness.ExitDrained {
			break
		}
	}
	if l.reused != 0 || l.tokens < 2 {
		t.Errorf("%d tokens were given, %d were used twice", l.tokens, l.reused)
	}
	info, err := os.Stat(w.State() + ".login.oauth")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kept token: %v, %v", info, err)
	}
	// It stands there and nowhere else.
	if strings.Contains(said, harness.Token) {
		t.Errorf("the run printed a token:\n%s", said)
	}
	err = filepath.WalkDir(w.Dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, ".oauth") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), harness.Token) {
			t.Errorf("a token stands in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
