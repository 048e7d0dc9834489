package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/ca"
	"github.com/headway-go/headway/internal/forward"
)

func newCA() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Show, export or replace the certificate authority of \"headway run\"",
		Long: `"headway run" and "headway proxy" decrypt the hosts that you name with a certificate
authority of your own. It is made on first use, for a year. Its key stays in the state
folder, in a file for you only. No system store has it: programs get its certificate by
their environment. That of a run is valid for the hosts of that run only.`,
		Example: `  headway ca show
  headway ca export --host api.example.com > headway-ca.pem
  headway ca rotate`,
	}
	cmd.PersistentFlags().String("state", "", "`folder` of the certificate authority (default $XDG_STATE_HOME/headway or ~/.local/state/headway)")
	return group(cmd, newCAShow(), newCAExport(), newCARotate())
}

// authority finds the authority that is there. One that has expired is given beside its
// error.
func authority(cmd *cobra.Command) (*ca.Authority, error) {
	flag, err := cmd.Flags().GetString("state")
	if err != nil {
		return nil, err
	}
	dir, err := userState(flag)
	if err != nil {
		return nil, err
	}
	a, err := ca.Load(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usage(fmt.Errorf("there is no certificate authority in %s yet: \"headway run\" makes it on first use, \"headway ca rotate\" at once", dir))
	case errors.Is(err, ca.ErrExpired):
		return a, usage(err)
	case err != nil:
		return nil, &exitError{code: exitInternal, err: err}
	}
	return a, nil
}

// shownCA is an authority as it is shown.
type shownCA struct {
	File        string    `json:"file"`
	From        time.Time `json:"from"`
	Until       time.Time `json:"until"`
	Expired     bool      `json:"expired"`
	Fingerprint string    `json:"sha256_fingerprint"`
}

func showCA(cmd *cobra.Command, a *ca.Authority) error {
	s := shownCA{File: a.Path(), From: a.From(), Until: a.Until(), Expired: time.Now().After(a.Until()), Fingerprint: a.Fingerprint()}
	var table sheet
	table.line("file\t%s", s.File)
	until := s.Until.Format(time.DateOnly)
	if s.Expired {
		until += ", expired: run \"headway ca rotate\""
	}
	table.line("valid\t%s to %s", s.From.Format(time.DateOnly), until)
	table.line("sha256\t%s", s.Fingerprint)
	return present(cmd, s, table.String())
}

func newCAShow() *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use:     "show",
		Short:   "Show where the authority is, until when it is valid, and its fingerprint",
		Example: "  headway ca show\n  headway ca show --json",
		Args:    exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := authority(cmd)
			if a == nil {
				return err
			}
			return errors.Join(showCA(cmd, a), err)
		},
	})
}

func newCAExport() *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the authority's certificate, for a program that has to be given it by hand",
		Long: `Prints the certificate, without its key, as PEM. With --host it is valid for those hosts
only, which is what a program should be given that takes no certificate from its
environment.`,
		Example: "  headway ca export --host api.example.com > headway-ca.pem",
		Args:    exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := authority(cmd)
			if err != nil {
				return err
			}
			b := a.PEM()
			if len(names) > 0 {
				var hosts []string
				for _, text := range names {
					host, ok := forward.Pattern(text)
					if !ok {
						return usage(fmt.Errorf("--host is %q, want a name such as api.github.com, '*.example.com', or an address", clip(text, 80)))
					}
					hosts = append(hosts, host)
				}
				issuer, err := a.For(hosts)
				if err != nil {
					return err
				}
				b = issuer.PEM()
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&names, "host", nil, "a `HOST` that the certificate is valid for; may be repeated (default: all)")
	return cmd
}

func newCARotate() *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use:   "rotate",
		Short: "Replace the authority by a new one, valid for a year",
		Long: `Makes a new key and certificate in place of those there are. Runs under way go on with
theirs. What was given the old certificate by hand has to be given the new one.`,
		Example: "  headway ca rotate",
		Args:    exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			flag, err := cmd.Flags().GetString("state")
			if err != nil {
				return err
			}
			dir, err := userState(flag)
			if err != nil {
				return err
			}
			a, err := ca.Rotate(cmd.Context(), dir)
			if err != nil {
				return &exitError{code: exitInternal, err: err}
			}
			return showCA(cmd, a)
		},
	})
}
