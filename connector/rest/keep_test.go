package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/reason"
)

// rotating is a token endpoint that takes each refresh token once, and an API
// that takes the newest access token. Tokens have no end that is said.
type rotating struct {
	mu      sync.Mutex
	valid   string
	tokens  int
	reused  int
	expired bool // the access token is refused once
	keeps   bool // the endpoint does not rotate
}

func (o *rotating) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.URL.Path != "/token" {
		if o.expired {
			o.expired = false
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"items":[]}`)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.FormValue("refresh_token") != o.valid {
		o.reused++
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	o.tokens++
	if o.keeps {
		fmt.Fprintf(w, `{"access_token":"access-%d"}`, o.tokens)
		return
	}
	o.valid = fmt.Sprintf("rotated-%d", o.tokens)
	fmt.Fprintf(w, `{"access_token":"access-%d","refresh_token":%q}`, o.tokens, o.valid)
}

// keeping is a connector that keeps its tokens beside a state file.
func keeping(t *testing.T, base, state, more string) *Connector {
	t.Helper()
	c := oauthConnector(t, base, "refresh_token: ${CHAT_TOKEN}"+more)
	KeepTokens(state)(c)
	return c
}

func keptIn(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, want 0600", path, info.Mode())
	}
	return kept(t, path)["refresh_token"]
}

// kept is the content of a token's file.
func kept(t *testing.T, path string) (k map[string]string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestARotatedRefreshTokenOutlivesTheProcess(t *testing.T) {
	o := &rotating{valid: canary}
	s, call := serve(t, o.ServeHTTP)
	state := filepath.Join(t.TempDir(), "new", "state.db")
	for n := 1; n <= 3; n++ { // each a process of its own
		if _, err := list(t, keeping(t, s.URL, state, ""), call); err != nil {
			t.Fatalf("process %d: %v", n, err)
		}
		if got, want := keptIn(t, state+".test.oauth"), fmt.Sprintf("rotated-%d", n); got != want {
			t.Errorf("kept %q, want %q", got, want)
		}
	}
	// A token that its owner replaced in the connection goes first.
	o.valid = "from the owner"
	c := keeping(t, s.URL, state, "")
	c.config.Provider.Auth.OAuth2.RefreshToken = configfile.NewSecret("x", "from the owner")
	if _, err := list(t, c, call); err != nil {
		t.Errorf("the owner's new token: %v", err)
	}
	if left, _ := filepath.Glob(state + "*.new"); left != nil {
		t.Errorf("left behind: %q", left)
	}
	// An endpoint that does not rotate leaves the file as it is.
	o.keeps, o.expired = true, true
	if _, err := list(t, c, call); err != nil || o.tokens != 5 || keptIn(t, state+".test.oauth") != "rotated-4" {
		t.Errorf("got %v after %d tokens", err, o.tokens)
	}
	if o.reused != 0 {
		t.Errorf("%d tokens were used twice", o.reused)
	}
}

func TestProcessesShareARotatedToken(t *testing.T) {
	o := &rotating{valid: canary}
	s, _ := serve(t, o.ServeHTTP)
	file := filepath.Join(t.TempDir(), "token.json")
	var wg sync.WaitGroup
	for range 8 {
		c := keeping(t, s.URL, filepath.Join(t.TempDir(), "state.db"), ", token_file: "+file)
		wg.Go(func() {
			if _, err := list(t, c, &direct{client: s.Client()}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if o.tokens != 8 || o.reused != 0 || keptIn(t, file) != "rotated-8" {
		t.Errorf("%d tokens, %d used twice", o.tokens, o.reused)
	}
}

// A process that was killed between writing the token and putting it in place.
func TestATokenThatWasNotPutInPlaceYetCounts(t *testing.T) {
	o := &rotating{}
	s, call := serve(t, o.ServeHTTP)
	state := filepath.Join(t.TempDir(), "state.db")
	o.valid = canary
	if _, err := list(t, keeping(t, s.URL, state, ""), call); err != nil {
		t.Fatal(err)
	}
	k := kept(t, state+".test.oauth")
	c := keeping(t, s.URL, state, "")
	o.valid, o.tokens = "newest", 0
	for path, token := range map[string]string{".test.oauth": "older", ".test.oauth.new": "newest"} {
		k["refresh_token"] = token
		b, err := json.Marshal(k)
		if err == nil {
			err = os.WriteFile(state+path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := list(t, c, call); err != nil || o.reused != 0 || keptIn(t, state+".test.oauth") != "rotated-1" {
		t.Errorf("got %v, %d used twice", err, o.reused)
	}
	// Room that was reserved and not filled is not a token.
	if err := os.WriteFile(state+".test.oauth.new", make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := list(t, keeping(t, s.URL, state, ""), call); err != nil || o.reused != 0 {
		t.Errorf("got %v, %d used twice", err, o.reused)
	}
}

// failing is a disk on which some operations fail.
type failing struct {
	disk.OS
	write, rename error
}

type failingFile struct {
	disk.File
	write error
}

func (f failingFile) Write([]byte) (int, error) { return 0, f.write }

func (d *failing) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(path, flag, perm)
	if d.write != nil && err == nil {
		f = failingFile{f, &fs.PathError{Op: "write", Path: path, Err: d.write}}
	}
	return f, err
}

func (d *failing) Rename(from, to string) error {
	if d.rename != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: d.rename}
	}
	return d.OS.Rename(from, to)
}

func TestAFullDiskUsesNoTokenUp(t *testing.T) {
	o := &rotating{valid: canary}
	s, call := serve(t, o.ServeHTTP)
	state := filepath.Join(t.TempDir(), "state.db")
	c := keeping(t, s.URL, state, "")
	d := &failing{write: syscall.ENOSPC}
	c.tokens.Keep(state+".test.oauth", d)
	for range 2 {
		_, err := list(t, c, call)
		f, ok := errors.AsType[*connector.Failure](err)
		if !ok || f.Reason != reason.Internal || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the refresh token cannot be kept in "+state+".test.oauth: no space left") {
			t.Fatalf("got %v", err)
		}
	}
	if o.tokens != 0 {
		t.Fatalf("%d tokens were used up", o.tokens)
	}
	// Where the disk fails only afterwards, the process still has the token.
	d.write, d.rename = nil, syscall.EIO
	if _, err := list(t, c, call); !errors.Is(err, syscall.EIO) || o.tokens != 1 {
		t.Fatalf("got %v after %d tokens", err, o.tokens)
	}
	d.rename = nil
	if _, err := list(t, c, call); err != nil || o.reused != 0 || keptIn(t, state+".test.oauth") != "rotated-2" {
		t.Errorf("got %v, %d used twice", err, o.reused)
	}
}

func TestATokenFileThatIsNoneIsLeftAlone(t *testing.T) {
	o := &rotating{valid: canary}
	s, call := serve(t, o.ServeHTTP)
	state := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(state+".test.oauth", []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := list(t, keeping(t, s.URL, state, ""), call)
	if err == nil || !strings.Contains(err.Error(), "it is not a token's file; remove it") || strings.Contains(err.Error(), canary) || o.tokens != 0 {
		t.Errorf("got %v after %d tokens", err, o.tokens)
	}
}

// A process is killed, or its connection ends, after the provider has rotated the
// token and before the answer is there: the next one is refused, and says why and
// what to do, as long as that is so.
func TestARotationWhoseAnswerIsLostIsSaid(t *testing.T) {
	o := &rotating{valid: canary}
	var lose atomic.Bool
	lose.Store(true)
	s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if lose.Load() && r.URL.Path == "/token" {
			o.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		o.ServeHTTP(w, r)
	})
	state := filepath.Join(t.TempDir(), "state.db")
	if _, err := list(t, keeping(t, s.URL, state, ""), call); err == nil {
		t.Fatal("an answer that was lost was taken")
	}
	lose.Store(false)
	for range 2 {
		_, err := list(t, keeping(t, s.URL, state, ""), call)
		f, ok := errors.AsType[*connector.Failure](err)
		if !ok || f.Reason != reason.Unauthorized || !strings.Contains(err.Error(), "an earlier renewal was cut off") || !strings.Contains(err.Error(), "oauth2.refresh_token") {
			t.Fatalf("got %v", err)
		}
		if strings.Contains(err.Error(), canary) {
			t.Fatalf("the error has the token: %v", err)
		}
	}
	// The owner authorizes again.
	o.valid = "from the owner"
	c := keeping(t, s.URL, state, "")
	c.config.Provider.Auth.OAuth2.RefreshToken = configfile.NewSecret("x", "from the owner")
	if _, err := list(t, c, call); err != nil {
		t.Fatal(err)
	}
	// A token that is refused without such a history is the owner's to look at.
	if err := os.Remove(state + ".test.oauth"); err != nil {
		t.Fatal(err)
	}
	if _, err := list(t, keeping(t, s.URL, state, ""), call); err == nil || strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v", err)
	}
}

// A provider that had not rotated the token, or still takes the old one for a
// while, gets it again.
func TestARenewalThatWasCutOffIsTriedAgainWithTheSameToken(t *testing.T) {
	o := &rotating{valid: canary}
	var lose atomic.Bool
	lose.Store(true)
	s, call := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if lose.Load() {
			panic(http.ErrAbortHandler)
		}
		o.ServeHTTP(w, r)
	})
	state := filepath.Join(t.TempDir(), "state.db")
	if _, err := list(t, keeping(t, s.URL, state, ""), call); err == nil {
		t.Fatal("an answer that was lost was taken")
	}
	lose.Store(false)
	if _, err := list(t, keeping(t, s.URL, state, ""), call); err != nil || o.reused != 0 {
		t.Fatalf("got %v, %d used twice", err, o.reused)
	}
	if left, _ := filepath.Glob(state + "*.new"); left != nil {
		t.Errorf("left behind: %q", left)
	}
}
