package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/schedule"
)

func TestTheUnitStartsWhatThereIs(t *testing.T) {
	unit, err := os.ReadFile(filepath.Join("..", "..", "examples", "serve", "headway.service"))
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for line := range strings.Lines(string(unit)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			set[key] = value
		}
	}
	args := strings.Fields(set["ExecStart"])
	if len(args) < 3 || filepath.Base(args[0]) != "headway" || args[1] != "serve" {
		t.Fatalf("it starts %q", args)
	}
	cmd := newServe()
	if err := cmd.ParseFlags(args[2:]); err != nil {
		t.Fatal(err)
	}
	if rest := cmd.Flags().Args(); len(rest) != 1 || cmd.Args(cmd, rest) != nil {
		t.Errorf("arguments %q", rest)
	}
	if !strings.HasPrefix(set["Type"], "notify") {
		t.Errorf("its type is %q, though serve tells when it is ready", set["Type"])
	}
	if d, err := time.ParseDuration(set["TimeoutStopSec"] + "s"); err != nil || d <= config.DefaultDrain {
		t.Errorf("it has %v to stop, must be more than the drain time of %v: %v", d, config.DefaultDrain, err)
	}
	if set["RestartPreventExitStatus"] != "64" {
		t.Errorf("bad configuration is started again and again")
	}
}

func TestNotifyTellsTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	for _, state := range []string{"READY=1", reloading(), "STOPPING=1"} {
		notify(state)
		if err := l.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := l.Read(b)
		if err != nil || string(b[:n]) != state {
			t.Errorf("got %q, %v, want %q", b[:n], err, state)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	notify("READY=1") // which nobody hears, and nobody waits for
	if !strings.HasPrefix(reloading(), "RELOADING=1") {
		t.Errorf("a reload is notified as %q", reloading())
	}
}

func TestQuickConfigurations(t *testing.T) {
	for _, c := range []struct {
		upstreams []string
		want      string // of providers, "" for an error
	}{
		{[]string{"openai"}, "openai openai https://api.openai.com"},
		{[]string{"anthropic=https://h/p"}, "anthropic anthropic https://h/p"},
		{[]string{"crm=http://127.0.0.1:1"}, "crm http http://127.0.0.1:1"},
		{[]string{"groq:openai=https://h", "gemini"}, "groq openai https://h gemini gemini https://generativelanguage.googleapis.com"},
		{[]string{"x"}, ""}, {[]string{"="}, ""}, {[]string{"x="}, ""}, {[]string{"openai", "openai"}, ""}, {[]string{"x:nope=https://h"}, ""},
		{[]string{"x=ftp://h"}, ""}, {[]string{"a: b\nc=https://h"}, ""},
	} {
		s := service{quick: quick{upstreams: c.upstreams, rpm: 5, tpm: 7, rpd: 9}}
		got, err := s.read()
		var said []string
		for _, p := range got.Providers {
			g := p.Quota.Quota.Global
			if !p.PassThrough || g.CallsPerMinute != 5 || g.TokensPerMinute != 7 || g.MaxDailyCalls != 9 {
				t.Errorf("%q: %+v", c.upstreams, p)
			}
			said = append(said, p.Name, string(p.Description.API), p.Description.Upstream.String())
		}
		if text := strings.Join(said, " "); text != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v, want %q", c.upstreams, text, err, c.want)
		}
	}
}

func TestQuickProblemsNameNoLineOfAFileThatIsNotThere(t *testing.T) {
	s := service{quick: quick{upstreams: []string{"crm", "openai=127.0.0.1:8080"}}}
	_, err := s.read()
	if err == nil {
		t.Fatal("a URL without scheme was taken")
	}
	for _, want := range []string{"command line: providers.crm.upstream: is missing", "command line: providers.openai.upstream: is"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

func TestNewKeysAreOnesThatAFileTakes(t *testing.T) {
	for flags, want := range map[string]string{
		"--days 36500":         "",
		"--days 36501":         "--days is 36501, must be from 1 to 36500",
		"--days -1":            "--days is -1, must be from 1 to 36500",
		"--admin --model gpt*": "--admin does not go with",
		"--uploads":            "--uploads is for a key with --model",
		"--uploads --model m":  "",
	} {
		code, out, errs := headway(t, append([]string{"key", "new", "--id", "a"}, strings.Fields(flags)...)...)
		if want != "" {
			if code != exitUsage || !strings.Contains(errs, want) {
				t.Errorf("%s: code %d, %s", flags, code, errs)
			}
			continue
		}
		_, lines, _ := strings.Cut(out, "For the configuration:\n")
		if _, err := config.Read("h.yaml", []byte(lines+"\nquota: {}\n"), func(string) string { return "" }); code != 0 || err != nil {
			t.Errorf("%s: code %d, %v", flags, code, err)
		}
	}
	if code, _, errs := headway(t, "key", "new"); code != exitUsage || !strings.Contains(errs, "--id is missing") {
		t.Errorf("without an id: code %d, %s", code, errs)
	}
}

func TestScheduleSaysWhatRunsWhen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	text := scheduleText([]schedule.Status{
		{Connection: "chats", File: "chats.yaml", Running: true},
		{Connection: "issues", File: "issues.yaml", Next: now.Add(15 * time.Minute)},
		{Connection: "mail", File: "mail.yaml", Next: now.Add(time.Hour), Failures: 2, Error: "401 unauthorized"},
	}, now)
	for i, want := range [][]string{
		{"CONNECTION", "NEXT RUN"}, {"chats", "now", "chats.yaml"}, {"issues", "2026-01-02 03:15:00, in 15m0s", "ok"},
		{"mail", "04:00:00", "failed 2 in a row: 401 unauthorized"},
	} {
		line := strings.Split(text, "\n")[i]
		for _, w := range want {
			if !strings.Contains(line, w) {
				t.Errorf("line %d lacks %q: %s", i, w, line)
			}
		}
	}
	text = scheduleText([]schedule.Status{
		{Connection: "chats", File: "chats.yaml", Running: true, Lane: collect.Catchup, Next: now.Add(time.Minute)},
		{Connection: "issues", File: "issues.yaml", Next: now.Add(time.Minute), CatchupNext: now.Add(time.Hour)},
		{Connection: "mail", File: "mail.yaml", Running: true},
	}, now)
	for i, want := range []string{"NEXT RUN NEXT CATCH-UP LAST RUN FILE", "in 1m0s now - chats.yaml", "in 1m0s 2026-01-02 04:00:00, in 1h0m", "now with each run"} {
		if line := strings.Join(strings.Fields(strings.Split(text, "\n")[i]), " "); !strings.Contains(line, want) {
			t.Errorf("with lanes apart line %d lacks %q: %s", i, want, line)
		}
	}
	if text := scheduleText(nil, now); !strings.Contains(text, "nothing") {
		t.Errorf("without collections: %q", text)
	}
	if code, out, errOut := headway(t, "schedule"); code != exitUsage || !strings.Contains(errOut, "--server") {
		t.Errorf("without a daemon: %d %s %s", code, out, errOut)
	}
}
