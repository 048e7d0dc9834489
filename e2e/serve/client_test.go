//go:build unix

package serve_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/keys"
)

// curl is the command, installed where it is missing and this is root on Debian.
func curl(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err == nil {
		return path
	}
	if os.Getuid() != 0 {
		t.Skip("this test needs curl (Debian: apt-get install curl)")
	}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "curl"}} {
		cmd := exec.CommandContext(t.Context(), "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("curl is missing, and apt-get %s failed: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if path, err = exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	return path
}

// TestOffersOfHTTP2AreNoObstacle has curl offer h2c, as the JDK's HttpClient does
// by default, to the daemon as it is shipped.
func TestOffersOfHTTP2AreNoObstacle(t *testing.T) {
	dir := t.TempDir()
	configuration(t, dir, provider(t, dir), "")
	_, url := serve(t, dir)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"h2c": {[]string{"--http2"}, "200"},
		"websocket": {[]string{"-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13",
			"-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, "501"},
	} {
		args := append([]string{"-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Content-Type: application/json",
			"-d", `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"say hello"}]}`}, c.args...)
		out, err := exec.CommandContext(t.Context(), curl(t), append(args, url+"/openai/v1/chat/completions")...).CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %s, error %v, want %s", name, out, err, c.want)
		}
	}
}

// TestCheckRefusesKeysThatAreOfNoUse runs the command that people run before a
// reload.
func TestCheckRefusesKeysThatAreOfNoUse(t *testing.T) {
	dir := t.TempDir()
	_, hash := keys.Generate()
	for more, want := range map[string]string{
		"expires: 2020-01-31":  `headway.yaml: keys[0].expires is 2020-01-31T00:00:00Z, which is past: the key "a" lets nobody in`,
		"providers: [nowhere]": `headway.yaml: keys[0].providers[0] is "nowhere", which is not a provider here`,
		"providers: [openai]":  "",
		`providers: ["open*"]`: "",
		"expires: 2999-01-31":  "",
	} {
		configuration(t, dir, "http://127.0.0.1:1", "keys: [{id: a, hash: \""+hash+"\", "+more+"}]\n")
		o := harness.Launch(t, dir, []string{"KEY=" + harness.Token}, "serve", "--check", "headway.yaml").Wait(t)
		if (o.Code == 0) != (want == "") || !strings.Contains(o.Stderr, want) {
			t.Errorf("%s: %s", more, o)
		}
	}
}

// TestKeysAreIssuedAndRevokedWhileTheDaemonRuns goes through a key's life by the
// command line, a restart included.
func TestKeysAreIssuedAndRevokedWhileTheDaemonRuns(t *testing.T) {
	dir := t.TempDir()
	first, hash := keys.Generate()
	admin, adminHash := keys.Generate()
	configuration(t, dir, provider(t, dir), "keys: [{id: first, hash: \""+hash+"\"}]\nadmin_keys: [{id: ops, hash: \""+adminHash+"\"}]\n")
	p, url := serve(t, dir)
	key := func(args ...string) harness.Outcome {
		return harness.Launch(t, dir, []string{"HEADWAY_KEY=" + admin, "HEADWAY_SERVER=" + url}, append([]string{"key"}, args...)...).Wait(t)
	}
	status := func(secret string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/openai/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	o := key("new", "--id", "second", "--tenant", "t", "--model", "gpt-*", "--uploads", "--json")
	var made struct{ Secret, ID, Tenant string }
	if err := json.Unmarshal([]byte(o.Stdout), &made); err != nil || o.Code != 0 || made.ID != "second" || made.Tenant != "t" {
		t.Fatalf("%s, %v", o, err)
	}
	if a, b, c := status(first), status(made.Secret), status("hw_nothing"); a == 401 || b == 401 || c != 401 {
		t.Errorf("the configured key %d, the issued one %d, none %d", a, b, c)
	}
	if o := key("new", "--id", "second"); o.Code == 0 || !strings.Contains(o.Stderr, "there is a key of that id") {
		t.Errorf("twice: %s", o)
	}
	want := "first: (configured)\nsecond: tenant t models gpt-* uploads (issued)\n"
	if o := key("list"); o.Stdout != want {
		t.Errorf("the list: %s", o)
	}
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
	if b, err := os.ReadFile(filepath.Join(dir, "state", "keys.json")); err != nil || strings.Contains(string(b), made.Secret) {
		t.Errorf("the file of keys: %s, %v", b, err)
	}
	_, url = serve(t, dir)
	if got := status(made.Secret); got == 401 {
		t.Errorf("after a restart: %d", got)
	}
	if o := key("revoke", "second"); o.Code != 0 {
		t.Errorf("revoke: %s", o)
	}
	if got := status(made.Secret); got != 401 {
		t.Errorf("after it was revoked: %d", got)
	}
	if o := key("revoke", "first"); o.Code == 0 || !strings.Contains(o.Stderr, "delete its lines and reload") {
		t.Errorf("revoking a configured key: %s", o)
	}
	if got := status(first); got == 401 {
		t.Errorf("the configured key: %d", got)
	}
}
