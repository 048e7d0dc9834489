package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/store/postgres"
)

// defaultServe is the configuration that is used when none is named.
const defaultServe = "headway.yaml"

// service is what the flags of "serve" say.
type service struct {
	file   string
	listen string
	state  string
	store  string
	fleet  string
	check  bool
	json   bool
	ready  readyFile
	quick  quick
}

func newServe() *cobra.Command {
	var s service
	cmd := &cobra.Command{
		Use:   "serve [FILE]",
		Short: "Stand in front of providers: budgets, pacing and keys for programs in any language",
		Long: `Serves a proxy in front of providers such as OpenAI, Anthropic or any HTTP API.
Programs change nothing but their base URL: their calls then wait their turn
within your budgets and at the pace that the provider allows, instead of being
answered with 429.

FILE is a YAML file, ` + defaultServe + ` by default. Without a file, --upstream names
providers, whose clients bring their own keys: NAME for openai, anthropic or
gemini, NAME=URL for another address, NAME:API=URL for a provider that speaks like
openai, azure-openai, anthropic, gemini or http. --rpm and --tpm then bound each
provider's calls and tokens a minute, --rpd its calls a day.

SIGHUP reads the file again: all of it comes into force, or the old one stays and
the log says why. Ctrl-C or SIGTERM stops it: calls that wait are answered, those
under way have the time of "drain" to end. A second one cuts them at once.

Exit codes: 0 stopped; 64 bad usage or configuration; 69 the address or the state
folder is in use, or the fleet's server is away; 70 a fault on this side.`,
		Example: `  headway serve --upstream openai --rpm 60 --tpm 20000
  headway serve                        # headway.yaml
  headway serve --check                # what would be proxied where?
  headway serve --upstream groq:openai=https://api.groq.com/openai
  headway serve /etc/headway.yaml --state /var/lib/headway --json
  headway serve --fleet valkey://valkey:6379   # several of them share one pace on each credential
  headway serve --store postgres://headway@db/headway   # the state of collections; PGPASSWORD has the password`,
		Args: atMostOne("one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				s.file = args[0]
			}
			if err := s.usage(cmd); err != nil {
				return err
			}
			return s.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "", "`address` to listen on, over the file's (default "+config.DefaultListen+")")
	f.StringVar(&s.state, "state", "", "`folder` for the durable state, over the file's (default "+config.DefaultState+")")
	f.StringVar(&s.store, "store", "", "`URL` of a PostgreSQL database that holds the state of collections, over the file's (default $"+storeVariable+")")
	f.StringVar(&s.fleet, "fleet", "", "share the pace on each credential with other processes, by the server at this `URL`, over the file's: "+fleetForms+", or "+alone+" (default: with those of this machine, by a socket in the state's folder)")
	f.BoolVar(&s.check, "check", false, "check the configuration, print what it means and end")
	f.BoolVar(&s.json, "json", false, "log JSON lines, whatever the file says")
	f.StringVar((*string)(&s.ready), "ready-file", "", "write the base URL into this `file` once it is served; removed at the end")
	f.StringArrayVar(&s.quick.upstreams, "upstream", nil, "without a file: a provider to proxy, `NAME[:API][=URL]`; may be repeated")
	f.Int64Var(&s.quick.rpm, "rpm", 0, "with --upstream: calls a minute of each; 0 means no limit")
	f.Int64Var(&s.quick.tpm, "tpm", 0, "with --upstream: tokens a minute of each; 0 means no limit")
	f.Int64Var(&s.quick.rpd, "rpd", 0, "with --upstream: calls a day of each; 0 means no limit")
	return cmd
}

// usage refuses what cannot be.
func (s *service) usage(cmd *cobra.Command) error {
	for _, name := range []string{"ready-file", "listen", "state", "store", "fleet"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usage(fmt.Errorf("--%s is empty", name))
		}
	}
	if len(s.quick.upstreams) > 0 && s.file != "" {
		return usage(fmt.Errorf("--upstream does not go with a file: write the provider into %s", s.file))
	}
	for _, name := range []string{"rpm", "tpm", "rpd"} {
		if cmd.Flags().Changed(name) && len(s.quick.upstreams) == 0 {
			return usage(fmt.Errorf("--%s goes with --upstream only; in a file it is the provider's quota", name))
		}
	}
	return s.ready.check()
}

// read is the configuration as file and flags have it now.
func (s *service) read() (config.Config, error) {
	name, data, err := s.source()
	if err != nil {
		return config.Config{}, err
	}
	c, err := config.Read(name, data, os.Getenv)
	if err != nil {
		if len(s.quick.upstreams) > 0 {
			err = placeless(err)
		}
		return config.Config{}, fmt.Errorf("not a configuration that can be served:\n%w", err)
	}
	if s.state != "" {
		c.State = s.state
	}
	if at := cmp.Or(s.store, os.Getenv(storeVariable)); at != "" && (s.store != "" || c.Store.Reveal() == "") {
		if !postgres.Names(at) {
			return c, errNoDatabase
		}
		c.Store = configfile.NewSecret(postgres.Place(at), at)
	}
	if s.fleet != "" {
		if err := fleet.Check(s.fleet); err != nil && s.fleet != alone {
			return c, fmt.Errorf("--fleet: %w", err)
		}
		c.Fleet = configfile.NewSecret("--fleet", s.fleet)
	}
	if s.json {
		c.Log.JSON = true
	}
	if s.listen != "" {
		err = c.ListenOn(s.listen)
	}
	return c, err
}

// name is what errors call the configuration.
func (s *service) name() string {
	switch {
	case len(s.quick.upstreams) > 0:
		return commandLine
	case s.file == "":
		return defaultServe
	}
	return s.file
}

// source is the file's content, or that of the one that the flags stand for.
func (s *service) source() (name string, data []byte, err error) {
	if len(s.quick.upstreams) > 0 {
		data, err = s.quick.yaml()
		return commandLine, data, err
	}
	name = s.file
	name = cmp.Or(name, defaultServe)
	data, err = atomicfile.Read(name, config.MaxSize)
	if err != nil && s.file == "" && errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("there is no %s here; name a file, or begin without one: headway serve --upstream openai --rpm 60", defaultServe)
	}
	return name, data, err
}

func (s *service) run(cmd *cobra.Command) (err error) {
	c, err := s.read()
	if err != nil {
		return usage(err)
	}
	level := new(slog.LevelVar)
	level.Set(c.Log.Level)
	var log slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})
	if c.Log.JSON {
		log = slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})
	}
	d, err := daemon.New(c, daemon.Options{Log: slog.New(log), Version: readVersion().Version, Profiles: profileFolders(), Simulator: simulator{}})
	if err != nil {
		return usage(err)
	}
	if s.check {
		if err := c.Check(s.name(), time.Now()); err != nil {
			return errors.Join(usage(err), d.Stop(cmd.Context()))
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), daemon.Page(c, daemon.Base(c, nil)))
		return errors.Join(err, d.Stop(cmd.Context()))
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := s.ready.remove(); err != nil {
		return usage(err)
	}
	if err := d.Start(cmd.Context()); err != nil {
		code := exitInternal
		if errors.Is(err, daemon.ErrInUse) || errors.Is(err, daemon.ErrListen) || errors.Is(err, fleet.ErrAway) {
			code = exitRefused
		}
		return &exitError{code: code, err: err}
	}
	defer func() { err = errors.Join(err, s.ready.remove()) }()
	base := daemon.Base(c, d.Address())
	if err := s.ready.write(base); err != nil {
		return errors.Join(err, d.Stop(cmd.Context()))
	}
	notify("READY=1")
	_, _ = fmt.Fprintln(cmd.OutOrStdout(), daemon.Page(c, base)) // nobody need read it
	w := serving{daemon: d, service: s, log: slog.New(log), level: level}
	return w.until(cmd.Context(), signals)
}

// serving is what signals do to a running daemon.
type serving struct {
	daemon  *daemon.Daemon
	service *service
	log     *slog.Logger
	level   *slog.LevelVar
}

// until serves until a signal or the context ends it.
func (w *serving) until(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return w.stop(context.WithoutCancel(ctx), signals)
		case <-w.daemon.Ended(): // by itself, so by a fault
			err := w.daemon.Wait()
			if err == nil {
				err = errors.New("the listener failed; the log says why")
			}
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				return w.stop(ctx, signals)
			}
			w.reload()
		}
	}
}

// stop ends the daemon; a second signal cuts what is under way.
func (w *serving) stop(ctx context.Context, signals <-chan os.Signal) error {
	notify("STOPPING=1")
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	done := make(chan error, 1)
	go func() { done <- w.daemon.Stop(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			if s != syscall.SIGHUP {
				cut()
			}
		}
	}
}

// reload reads the configuration again. What is wrong with it is logged, and the
// old one stays.
func (w *serving) reload() {
	notify(reloading())
	defer notify("READY=1")
	c, err := w.service.read()
	if err == nil {
		err = w.daemon.Reload(c)
	}
	if err != nil {
		w.log.Error("configuration not reloaded, the old one stays", slog.Any("error", err))
		return
	}
	w.level.Set(c.Log.Level)
}

// readyFile holds the base URL while requests are served; "" writes none.
type readyFile string

func (f readyFile) check() error {
	if f == "" {
		return nil
	}
	return replaceable("--ready-file", string(f))
}

func (f readyFile) write(base string) error {
	if f == "" {
		return nil
	}
	return writeWhole("--ready-file", string(f), content([]byte(base+"\n")))
}

// remove takes it away, also at the start: one that is left over from a process that
// was killed would send scripts to a server that is not there.
func (f readyFile) remove() error {
	if f == "" {
		return nil
	}
	if err := os.Remove(string(f)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return nil
}

// commandLine stands for the file in errors.
const commandLine = "command line"

// quick is a configuration by flags, for the first five minutes.
type quick struct {
	upstreams     []string
	rpm, tpm, rpd int64
}

// yaml is the file that the flags stand for, so that one reader checks both.
func (q *quick) yaml() ([]byte, error) {
	providers := configfile.Entries{}
	for _, text := range q.upstreams {
		before, url, _ := strings.Cut(text, "=")
		name, api, given := strings.Cut(before, ":")
		if name == "" || given && api == "" || strings.HasSuffix(text, "=") {
			return nil, fmt.Errorf("--upstream is %q, must be NAME, NAME=URL or NAME:API=URL", clip(text, 80))
		}
		if !given {
			api = string(provider.HTTP)
			if slices.Contains(provider.APIs(), provider.API(name)) {
				api = name
			}
		}
		if slices.ContainsFunc(providers, func(i configfile.Entry) bool { return i.Key == name }) {
			return nil, fmt.Errorf("--upstream names %q twice", clip(name, 80))
		}
		p := configfile.Entries{{Key: "api", Value: api}, {Key: "pass_through", Value: true}}
		if url != "" {
			p = append(p, configfile.Entry{Key: "upstream", Value: url})
		}
		if global := q.limits(); len(global) > 0 {
			p = append(p, configfile.Entry{Key: "quota", Value: configfile.Entries{{Key: "global", Value: global}}})
		}
		providers = append(providers, configfile.Entry{Key: name, Value: p})
	}
	return configfile.Write(configfile.Entries{{Key: "providers", Value: providers}})
}

func (q *quick) limits() (limits configfile.Entries) {
	for _, l := range []struct {
		key string
		n   int64
	}{{"calls_per_minute", q.rpm}, {"tokens_per_minute", q.tpm}, {"max_daily_calls", q.rpd}} {
		if l.n != 0 {
			limits = append(limits, configfile.Entry{Key: l.key, Value: l.n})
		}
	}
	return limits
}

// placeless takes the lines and columns out of what is wrong with a file that
// the flags stand for: nobody can look there.
func placeless(err error) error {
	e, ok := errors.AsType[*config.Error](err)
	if !ok {
		return err
	}
	all := slices.Clone(e.Problems)
	for i := range all {
		if all[i].File == commandLine {
			all[i].Line, all[i].Column = 0, 0
		}
	}
	return &config.Error{Problems: all}
}

// notify sends the state to systemd, or to another supervisor like it: one
// datagram on the socket of $NOTIFY_SOCKET. Nobody need listen.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:] // an abstract socket
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write([]byte(state))
	_ = c.Close()
}
