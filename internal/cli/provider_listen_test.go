package cli

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeComplainsAboutWhatItCannotServe(t *testing.T) {
	t.Setenv(tokenVariable, "")
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	bad := scenarioFile(t, "bad.yaml", "name: bad\nbogus: 1\nhorizon: -1h\n")
	folder := t.TempDir()
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"two scenarios", []string{"demo", "strava"}, []string{"got 2"}},
		{"no such scenario", []string{"nowhere"}, []string{`"nowhere"`, "sim list"}},
		{"every problem", []string{bad}, []string{bad + ":2:1: bogus: ", bad + ":3:10: horizon: "}},
		{"all addresses without a token", []string{"--listen", "0.0.0.0:0"}, []string{"0.0.0.0:0", tokenVariable, "127.0.0.1:0"}},
		{"all IPv6 addresses without a token", []string{"--listen", "[::]:0"}, []string{tokenVariable}},
		{"another machine's address without a token", []string{"--listen", "192.0.2.1:80"}, []string{tokenVariable}},
		{"no port", []string{"--listen", "127.0.0.1"}, []string{"HOST:PORT"}},
		{"an invalid port", []string{"--listen", "127.0.0.1:70000"}, []string{"70000", "65535"}},
		{"a port that is taken", []string{"--listen", taken.Addr().String()}, []string{"in use", "port 0"}},
		{"no conversations", []string{"--conversations", "0"}, []string{"--conversations", "at least 1"}},
		{"too many conversations", []string{"--conversations", "100001"}, []string{"100001", "100000"}},
		{"no messages", []string{"--messages", "0"}, []string{"--messages", "at least 1"}},
		{"more updated than there are", []string{"--conversations", "3", "--updated", "4"}, []string{"Updated", "4", "3"}},
		{"an empty token", []string{"--token", ""}, []string{"--token"}},
		{"a token that cannot be sent", []string{"--token", "top secret"}, []string{"--token", "ASCII"}},
		{"log into no directory", []string{"--log", filepath.Join(folder, "none", "log")}, []string{"--log"}},
		{"log without a name", []string{"--log", ""}, []string{"--log"}},
		{"ready file into no directory", []string{"--ready-file", filepath.Join(folder, "none", "url")}, []string{"--ready-file", "none"}},
		{"ready file over a directory", []string{"--ready-file", folder}, []string{"--ready-file", "regular file"}},
		{"no such subcommand", nil, []string{`"sreve"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"provider", "serve", "--listen", ":0"}, tt.args...)
			if tt.args == nil {
				args = []string{"provider", "sreve"}
			}
			code, out, complaints := simulate(t, args...)
			if code != exitUsage || out != "" {
				t.Errorf("exit %d and output %q, want %d and none", code, out, exitUsage)
			}
			for _, want := range tt.want {
				if !strings.Contains(complaints, want) {
					t.Errorf("complaint %q does not say %q", complaints, want)
				}
			}
			if strings.Contains(complaints, "top secret") {
				t.Errorf("complaint %q shows the token", complaints)
			}
		})
	}
}

func TestBaseURLIsOneThatClientsHereCanUse(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "http://127.0.0.1:80", "0.0.0.0:81": "http://127.0.0.1:81",
		"[::]:82": "http://[::1]:82", "[::1]:83": "http://[::1]:83", "192.0.2.7:84": "http://192.0.2.7:84",
	} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := baseURL(a); got != want {
			t.Errorf("%s is reached at %s, want %s", address, got, want)
		}
	}
}
