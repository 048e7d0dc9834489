package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
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
		if err := l.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
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
		{Connection: "talks", Next: now.Add(time.Minute)},
	}, now)
	for i, want := range [][]string{
		{"CONNECTION", "NEXT RUN"}, {"chats", "now", "chats.yaml"}, {"issues", "2026-01-02 03:15:00, in 15m0s", "ok"},
		{"mail", "04:00:00", "failed 2 in a row: 401 unauthorized"}, {"talks", "in 1m0s   -  "},
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

// tree is a document of YAML.
type tree map[string]any

// at is the value under keys; nil where there is none. A number is a place in a list.
func (d tree) at(path ...any) (v any) {
	v = map[string]any(d)
	for _, key := range path {
		switch key := key.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			l, _ := v.([]any)
			if v = nil; key < len(l) {
				v = l[key]
			}
		}
	}
	return v
}

func (d tree) text(path ...any) string {
	s, _ := d.at(path...).(string)
	return s
}

// list gives the mappings of a list.
func (d tree) list(path ...any) (all []tree) {
	l, _ := d.at(path...).([]any)
	for _, v := range l {
		m, _ := v.(map[string]any)
		all = append(all, m)
	}
	return all
}

func (d tree) words(path ...any) (all []string) {
	l, _ := d.at(path...).([]any)
	for _, v := range l {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// documents are those of a file in deploy.
func documents(t *testing.T, name string) (all []tree) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for d := yaml.NewDecoder(f, yaml.Strict()); ; {
		var one tree
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, one)
	}
}

// deployed checks a command line of the program with its configuration, as far as nothing is
// started.
func deployed(t *testing.T, args []string, file string, env map[string]string) {
	t.Helper()
	cmd, left, err := newRoot().Find(args)
	if err != nil || cmd.ParseFlags(left) != nil || len(cmd.Flags().Args()) != 1 {
		t.Fatalf("the program does not take %q: %v", args, err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(cmd.Flags().Arg(0)))
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	hashes := 0
	for name, value := range env {
		if strings.HasSuffix(name, "_HASH") {
			hashes++
			value = fmt.Sprintf("sha256:%064x", hashes)
		}
		t.Setenv(name, value)
	}
	if args[0] == "collect" {
		if _, err := rest.Load(path, os.LookupEnv); err != nil {
			t.Errorf("%s: %v", args[1], err)
		}
		return
	}
	code, out, errs := headway(t, "serve", path, "--check")
	if code != exitOK || !strings.Contains(out, "the pace is shared with all members at valkey://valkey:6379") {
		t.Errorf("%s: exit %d, %s%s", args[1], code, out, errs)
	}
}

// The files of deploy are what they name: each part is there, and what starts the program
// is taken by it.
func TestComposeFile(t *testing.T) {
	all := documents(t, "compose.yaml")
	if len(all) != 1 {
		t.Fatalf("%d documents", len(all))
	}
	d := all[0]
	reference := regexp.MustCompile(`\$\{[A-Z_]+(:[?-])?([^}]*)\}`)
	services, _ := d.at("services").(map[string]any)
	for name := range services {
		s := tree(services[name].(map[string]any))
		if s.text("image") == "" {
			t.Errorf("%s has no image", name)
		}
		for port := range slices.Values(s.words("ports")) {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s can be reached from elsewhere at %s", name, port)
			}
		}
		for volume := range slices.Values(s.words("volumes")) {
			if at, _, _ := strings.Cut(volume, ":"); d.at("volumes", at) == nil {
				t.Errorf("%s has a volume %s that is not declared", name, at)
			}
		}
		needs, _ := s.at("depends_on").(map[string]any)
		for other := range needs {
			if d.at("services", other, "healthcheck", "test") == nil {
				t.Errorf("%s waits for the health of %s, which nothing shows", name, other)
			}
		}
		if s.text("image") != "headway" {
			continue
		}
		env := map[string]string{}
		settings, _ := s.at("environment").(map[string]any)
		for key := range settings {
			env[key] = reference.ReplaceAllString(s.text("environment", key), "value")
		}
		for _, c := range s.list("configs") {
			file := strings.ReplaceAll(d.text("configs", c.text("source"), "content"), "$$", "$")
			if args := s.words("command"); len(args) < 2 || args[1] != c.text("target") {
				t.Errorf("%s starts %q, its configuration is %s", name, args, c.text("target"))
			} else {
				deployed(t, args, file, env)
			}
		}
	}
}

func TestKubernetesManifests(t *testing.T) {
	versions := map[string]string{
		"ConfigMap": "v1", "Service": "v1", "PersistentVolumeClaim": "v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1",
		"CronJob": "batch/v1", "NetworkPolicy": "networking.k8s.io/v1",
	}
	all, seen := documents(t, "kubernetes.yaml"), map[string]tree{}
	var pods []tree
	for _, d := range all {
		kind, name := d.text("kind"), d.text("metadata", "name")
		if versions[kind] == "" || d.text("apiVersion") != versions[kind] || !regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`).MatchString(name) {
			t.Errorf("%s %s of %s", kind, name, d.text("apiVersion"))
		}
		if seen[kind+"/"+name] != nil {
			t.Errorf("%s %s is there twice", kind, name)
		}
		seen[kind+"/"+name] = d
		template := []any{"spec", "template"}
		if kind == "CronJob" {
			template = []any{"spec", "jobTemplate", "spec", "template"}
			if _, err := cron.ParseStandard(d.text("spec", "schedule")); err != nil {
				t.Error(err)
			}
		}
		pod, _ := d.at(template...).(map[string]any)
		if pod == nil {
			continue
		}
		pods = append(pods, pod)
		if m := d.at("spec", "selector", "matchLabels"); kind != "CronJob" && !matches(m, pod) {
			t.Errorf("%s selects %v, which its pods do not have", name, m)
		}
		claims := d.words("spec", "volumeClaimTemplates")
		container(t, name, pod, seen, len(claims) > 0)
	}
	for _, d := range all {
		selects := d.at("spec", "selector")
		if d.text("kind") == "NetworkPolicy" {
			selects = d.at("spec", "podSelector", "matchLabels")
		} else if d.text("kind") != "Service" {
			continue
		}
		i := slices.IndexFunc(pods, func(p tree) bool { return matches(selects, p) })
		if i < 0 {
			t.Errorf("%s %s is of no pod", d.text("kind"), d.text("metadata", "name"))
			continue
		}
		ports := append(d.list("spec", "ports"), d.list("spec", "ingress", 0, "ports")...)
		for _, p := range ports {
			port := cmp.Or(p.text("targetPort"), p.text("port"))
			if !slices.ContainsFunc(tree(pods[i]).list("spec", "containers", 0, "ports"), func(c tree) bool { return c.text("name") == port }) {
				t.Errorf("%s %s is of port %q, which its pod does not have", d.text("kind"), d.text("metadata", "name"), port)
			}
		}
	}
}

// matches reports whether a pod has the labels.
func matches(labels any, pod tree) bool {
	m, _ := labels.(map[string]any)
	for key, value := range m {
		if pod.text("metadata", "labels", key) != value {
			return false
		}
	}
	return len(m) > 0
}

// container checks the one container of a pod.
func container(t *testing.T, name string, pod tree, seen map[string]tree, claims bool) {
	t.Helper()
	c := pod.list("spec", "containers")[0]
	if c.text("image") == "" || c.at("resources", "limits", "memory") == nil || pod.at("spec", "securityContext", "runAsNonRoot") != true {
		t.Errorf("%s has no image, no bound on memory, or runs as root", name)
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		if port := c.text(probe, "httpGet", "port"); port != "" && c.text("ports", 0, "name") != port {
			t.Errorf("%s: the %s asks port %q", name, probe, port)
		}
		if path := c.text(probe, "httpGet", "path"); path != "" && path != "/healthz" && path != "/readyz" {
			t.Errorf("%s: the %s asks %s, which is not served", name, probe, path)
		}
	}
	var files tree
	mounted := map[string]string{}
	for _, m := range c.list("volumeMounts") {
		mounted[m.text("name")] = m.text("mountPath")
	}
	for _, v := range pod.list("spec", "volumes") {
		if mounted[v.text("name")] == "" {
			t.Errorf("%s does not mount its volume %s", name, v.text("name"))
		}
		if of := v.text("configMap", "name"); of != "" {
			if files = seen["ConfigMap/"+of]; files == nil {
				t.Errorf("%s has files of %s, which is not there before it", name, of)
			}
		}
		delete(mounted, v.text("name"))
	}
	if len(mounted) > 0 && !claims {
		t.Errorf("%s mounts %v, which it does not have", name, mounted)
	}
	if c.text("image") != "headway" {
		return
	}
	env := map[string]string{}
	for _, e := range c.list("env") {
		if env[e.text("name")] = cmp.Or(e.text("value"), "value"); e.text("value") == "" && e.text("valueFrom", "secretKeyRef", "name") != "headway" {
			t.Errorf("%s: %s has no value", name, e.text("name"))
		}
	}
	args := c.words("args")
	deployed(t, args, files.text("data", filepath.Base(args[1])), env)
}
