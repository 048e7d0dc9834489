package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/fleet"
)

// alone is what --fleet says where no fleet is wanted.
const alone = "none"

func fleetFlag(cmd *cobra.Command) {
	cmd.Flags().String("fleet", "", "share the pace with other processes on the same credential, by the server at this `URL`: unix:///PATH/"+fleet.Socket+
		" of a headway serve, valkey://HOST:PORT of a Valkey or Redis, or "+alone+" (default: the one in the state's folder, where there is one)")
}

// fleetOf is the fleet that the flag names, or that of a headway serve in the state's
// folder; nil means none.
func fleetOf(cmd *cobra.Command) (*fleet.Fleet, error) {
	address, err := cmd.Flags().GetString("fleet")
	if err != nil {
		return nil, err
	}
	found := address == ""
	switch {
	case address == alone:
		return nil, nil
	case found:
		path := filepath.Join(filepath.Dir(statePath(cmd)), fleet.Socket)
		if _, err := os.Stat(path); err != nil {
			return nil, nil //nolint:nilerr // nobody serves here
		}
		address = "unix://" + path
	}
	f, err := fleet.Open(cmd.Context(), address)
	switch {
	case err == nil:
		return f, nil
	case found && errors.Is(err, fleet.ErrAway):
		return nil, nil // what a killed one left
	case errors.Is(err, fleet.ErrAway):
		mend := "start headway serve there, or leave --fleet out"
		if !strings.HasPrefix(address, "unix:") {
			mend = "see that it is reachable from here, and the user and password, or leave --fleet out"
		}
		return nil, &exitError{code: exitRefused, err: fmt.Errorf("--fleet: %w; %s", err, mend)}
	}
	return nil, usage(fmt.Errorf("--fleet: %w", err))
}
