package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/forward"
	"github.com/headway-go/headway/internal/lockfile"
)

// lingering bounds the wait for output of what a command leaves behind, and for a signal that
// ended it.
const lingering = 2 * time.Second

// run runs a command to its end, and returns its exit code. interrupted reports that Ctrl-C
// ended it.
func (g *openProxy) run(cmd *cobra.Command, path string, args []string) (code int, interrupted bool, err error) {
	p := exec.Command(path, args[1:]...)
	p.Args[0] = args[0]
	p.Env = append(p.Environ(), g.At.Variables(os.Getenv)...)
	p.Stdin, p.Stdout, p.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	p.WaitDelay = lingering
	signals := make(chan os.Signal, 8)
	// What is ignored, as after nohup, stays ignored here and in the command.
	signal.Notify(signals, slices.DeleteFunc(slices.Clone(passedOn), signal.Ignored)...)
	defer signal.Stop(signals)
	if err := p.Start(); err != nil {
		return 0, false, &exitError{code: exitNotExecutable, err: fmt.Errorf("the command cannot be started: %w", err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	for {
		select {
		case s := <-signals:
			if fromTerminal(s) { // the command has it: some take a second one for "at once"
				interrupted = interrupted || s == os.Interrupt
				continue
			}
			_ = p.Process.Signal(s) // it may have ended
		case err := <-ended:
			if p.ProcessState == nil {
				return 0, false, err
			}
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && !errors.Is(err, exec.ErrWaitDelay) {
				return 0, false, err
			}
			if code = endedBy(p.ProcessState); code != 128+int(syscall.SIGINT) {
				return code, false, nil
			}
			if !interrupted && fromTerminal(os.Interrupt) { // the same Ctrl-C may be on its way to this process
				select {
				case s := <-signals:
					interrupted = s == os.Interrupt
				case <-time.After(lingering):
				}
			}
			return code, interrupted, nil
		}
	}
}

func newProxy() *cobra.Command {
	var (
		g      governing
		listen string
		file   string
	)
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Keep the proxy of \"headway run\" open, for programs that are started elsewhere",
		Long: `Opens the proxy of "headway run" until it is stopped, and writes the variables that a
program needs into a file, which a shell reads with ". FILE". The file holds the proxy's
password, which is new at each start, and is for you only. Other runs share their pace
with the proxy by a socket in the state folder.

Ctrl-C or SIGTERM stops it; a summary follows.

Exit codes: 0 stopped; 64 bad usage; 69 the address is in use; 70 a fault on this side.`,
		Example: `  headway proxy --host api.example.com --env-file ~/.headway-proxy
  . ~/.headway-proxy && ./sync.py         # in another shell`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !forward.Loopback(listen) {
				return usage(fmt.Errorf("--listen is %q, must be an address of this machine alone, such as 127.0.0.1:8701", clip(listen, 80)))
			}
			if err := g.check(cmd); err != nil {
				return err
			}
			if file == "" {
				file = filepath.Join(g.state, "proxy.env")
			}
			return g.serve(cmd, listen, file)
		},
	}
	g.flags(cmd)
	cmd.Flags().StringVar(&listen, "listen", forward.DefaultAddress, "`address` to listen on, of this machine alone; port 0 takes a free one")
	cmd.Flags().StringVar(&file, "env-file", "", "write the variables into this `file`, once the proxy is open; removed at the end (default proxy.env in the state folder)")
	cmd.Flags().Bool("json", false, "print the summary as JSON")
	return cmd
}

// serve keeps the proxy open until a signal.
func (g *governing) serve(cmd *cobra.Command, listen, file string) (err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	files, err := os.MkdirTemp("", "headway-proxy-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(files)) }()
	if err := os.MkdirAll(g.state, 0o700); err != nil {
		return err
	}
	lock, err := lockfile.Open(filepath.Join(g.state, "proxy.lock"))
	if err != nil {
		return &exitError{code: exitRefused, err: fmt.Errorf("another \"headway proxy\" has the state folder: %w", err)}
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	g.onDistrust = func(host string) { // the summary is far off
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "headway: warning: a program does not accept the certificate for %s (see --pass-through)\n", host)
	}
	of, err := g.open(cmd, listen, files)
	if err != nil {
		return err
	}
	began := time.Now()
	if err = atomicfile.WriteUnsynced(disk.OS{}, file, of.At.Script(os.Getenv)); err == nil {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n  . %s    # in the shell that starts a program\n", of.At.Address, file)
		notify("READY=1")
		select {
		case <-signals:
		case <-cmd.Context().Done():
		case err = <-of.Ended:
		}
		err = errors.Join(err, os.Remove(file))
	}
	s, cut, kept := of.close()
	_ = g.report(cmd, "the programs", time.Since(began), s, cut)
	return errors.Join(err, kept)
}
