package cli

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/ca"
	"github.com/headway-go/headway/internal/forward"
)

// ran runs a command behind a proxy for api.test, with a state folder of its own.
func ran(t *testing.T, flags string, command ...string) (code int, out, errs string) {
	t.Helper()
	args := append([]string{"run", "--host", "api.test"}, strings.Fields(flags)...)
	if !strings.Contains(flags, "--state") {
		args = append(args, "--state", filepath.Join(t.TempDir(), "state"))
	}
	return headway(t, append(append(args, "--"), command...)...)
}

func TestTheExitCodeIsThatOfTheCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code    int
		command []string
		errs    string
	}{
		{0, []string{"true"}, "no request came through: true"},
		{3, []string{"sh", "-c", "exit 3"}, "no request came through: sh"},
		{143, []string{"sh", "-c", "kill -TERM $$"}, ""},
		{137, []string{"sh", "-c", "kill -KILL $$"}, ""},
		{exitNotFound, []string{"no-such-command"}, "cannot be started"},
		{exitNotExecutable, []string{file}, "cannot be started"},
	} {
		code, _, errs := ran(t, "", tt.command...)
		if code != tt.code || !strings.Contains(errs, tt.errs) {
			t.Errorf("%v: exit %d, want %d: %s", tt.command, code, tt.code, errs)
		}
	}
	if code, out, errs := ran(t, "-q", "sh", "-c", "echo out; echo err >&2"); code != 0 || out != "out\n" || errs != "err\n" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	var s forward.Summary
	if _, _, errs := ran(t, "--json", "true"); json.Unmarshal([]byte(errs), &s) != nil || s.Connections == nil {
		t.Errorf("not a summary: %s", errs)
	}
}

func TestBadUsageOfRun(t *testing.T) {
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("api.test # ours\n\nhttps://x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"run -- true":                                          "nothing to govern",
		"run --host a.test":                                    "no command to run",
		"run --host a.test true":                               "put -- before the command",
		"run --host https://a.test -- true":                    "without scheme, port or path",
		"run --host a.test:443 -- true":                        "without scheme, port or path",
		"run --host @" + hosts + " -- true":                    "hosts:3: ",
		"run --host @" + empty + " -- true":                    "names no host",
		"run --host @" + dir + "/none -- true":                 "no such file",
		"run --profile githib -- true":                         "did you mean github?",
		"run --host a --profile github --profile slack -- x":   "one --profile at most",
		"run --host a.test --max-outage 25h -- true":           "--max-outage is 25h0m0s, must be from 1s to 24h",
		"run --host a.test --max-wait 1ms -- true":             "--max-wait is 1ms, must be from 1s to 24h",
		"run --host a.test --ceiling 1us -- true":              "--ceiling is 1µs, must be from 1ms to 24h",
		"run --host a.test --resend P@ST -- true":              "--resend has \"P@ST\"",
		"run --host a.test --fleet http://x -- true":           "--fleet",
		"proxy --host a.test --listen 0.0.0.0:0":               "--listen is \"0.0.0.0:0\", must be an address of this machine alone",
		"proxy --host a.test x":                                "needs no argument",
		"ca export --host a/b --state " + dir:                  "no certificate authority",
		"ca show --state " + dir:                               "no certificate authority",
		"ca bogus":                                             "unknown command",
		"run --host a.test --state " + dir + "/x --bogus -- x": "unknown flag",
	} {
		if code, out, errs := headway(t, strings.Fields(line)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("headway %s: exit %d, %s%s, want %s", line, code, out, errs, want)
		}
	}
}

func variables(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[name] = value
		}
	}
	return all
}

// The command's environment is ours, with the variables that --print-env shows, and
// nothing else changed.
func TestTheEnvironmentIsTheOneThatIsShown(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.pem")
	if err := os.WriteFile(mine, []byte("# mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REQUESTS_CA_BUNDLE", mine)
	t.Setenv("NO_PROXY", "internal.test, .test,10.0.0.0/8")
	t.Setenv("JAVA_TOOL_OPTIONS", "-Dmine=1")
	t.Setenv("HTTPS_PROXY", "")
	_, shown, _ := headway(t, "run", "--host", "api.test", "--print-env")
	names := slices.Sorted(maps.Keys(variables(shown)))
	want := strings.Fields(`AWS_CA_BUNDLE CARGO_HTTP_CAINFO CURL_CA_BUNDLE DENO_CERT GIT_SSL_CAINFO GRPC_DEFAULT_SSL_ROOTS_FILE_PATH HTTPS_PROXY HTTP_PROXY
		JAVA_TOOL_OPTIONS NODE_EXTRA_CA_CERTS NODE_USE_ENV_PROXY NO_PROXY PERL_LWP_ENV_PROXY PERL_LWP_SSL_CA_FILE PHP_INI_SCAN_DIR PIP_CERT REQUESTS_CA_BUNDLE
		SSL_CERT_FILE http_proxy https_proxy no_proxy npm_config_cafile`)
	if !slices.Equal(names, want) {
		t.Errorf("it shows %v", names)
	}
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "run.md"))
	for _, name := range want {
		if err != nil || !strings.Contains(string(guide), name) {
			t.Errorf("the guide does not name %s: %v", name, err)
		}
	}
	_, bare, _ := ran(t, "-q", "sh", "-c", `env; cat "$SSL_CERT_FILE" | tail -20; ls "$(dirname "$SSL_CERT_FILE")"; cat "$(dirname "$SSL_CERT_FILE")"/php/*`)
	got := variables(bare)
	for _, line := range os.Environ() {
		name, value, _ := strings.Cut(line, "=")
		if !slices.Contains(want, name) && name != "_" && name != "SHLVL" && name != "PWD" && name != "OLDPWD" && !strings.Contains(value, "\n") && got[name] != value {
			t.Errorf("%s was %q and is %q", name, value, got[name])
		}
	}
	if no := got["NO_PROXY"]; no != "localhost,127.0.0.1,::1,internal.test,10.0.0.0/8" || got["no_proxy"] != no {
		t.Errorf("NO_PROXY is %s", no)
	}
	if java := got["JAVA_TOOL_OPTIONS"]; !strings.HasPrefix(java, "-Dmine=1 -Dhttp.proxyHost=127.0.0.1 ") || strings.Contains(java, "headway:") {
		t.Errorf("JAVA_TOOL_OPTIONS is %s", java)
	}
	if !strings.HasPrefix(got["HTTPS_PROXY"], "http://headway:") || !strings.Contains(bare, "BEGIN CERTIFICATE") || !strings.Contains(bare, "openssl.cafile=") {
		t.Errorf("got %s", bare)
	}
	if _, err := os.Stat(filepath.Dir(got["SSL_CERT_FILE"])); !os.IsNotExist(err) {
		t.Errorf("its files are left: %v", err)
	}
	t.Setenv("REQUESTS_CA_BUNDLE", mine+".missing")
	if code, _, errs := ran(t, "", "true"); code != exitUsage || !strings.Contains(errs, "$REQUESTS_CA_BUNDLE") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestTheAuthorityIsShownExportedAndReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if code, _, errs := ran(t, "-q --state "+dir, "true"); code != 0 || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	show := func() (s shownCA) {
		code, out, errs := headway(t, "ca", "show", "--state", dir, "--json")
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != 0 {
			t.Fatalf("exit %d, %s%s", code, out, errs)
		}
		return s
	}
	before := show()
	if _, out, _ := headway(t, "ca", "show", "--state", dir); !strings.Contains(out, before.Fingerprint) || !strings.Contains(out, before.Until.Format("2006-01-02")) {
		t.Error(out)
	}
	for args, names := range map[string][]string{"": nil, "--host api.test": {"api.test"}} {
		code, out, errs := headway(t, append([]string{"ca", "export", "--state", dir}, strings.Fields(args)...)...)
		block, _ := pem.Decode([]byte(out))
		if code != 0 || block == nil {
			t.Fatalf("exit %d, %s%s", code, out, errs)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !slices.Equal(c.PermittedDNSDomains, names) || strings.Contains(out, "PRIVATE") {
			t.Errorf("%q: %v, for %v", args, err, c.PermittedDNSDomains)
		}
	}
	if code, _, errs := headway(t, "ca", "rotate", "--state", dir); code != 0 || show().Fingerprint == before.Fingerprint {
		t.Errorf("exit %d, %s", code, errs)
	}
	if err := os.Chmod(filepath.Join(dir, "ca.pem"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := ran(t, "--state "+dir, "true"); code != exitInternal || !strings.Contains(errs, "others may read its key") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "ca.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o770, 0o707, 0o700} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"run", "--host", "api.test", "-q", "--state", dir, "--", "true"}, {"ca", "show", "--state", dir}, {"ca", "rotate", "--state", dir}} {
			code, _, errs := headway(t, args...)
			if refused := strings.Contains(errs, "others may replace the certificate authority"); refused != (mode != 0o700) || refused != (code == exitInternal) {
				t.Errorf("%v in a folder of mode %#o: exit %d, %s", args, mode, code, errs)
			}
		}
	}
	if code, _, errs := ran(t, "-q --state "+dir, "true"); code != 0 || !strings.Contains(errs, "warning: the rates learned before") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// An authority that cannot be used ends the command before anything is run, and the error says
// what makes a new one.
func TestAnAuthorityThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(dir string)
		code    int
		want    string
	}{
		"expired": {func(dir string) {
			synctest.Test(t, func(t *testing.T) { // where it is the year 2000
				if _, err := ca.Open(t.Context(), dir); err != nil {
					t.Fatal(err)
				}
			})
		}, exitUsage, "was valid until 200"},
		"damaged": {func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, ca.File), []byte("canary"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, exitInternal, "does not hold an authority of headway"},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c.prepare(dir)
		for _, args := range []string{"run --host a.test --state " + dir + " -- echo ran", "proxy --host a.test --listen 127.0.0.1:0 --state " + dir} {
			code, out, errs := headway(t, strings.Fields(args)...)
			if code != c.code || out != "" || !strings.Contains(errs, c.want) || !strings.Contains(errs, `run "headway ca rotate"`) || strings.Contains(errs, "canary") {
				t.Errorf("%s: headway %s: exit %d, %s%s", name, args, code, out, errs)
			}
		}
		if code, _, errs := headway(t, "ca", "rotate", "--state", dir); code != 0 {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
		if code, out, errs := ran(t, "-q --state "+dir, "echo", "ran"); code != 0 || out != "ran\n" || errs != "" {
			t.Errorf("%s, and rotated: exit %d, %s%s", name, code, out, errs)
		}
	}
}

// A run says that its authority ends soon, while there is time.
func TestAnAuthorityThatEndsSoon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	a, err := ca.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	secret, rest := pem.Decode(b)
	block, _ := pem.Decode(rest)
	key, err := x509.ParseECPrivateKey(secret.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int]bool{20: true, 40: false} {
		c.NotAfter = time.Now().AddDate(0, 0, days)
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		b = append(pem.EncodeToMemory(secret), pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der})...)
		if err := os.WriteFile(a.Path(), b, 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := ran(t, "-q --state "+dir, "true")
		if code != 0 || strings.Contains(errs, "the certificate authority is valid until "+c.NotAfter.Format(time.DateOnly)) != want {
			t.Errorf("with %d days left: exit %d, %s", days, code, errs)
		}
	}
}

func TestAllIsSaidToBeAll(t *testing.T) {
	code, _, errs := headway(t, "run", "--all", "--state", filepath.Join(t.TempDir(), "state"), "--", "true")
	if code != 0 || !strings.Contains(errs, "warning: --all decrypts every connection") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// With a profile and no host, the profile's hosts are governed; a host has the profile that
// comes with headway for it.
func TestHostsAndProfilesAreFoundByEachOther(t *testing.T) {
	g := governing{profiles: []string{"github", "slack"}}
	if err := g.name(); err != nil || !slices.Contains(g.rules, forward.Rule{Pattern: "api.github.com", Profile: "github"}) {
		t.Errorf("%v, %v", g.rules, err)
	}
	for host, want := range map[string]string{"api.github.com": "github", "slack.com": "slack", "example.test": ""} {
		name, find := forward.Profiles(g.rules)(host)
		if name != want {
			t.Errorf("%s has the profile %q, want %q", host, name, want)
		}
		if want != "" {
			if p, err := find(); err != nil || p.Name() != want {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
}

func TestTheSummaryNamesWhatCameOfRequests(t *testing.T) {
	s := forward.Summary{
		Connections: []forward.Connection{{Name: "github", Requests: 1234, Attempts: 1240, Throttled: 7, Held: 6, Passed: 1, Refused: 2, Waits: 30, WaitedMS: 90_000}},
		Distrusted:  []forward.Host{{Host: "pinned.test", Count: 1}}, NotHTTP: 1, Unauthenticated: 2,
	}
	for i := range 10 {
		s.Tunneled = append(s.Tunneled, forward.Host{Host: fmt.Sprintf("h%d.test", i), Count: 1})
	}
	var errs strings.Builder
	cmd := newRun()
	cmd.SetErr(&errs)
	if err := new(governing).report(cmd, "gh", 0, s, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"github: 1,234 requests of gh, 1,240 attempts in ", "7 refused by the provider", "6 requests held and sent again", "30 attempts waited 1m30s in all",
		"1 refusal passed on to gh", "2 requests answered with 429 by headway", "h7.test 1, and 2 more", "gh did not accept the certificate for: pinned.test 1",
		"1 connection to named hosts ended", "2 requests without the proxy's password refused", "1 request ended with gh",
	} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%s\nlacks %q", errs.String(), want)
		}
	}
}
