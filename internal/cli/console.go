package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/store/sqlite"
)

func newConsole() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve pages that show what is collected, owed and learned",
		Long: `Serves pages for a browser that show what the state file holds: connections, rates,
limits, runs and gaps. It reads the file and disturbs no run. The file need not be there
yet. Gaps can be retried, quarantined and released; "headway audit" lists who did so.

A running "headway serve" has the same pages at /console/, with what is proxied, live
rates and quotas in them.

It listens on this machine only. The link that it writes logs one browser in, once, within
15 minutes, for 12 hours; who has it may look and act as you. The page that asks for a link
has a button that writes another one here. Ctrl-C ends it.`,
		Example: `  headway console
  headway console --state .headway/state.db --listen 127.0.0.1:8780`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return serveConsole(cmd, listen) },
	}
	stateFlag(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`address` of this machine to listen on; port 0 takes a free one")
	return cmd
}

func serveConsole(cmd *cobra.Command, listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || !config.Loopback(host) {
		return usage(fmt.Errorf("--listen is %q, must be HOST:PORT with a loopback address: the pages are for this machine alone", listen))
	}
	if host == "" {
		listen = "127.0.0.1" + listen
	}
	path := statePath(cmd)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "state.db")
	}
	state, source, answers, err := localAPI(cmd, path)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", listen)
	if err != nil {
		return errors.Join(&exitError{code: exitRefused, err: fmt.Errorf("--listen: %w", err)}, state.Close())
	}
	announce := func(path string) {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "headway console of %s at http://%s%s\n", source, l.Addr(), path) // nobody need read it
	}
	pages, err := console.New(console.Options{API: answers, Announce: announce, Source: source, Profiles: profileFolders()})
	if err != nil {
		return errors.Join(err, l.Close(), state.Close())
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	mux.Handle(console.Path, pages)
	mux.Handle("/{$}", http.RedirectHandler(console.Path, http.StatusSeeOther))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	pages.Announce()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	pages.Close()
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	if server.Shutdown(closing) != nil {
		_ = server.Close() // what is still being read is cut
	}
	return errors.Join(err, state.Close())
}

// localAPI answers from what the command's state is in, as a daemon would; path is its
// file, which need not be there yet, where that is one. source names it.
func localAPI(cmd *cobra.Command, path string) (state *collect.Archive, source string, answers *api.API, err error) {
	at, err := storeURL(cmd)
	if err != nil {
		return nil, "", nil, err
	}
	state, source = collect.NewArchive(func(ctx context.Context) (collect.ClosingReader, error) {
		if at != "" {
			return openReader(ctx, cmd)
		}
		return sqlite.OpenReader(ctx, path)
	}), path
	if at != "" {
		source = statePlace(cmd)
	}
	if _, err := state.Connections(cmd.Context()); err != nil { // said now, not as an internal error of a page
		return nil, "", nil, errors.Join(err, state.Close())
	}
	seen := &storedSamples{path: filepath.Join(filepath.Dir(path), samples.FileName)}
	act := func(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (int64, error) {
		store, err := openStore(cmd)
		if err != nil {
			return 0, err
		}
		n, err := store.Act(ctx, a, f, ids)
		return n, errors.Join(err, store.Close())
	}
	who := api.Caller{ID: localUser(), Role: api.Admin}
	answers, err = api.New(api.Options{
		Authorize: func(*http.Request, api.Role) (api.Caller, error) { return who, nil },
		Simulator: simulator{},
		Act:       act, Audit: audit.New(filepath.Dir(path), nil),
		Reader: state, Samples: seen.series, Sparks: seen.sparks, Usage: calls.NewLedger(filepath.Join(filepath.Dir(path), calls.FileName)),
		Version: readVersion().Version,
	})
	return state, source, answers, err
}

// storedSamples are those that a daemon left beside its state file, read again when it
// has written others.
type storedSamples struct {
	path string
	mu   sync.Mutex
	at   time.Time // when the file was written
	book *samples.Book
}

// series has no error: without samples the traces of runs tell what they can.
func (s *storedSamples) series(name string, span samples.Span, now time.Time) (samples.Series, bool) {
	if book := s.latest(); book != nil {
		return book.Series(name, span, now)
	}
	return samples.Series{}, false
}

// sparks has no error either: without samples nothing is known.
func (s *storedSamples) sparks(now time.Time) []samples.Spark {
	if book := s.latest(); book != nil {
		return book.Sparks(now)
	}
	return nil
}

// latest is the book as the file has it; nil where it cannot be read.
func (s *storedSamples) latest() *samples.Book {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if err == nil && !info.ModTime().Equal(s.at) {
		var data []byte
		if data, err = atomicfile.Read(s.path, samples.MaxSize); err == nil {
			s.book, err = samples.Decode(data)
			s.at = info.ModTime()
		}
	}
	if err != nil {
		s.book = nil
	}
	return s.book
}
