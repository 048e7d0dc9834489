package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/postgres"
	"github.com/headway-go/headway/store/sqlite"
)

// storeVariable names the database of the state for every command.
const storeVariable = "HEADWAY_STORE"

var errNoDatabase = errors.New("--store (or $" + storeVariable + ") is not the URL of a database: " +
	"write postgres://user@host:5432/database; a file is named by --state")

// stateFlag lets a command, and those below it, keep the state elsewhere.
func stateFlag(cmd *cobra.Command) {
	fileFlag(cmd)
	cmd.PersistentFlags().String("store", "", "`URL` of a PostgreSQL database that holds the durable state instead of the file: "+
		"postgres://USER@HOST:5432/DATABASE?search_path=SCHEMA (default $"+storeVariable+")")
}

// fileFlag is for a command that needs the place of the file only.
func fileFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("state", "", "`file` that holds the durable state (default $HEADWAY_STATE, else "+defaultState+")")
}

// statePath is the state file by flag, environment or default, in that order.
func statePath(cmd *cobra.Command) string {
	if p, err := cmd.Flags().GetString("state"); err == nil && p != "" {
		return p
	}
	if p := os.Getenv("HEADWAY_STATE"); p != "" {
		return p
	}
	return defaultState
}

// storeURL is the database that holds the state, by flag or environment; empty if a file
// does. A file named by flag goes before a database named by the environment.
func storeURL(cmd *cobra.Command) (string, error) {
	at, err := cmd.Flags().GetString("store")
	switch {
	case err != nil:
		return "", nil //nolint:nilerr // the command has no state
	case at == "" && cmd.Flags().Changed("store"):
		return "", usage(errors.New("--store is empty"))
	case at == "" && cmd.Flags().Changed("state"):
		return "", nil
	case at == "":
		at = os.Getenv(storeVariable)
	}
	if at != "" && !postgres.Names(at) {
		return "", usage(errNoDatabase)
	}
	return at, nil
}

// statePlace says where the state is, for people: without user and password.
func statePlace(cmd *cobra.Command) string {
	at, err := storeURL(cmd)
	if err != nil || at == "" {
		return statePath(cmd)
	}
	return postgres.Place(at)
}

// durable is a store, or its read side, that is closed in the end.
type durable interface {
	collect.Store
	io.Closer
}

// openStore opens the state for a run.
func openStore(cmd *cobra.Command) (durable, error) {
	at, err := storeURL(cmd)
	switch {
	case err != nil:
		return nil, err
	case at == "":
		return sqlite.Open(cmd.Context(), statePath(cmd))
	}
	s, err := postgres.Open(cmd.Context(), at)
	if err != nil {
		return nil, unavailable(err)
	}
	return s, nil
}

// openReader opens the state to look at it. Where nothing was collected yet the error
// matches fs.ErrNotExist.
func openReader(ctx context.Context, cmd *cobra.Command) (collect.ClosingReader, error) {
	at, err := storeURL(cmd)
	switch {
	case err != nil:
		return nil, err
	case at == "":
		return sqlite.OpenReader(ctx, statePath(cmd))
	}
	r, err := postgres.OpenReader(ctx, at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, unavailable(err)
	}
	return r, nil
}

// unavailable is the exit of a database that cannot be used.
func unavailable(err error) error { return &exitError{code: exitRefused, err: err} }

// noState says that nothing was collected yet.
func noState(cmd *cobra.Command) error {
	return usage(fmt.Errorf("there is no state in %s: nothing was collected from here yet "+
		"(--state FILE or HEADWAY_STATE names another file, --store URL or %s a database)", statePlace(cmd), storeVariable))
}

// storeText says that the database of the state answers, and what is in it.
func storeText(cmd *cobra.Command) (string, error) {
	r, err := openReader(cmd.Context(), cmd)
	if errors.Is(err, fs.ErrNotExist) {
		return statePlace(cmd) + ": it answers, and nothing was collected into it yet", nil
	}
	if err != nil {
		return "", err
	}
	all, err := r.Connections(cmd.Context())
	if err = errors.Join(err, r.Close()); err != nil {
		return "", unavailable(err)
	}
	return fmt.Sprintf("%s: it answers, and holds the state of %s", statePlace(cmd), counted(int64(len(all)), "connection")), nil
}
