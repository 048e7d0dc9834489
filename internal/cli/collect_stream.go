package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/internal/schedule"
)

// demand is what a run of collect was asked for beside the connection.
type demand struct {
	fresh   bool
	streams []string // nil is all
	turn    schedule.Turn
	fixed   bool // turn is the command line's
}

// checkStreams holds --stream against the connection, before anything is opened.
func checkStreams(c *rest.Config, names []string, fresh bool) error {
	if len(names) == 0 {
		return nil
	}
	if fresh {
		return usage(errors.New("--fresh does not go with --stream: it forgets the whole connection"))
	}
	con, err := rest.New(c)
	if err != nil {
		return usage(err)
	}
	if err := collect.CheckStreams(names, con.Streams()); err != nil {
		return usage(fmt.Errorf("--stream: %w", err))
	}
	return nil
}

// streamNames completes the streams of the connection that the command line
// names. Variables that the file needs may be unset in this shell.
func streamNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := rest.Load(args[0], func(name string) (string, bool) {
		if v, ok := os.LookupEnv(name); ok {
			return v, true
		}
		return "https://example.com", true
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range c.Streams {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
