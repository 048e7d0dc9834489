package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	root "github.com/headway-go/headway"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/ca"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/forward"
)

// Exit codes of "headway run" for a program that cannot be started, as shells have them.
const (
	exitNotExecutable = 126 // of headway run: the program cannot be executed; else its own exit is passed on
	exitNotFound      = 127 // of headway run: there is no such program
)

// governing is what the flags of "run" and "proxy" say of the proxy.
type governing struct {
	hosts, profiles, resend []string
	all, passThrough        bool
	maxWait, maxOutage      time.Duration
	ceiling                 time.Duration
	state                   string

	rules      []forward.Rule // of the hosts, in the order in which they were named
	onDistrust func(host string)
}

func (g *governing) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&g.hosts, "host", nil, "govern this `HOST`: a name, '*.NAME', an address, or @FILE with one on each line; may be repeated")
	f.StringArrayVar(&g.profiles, "profile", nil, "the provider's published limits, by `NAME` or file; without --host, govern the profile's hosts; may be repeated")
	f.BoolVar(&g.all, "all", false, "govern every host: all of the program's connections are decrypted")
	f.BoolVar(&g.passThrough, "pass-through", false, "leave connections of named hosts as they are if they are not HTTP, or if the program refuses the certificate")
	f.DurationVar(&g.maxWait, "max-wait", forward.DefaultWait, "hold a refused request this long at most")
	f.DurationVar(&g.maxOutage, "max-outage", forward.DefaultOutage, "hold a request this long at most while the provider answers 503 and names no wait, as when it is down")
	f.StringSliceVar(&g.resend, "resend", nil, "`METHODS` that may be sent again when they are refused, such as POST,PATCH (GET, HEAD, OPTIONS, PUT, DELETE and requests with an Idempotency-Key always may)")
	f.DurationVar(&g.ceiling, "ceiling", 0, "shortest interval between two attempts on a credential (default: none)")
	f.StringVar(&g.state, "state", "", "`folder` for the certificate authority and what is learned (default $XDG_STATE_HOME/headway or ~/.local/state/headway)")
	fleetFlag(cmd)
	_ = cmd.RegisterFlagCompletionFunc("profile", func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return completeProfiles(c, nil, begun)
	})
	_ = cmd.RegisterFlagCompletionFunc("host", cobra.NoFileCompletions)
}

// check reads hosts and profiles, and refuses what cannot be.
func (g *governing) check(cmd *cobra.Command) error {
	if g.maxWait < forward.MinWait || g.maxWait > forward.MaxWait {
		return usage(fmt.Errorf("--max-wait is %v, must be from 1s to 24h", g.maxWait))
	}
	if g.maxOutage < forward.MinWait || g.maxOutage > forward.MaxWait {
		return usage(fmt.Errorf("--max-outage is %v, must be from 1s to 24h", g.maxOutage))
	}
	if cmd.Flags().Changed("ceiling") && (g.ceiling < forward.MinCeiling || g.ceiling > forward.MaxCeiling) {
		return usage(fmt.Errorf("--ceiling is %v, must be from 1ms to 24h", g.ceiling))
	}
	for i, m := range g.resend {
		m = strings.ToUpper(strings.TrimSpace(m))
		if !forward.IsMethod(m) {
			return usage(fmt.Errorf("--resend has %q, want methods such as POST,PATCH", clip(m, 40)))
		}
		g.resend[i] = m
	}
	if err := g.folder(); err != nil {
		return err
	}
	return g.name()
}

// folder resolves the state folder.
func (g *governing) folder() (err error) {
	g.state, err = userState(g.state)
	return err
}

// userState is the user's own state folder, which does not depend on where a command is run.
func userState(flag string) (string, error) {
	dir, err := flag, error(nil)
	if dir == "" {
		if dir, err = forward.UserFolder(os.Getenv); err != nil {
			return "", usage(fmt.Errorf("%w; name a folder with --state", err))
		}
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", usage(fmt.Errorf("--state: %w", err))
	}
	return dir, nil
}

// name makes the rules of what is governed.
func (g *governing) name() error {
	var hosts []string
	for _, text := range g.hosts {
		all := []string{text}
		if file, ok := strings.CutPrefix(text, "@"); ok {
			var err error
			if all, err = hostsIn(file); err != nil {
				return usage(err)
			}
		}
		hosts = append(hosts, all...)
	}
	var wrong []*forward.NameError
	g.rules, wrong = forward.Rules(hosts, g.profiles, profileFolders()...)
	for _, e := range wrong {
		switch {
		case e.Profile && e.Index < 0:
			return usage(errors.New("--host goes with one --profile at most: it would be unclear which hosts are whose"))
		case e.Profile:
			return usage(fmt.Errorf("--profile: %w", e))
		default:
			return usage(fmt.Errorf("--host is %q; %w", clip(e.Name, 80), e))
		}
	}
	if len(g.rules) == 0 && !g.all {
		return usage(errors.New("nothing to govern: name hosts with --host, or a provider with --profile; --all governs every host"))
	}
	return nil
}

// maxHostsFile bounds a file of hosts.
const maxHostsFile = 1 << 20

// hostsIn reads a file with a host on each line; what follows a # is left out.
func hostsIn(file string) (all []string, err error) {
	b, err := atomicfile.Read(file, maxHostsFile)
	if err != nil {
		return nil, fmt.Errorf("--host: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, ok := forward.Pattern(line); !ok {
			return nil, fmt.Errorf("%s:%d: %s is not a host; want a name such as api.github.com, *.example.com, or an address", file, n, configfile.Quote(line))
		}
		all = append(all, line)
	}
	if all == nil {
		return nil, fmt.Errorf("%s names no host", file)
	}
	return all, nil
}

// patterns are the governed hosts; nil for all.
func (g *governing) patterns() []string {
	if g.all {
		return nil
	}
	return forward.Patterns(g.rules)
}

// soon is how long before the end of the certificate authority a run says so.
const soon = 30 * 24 * time.Hour

// openProxy is a proxy at work.
type openProxy struct {
	*forward.Service
	state string
	leave func() error // the fleet
}

// open starts the proxy at an address; files for the programs go into a folder.
func (g *governing) open(cmd *cobra.Command, address, files string) (*openProxy, error) {
	warn := cmd.ErrOrStderr()
	if g.all {
		_, _ = fmt.Fprintln(warn, "headway: warning: --all decrypts every connection of the program, those to hosts without limits too; name hosts with --host where you can")
	}
	learned, err := forward.Load(g.state)
	if err != nil {
		_, _ = fmt.Fprintf(warn, "headway: warning: %v\n", err)
	}
	if err := os.MkdirAll(g.state, 0o700); err != nil {
		return nil, &exitError{code: exitInternal, err: fmt.Errorf("%w; --state names another folder", err)}
	}
	shared, leave, err := g.share(cmd)
	if err != nil {
		return nil, err
	}
	s, err := forward.Open(cmd.Context(), forward.Setup{
		Options: forward.Options{
			Hosts: g.patterns(), All: g.all, PassThrough: g.passThrough, Profile: forward.Profiles(g.rules, profileFolders()...),
			MaxWait: g.maxWait, MaxOutage: g.maxOutage, Resend: g.resend, Ceiling: g.ceiling, Fleet: shared, Learned: learned,
			OnDistrust: g.onDistrust,
		},
		Authority: g.state, Address: address, Files: files, Getenv: os.Getenv,
	})
	if err == nil {
		if time.Until(s.Until) < soon {
			_, _ = fmt.Fprintf(warn, "headway: warning: the certificate authority is valid until %s: run \"headway ca rotate\" before then\n", s.Until.Format(time.DateOnly))
		}
		return &openProxy{s, g.state, leave}, nil
	}
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w; --state names another folder", err)
	}
	_, unreadable := errors.AsType[*forward.UnreadableError](err)
	switch left := leave(); {
	case errors.Is(err, forward.ErrListen):
		return nil, errors.Join(&exitError{code: exitRefused, err: err}, left)
	case unreadable, errors.Is(err, ca.ErrExpired):
		return nil, errors.Join(usage(err), left)
	default:
		return nil, errors.Join(&exitError{code: exitInternal, err: err}, left)
	}
}

// sharing is the fleet of a proxy; nil means none.
type sharing = interface {
	Member(provider, credential string) root.Fleet
}

// share finds the processes to share the pace with: by the flag, or else those that use the same
// state folder, or a headway serve that was started in this folder. leave ends the membership.
func (g *governing) share(cmd *cobra.Command) (_ sharing, leave func() error, err error) {
	stay := func() error { return nil }
	at, err := cmd.Flags().GetString("fleet")
	if err != nil {
		return nil, nil, err
	}
	own, there := filepath.Join(g.state, fleet.Socket), filepath.Join(".headway", fleet.Socket)
	f, err := fleetAmong(cmd, configfile.Secret{}, own)
	if err == nil && f == nil && at == "" {
		f, err = fleetAmong(cmd, configfile.Secret{}, there)
	} else if at == "" {
		f = nil // the folder below takes over when that process ends
	}
	switch {
	case err != nil:
		return nil, nil, err
	case f != nil:
		return f, stay, nil
	case at != "":
		return nil, stay, nil
	}
	folder := fleet.NewFolder(g.state)
	if err := folder.Open(cmd.Context()); err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "headway: warning: other processes cannot share the pace: %v\n", err)
	}
	return folder, folder.Close, nil
}

// close ends the proxy, keeps what was learned, and says what was done and how many
// requests were cut.
func (g *openProxy) close() (s forward.Summary, cut int, err error) {
	learned := g.Learned()
	s = g.Summary()
	cut = g.Close()
	if left := g.leave(); left != nil {
		err = fmt.Errorf("the fleet's socket: %w", left)
	}
	if kept := forward.Save(context.Background(), g.state, learned); kept != nil { // the command's end may be why we are here
		err = errors.Join(err, fmt.Errorf("what was learned could not be kept: %w", kept))
	}
	return s, cut, err
}

func newRun() *cobra.Command {
	var (
		g     governing
		quiet bool
		print bool
	)
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run any program under the provider's limits, without a change in it",
		Long: `Runs a command whose calls go through a proxy on this machine. Nothing is held back
until the provider refuses a call or advertises a limit. From then on calls are sent
as fast as the limit allows. A call that is refused with 429 or 503 is held and sent
again, so that the program does not see the refusal; what cannot be sent again, such as
a POST, is passed on as it is, unless --resend allows it. So is a 503 that names no wait
and has not ended after a minute (--max-outage): the provider may be down.

Only the hosts that you name are decrypted, with a certificate authority of your own,
which is made on first use and which no system trusts by itself: the command gets it by
its environment. Everything else it connects to passes through unread. --print-env
shows the environment. A program that takes no notice of it is not governed, and the
summary at the end says so.

Runs on one credential share its limits: they find each other, and a "headway serve", by
a socket in the state folder.

Exit codes: that of the command, 128 and the signal's number if a signal ended it;
126 and 127 if it cannot be started; 64 bad usage; 69 no proxy can be opened; 70 a fault
on this side.`,
		Example: `  headway run --profile github -- gh api --paginate /orgs/acme/repos
  headway run --host api.example.com -- ./sync.py
  headway run --host '*.atlassian.net' --resend POST -- terraform apply
  headway run --host api.example.com --print-env`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usage(fmt.Errorf("put -- before the command: headway run [flags] -- %s", clip(args[max(0, cmd.ArgsLenAtDash())], 40)))
			}
			if len(args) == 0 && !print {
				return usage(fmt.Errorf("there is no command to run; put it after -- (see %q)", cmd.CommandPath()+" --help"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := g.check(cmd); err != nil {
				return err
			}
			if print {
				c := forward.Environment{Address: "127.0.0.1:PORT", Password: "PASSWORD", Folder: "FOLDER", Hosts: g.patterns()}
				for _, v := range c.Variables(os.Getenv) {
					_, _ = fmt.Fprintln(cmd.OutOrStdout(), v)
				}
				return nil
			}
			return g.run(cmd, args, quiet)
		},
	}
	g.flags(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no summary at the end")
	cmd.Flags().BoolVar(&print, "print-env", false, "print the variables that the command gets, and end")
	cmd.Flags().Bool("json", false, "print the summary as JSON")
	return cmd
}

// run runs a command to its end.
func (g *governing) run(cmd *cobra.Command, args []string, quiet bool) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		code := exitNotFound
		if errors.Is(err, os.ErrPermission) {
			code = exitNotExecutable
		}
		return &exitError{code: code, err: fmt.Errorf("the command cannot be started: %w", err)}
	}
	files, err := os.MkdirTemp("", "headway-run-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(files) }()
	of, err := g.open(cmd, "127.0.0.1:0", files)
	if err != nil {
		return err
	}
	began := time.Now()
	code, interrupted, err := of.run(cmd, path, args)
	s, cut, kept := of.close()
	if err != nil {
		return errors.Join(err, kept)
	}
	if !quiet {
		_ = g.report(cmd, filepath.Base(args[0]), time.Since(began), s, cut)
	}
	if kept != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "headway: warning: %v\n", kept)
	}
	if code != exitOK {
		return &exitError{code: code, silent: true, interrupted: interrupted}
	}
	return nil
}

// report writes the summary to standard error.
func (g *governing) report(cmd *cobra.Command, name string, took time.Duration, s forward.Summary, cut int) error {
	w := cmd.ErrOrStderr()
	if asJSON(cmd) {
		cmd.SetOut(w)
		return writeJSON(cmd, s)
	}
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, "headway: "+format+"\n", args...) }
	if s.Requests() == 0 && len(s.Distrusted) == 0 && s.NotHTTP == 0 {
		line("no request came through: %s made none, or takes no notice of the proxy variables (see \"headway run --print-env\")", name)
	}
	for _, c := range s.Connections {
		line("%s: %s of %s, %s in %s, %s refused by the provider", c.Name, plural(c.Requests, "request", "requests"), name,
			plural(c.Attempts, "attempt", "attempts"), clock(took), figure.Count(c.Throttled))
		if c.Held > 0 {
			_, _ = fmt.Fprintf(w, "  %s held and sent again\n", plural(c.Held, "request", "requests"))
		}
		if c.Waits > 0 {
			_, _ = fmt.Fprintf(w, "  %s waited %s in all\n", plural(c.Waits, "attempt", "attempts"), clock(time.Duration(c.WaitedMS)*time.Millisecond))
		}
		if c.Passed > 0 {
			_, _ = fmt.Fprintf(w, "  %s passed on to %s, which could not be held: see --resend, --max-wait and --max-outage\n", plural(c.Passed, "refusal", "refusals"), name)
		}
		if c.Refused > 0 {
			_, _ = fmt.Fprintf(w, "  %s answered with 429 by headway: the wait would have been longer than --max-wait\n", plural(c.Refused, "request", "requests"))
		}
		writeLimits(w, "  ", c.Limits)
		writePools(w, c.Pools)
	}
	if len(s.Tunneled) > 0 {
		line("not governed, passed through unread: %s", hostList(s.Tunneled))
	}
	if len(s.Distrusted) > 0 {
		hint := "see --pass-through"
		if g.passThrough {
			hint = "later connections passed through"
		}
		line("%s did not accept the certificate for: %s (%s)", name, hostList(s.Distrusted), hint)
	}
	if s.NotHTTP > 0 {
		line("%s to named hosts ended, being no HTTP (see --pass-through)", plural(s.NotHTTP, "connection", "connections"))
	}
	if s.Unauthenticated > 0 {
		line("%s without the proxy's password refused", plural(s.Unauthenticated, "request", "requests"))
	}
	if cut > 0 {
		line("%s ended with %s: what it leaves running needs \"headway proxy\"", plural(int64(cut), "request", "requests"), name)
	}
	return nil
}

// hostList names the first few hosts with their counts.
func hostList(all []forward.Host) string {
	const shown = 8
	var b []string
	for _, h := range all[:min(len(all), shown)] {
		b = append(b, h.Host+" "+figure.Count(h.Count))
	}
	if len(all) > shown {
		b = append(b, fmt.Sprintf("and %d more", len(all)-shown))
	}
	return strings.Join(b, ", ")
}

// endedBy is the exit code of a command, as shells have it.
func endedBy(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
