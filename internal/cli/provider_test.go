package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim/serve"
)

// served is a "provider serve" that runs in this process.
type served struct {
	url    string
	banner string
	client *http.Client
	stop   context.CancelFunc
	exit   chan int
	out    *pieces
	err    *pieces
}

// pieces is what was written, for readers on other goroutines; full is closed
// after the first piece.
type pieces struct {
	mu   sync.Mutex
	all  bytes.Buffer
	err  error
	once sync.Once
	full chan struct{}
}

// fail makes every later write fail.
func (p *pieces) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *pieces) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	defer p.once.Do(func() { close(p.full) })
	return p.all.Write(b)
}

func (p *pieces) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.String()
}

// provide starts one on a free port and waits for it to say where. As in a shell,
// the first argument may set the token's variable, which is empty otherwise.
func provide(t *testing.T, args ...string) *served {
	t.Helper()
	t.Setenv(tokenVariable, "")
	if len(args) > 0 {
		if value, ok := strings.CutPrefix(args[0], tokenVariable+"="); ok {
			t.Setenv(tokenVariable, value)
			args = args[1:]
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{
		stop: cancel, exit: make(chan int, 1), client: &http.Client{Transport: &http.Transport{}},
		out: &pieces{full: make(chan struct{})}, err: &pieces{full: make(chan struct{})},
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		s.exit <- run(ctx, append([]string{"provider", "serve", "--listen", ":0"}, args...), stdio{in: strings.NewReader(""), out: s.out, err: s.err})
	})
	t.Cleanup(func() {
		cancel()
		ended.Wait()
		s.client.CloseIdleConnections()
	})
	select {
	case <-s.err.full:
		s.banner = s.err.String()
	case code := <-s.exit:
		t.Fatalf("exit %d: %s", code, s.err)
	}
	s.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(s.banner)
	if s.url == "" {
		t.Fatalf("%q does not say where", s.banner)
	}
	return s
}

// get makes one request and gives its status and body.
func (s *served) get(t *testing.T, path, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// end stops it and gives the exit code and what it said last.
func (s *served) end() (int, string) {
	s.stop()
	code := <-s.exit
	return code, strings.TrimPrefix(s.err.String(), s.banner)
}

func TestServedProviderTellsWhatItServesAndWhatItDid(t *testing.T) {
	folder := t.TempDir()
	log, ready := filepath.Join(folder, "log.jsonl"), filepath.Join(folder, "url")
	for _, f := range []string{log, ready} { // left over from an earlier run
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := scenarioFile(t, "two.yaml", "name: two\nprovider: {latency: {p50: 1ms}, limits: [{kind: sliding_window, limit: 2, window: 1h}]}\n")
	s := provide(t, file, "--conversations", "5", "--log", log, "--ready-file", ready)
	if got, err := os.ReadFile(ready); err != nil || string(got) != s.url+"\n" {
		t.Errorf("ready file %q, %v, want the address %s", got, err, s.url)
	}
	if strings.Count(s.banner, "\n") != 1 {
		t.Errorf("%q is not one line", s.banner)
	}
	for _, want := range []string{"serving two at " + s.url, "sliding_window 2/1h", "5 conversations", "Ctrl-C", "curl -i '" + s.url + "/conversations?limit=2'"} {
		if !strings.Contains(s.banner, want) {
			t.Errorf("banner %q does not say %q", s.banner, want)
		}
	}
	var statuses []int
	for range 3 {
		status, _ := s.get(t, "/conversations?limit=2", "")
		statuses = append(statuses, status)
	}
	if diff := cmp.Diff([]int{200, 200, 429}, statuses); diff != "" {
		t.Error(diff)
	}
	code, last := s.end()
	if code != exitOK || !strings.Contains(last, "2 admitted, 1 refused (1 by sliding_window 2/1h)") {
		t.Errorf("exit %d, %q, want %d and the counts", code, last, exitOK)
	}
	if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ready file outlives the server: %v", err)
	}
	if s.out.String() != "" {
		t.Errorf("standard output has %q", s.out)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	logged := map[bool]int{}
	for e, err := range serve.ReadLog(f) {
		if err != nil {
			t.Fatal(err)
		}
		logged[e.Admitted]++
	}
	if want := (map[bool]int{true: 2, false: 1}); !maps.Equal(logged, want) {
		t.Errorf("log has %v, want %v", logged, want)
	}
}

func TestTheSameSeedServesTheSameData(t *testing.T) {
	serveOnce := func(args ...string) (page string) {
		s := provide(t, args...)
		_, page = s.get(t, "/conversations?limit=100", "")
		s.end()
		return page
	}
	first := serveOnce("--seed", "4", "--conversations", "20")
	if again := serveOnce("--seed", "4", "--conversations", "20"); again != first {
		t.Errorf("two starts serve %s and %s", first, again)
	}
	for _, other := range [][]string{
		{"--seed", "5", "--conversations", "20"},
		{"--seed", "4", "--conversations", "19"},
		{"--seed", "4", "--conversations", "20", "--messages", "3"},
		{"--seed", "4", "--conversations", "20", "--updated", "1"},
	} {
		if serveOnce(other...) == first {
			t.Errorf("%v serves the same", other)
		}
	}
}

func TestATokenIsAskedForAndNeverShown(t *testing.T) {
	const token = "sesame-0123"
	const all = "0.0.0.0:0" // with a token others may come
	for from, args := range map[string][]string{
		"flag":        {"--listen", all, "--token", token},
		"environment": {tokenVariable + "=" + token, "--listen", all},
		"both":        {tokenVariable + "=other", "--listen", all, "--token", token},
	} {
		t.Run(from, func(t *testing.T) {
			s := provide(t, args...)
			if !strings.HasPrefix(s.url, "http://127.0.0.1:") {
				t.Errorf("address %s, want one that clients here can use", s.url)
			}
			without, _ := s.get(t, "/conversations", "")
			with, _ := s.get(t, "/conversations", token)
			if without != 401 || with != 200 {
				t.Errorf("statuses %d without and %d with the token, want 401 and 200", without, with)
			}
			code, last := s.end()
			if code != exitOK || !strings.Contains(last, "1 admitted, 0 refused, 1 without the token") {
				t.Errorf("exit %d, %q, want both counted", code, last)
			}
			if strings.Contains(s.err.String(), token) || !strings.Contains(s.banner, "$"+tokenVariable) {
				t.Errorf("%q should name the variable and not the token", s.err)
			}
		})
	}
}
