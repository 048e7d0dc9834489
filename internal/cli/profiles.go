package cli

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/profile"
)

func newProfiles() *cobra.Command {
	return group(&cobra.Command{
		Use:   "profiles",
		Short: "Show what providers publish about their limits",
		Long: `A profile is what a provider publishes about its limits, as data: which requests share
a limit, what a request costs, which header fields say what is left, and which
answers are refusals. Every figure names the page that it is from, and the day on which
that was read. A connection, or a provider of "headway serve", uses one by its name.

Copy one to change or to extend it, and name the file instead. A file NAME.yaml in the
folder $HEADWAY_PROFILES comes before the profile of that name that comes with headway.`,
		Example: `  headway profiles list
  headway profiles show github
  headway profiles show github > ./github.yaml`,
	}, newProfilesList(), newProfilesShow())
}

// listedProfile is one line of the list.
type listedProfile struct {
	Name  string   `json:"name"`
	Title string   `json:"title"`
	Hosts []string `json:"hosts"`
	Pools []string `json:"pools"`
	// File is where it is, when it is not one that comes with headway.
	File string `json:"file,omitempty"`
}

func newProfilesList() *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List the profiles that can be named",
		Long: `Lists the profiles that can be named: what they are of, and which pools of requests
they know. Those in the folder $HEADWAY_PROFILES are among them.`,
		Example: `  headway profiles list
  headway profiles list --json | jq -r '.[].name'`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := profile.All(profileFolders()...)
			if err != nil {
				return usage(err)
			}
			list := make([]listedProfile, 0, len(all))
			for _, p := range all {
				l := listedProfile{Name: p.Name(), Title: p.Title(), Hosts: p.Hosts(), Pools: p.Pools(), File: p.File()}
				list = append(list, l)
			}
			var table sheet
			for _, l := range list {
				pools := cmp.Or(strings.Join(l.Pools, ", "), "one for all requests")
				if l.File != "" {
					pools += " (" + l.File + ")"
				}
				table.line("%s\t%s\t%s", l.Name, l.Title, pools)
			}
			return present(cmd, list, table.String())
		},
	})
}

func newProfilesShow() *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use:   "show NAME",
		Short: "Show a profile, to read or to copy it",
		Long: `Shows a profile as the file that it is, so that it can be copied; with --json the same
as JSON. A path in place of the name checks a file of your own.`,
		Example: `  headway profiles show slack
  headway profiles show github > ./github.yaml     # to change it
  headway profiles show ./github.yaml              # is it right?
  headway profiles show github --json | jq .sources`,
		Args:              exactly(1, "the name of a profile, or a file"),
		ValidArgsFunction: completeProfiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := profile.Find(args[0], profileFolders()...)
			if err != nil {
				return usage(err)
			}
			return present(cmd, p.JSON(), string(p.Text()))
		},
	})
}

// profileFolders are where profiles of one's own are.
func profileFolders() []string {
	if dir := os.Getenv(profile.FolderVariable); dir != "" {
		return []string{dir}
	}
	return nil
}

// completeProfiles offers the names of profiles, and files when none begins so.
func completeProfiles(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := profile.All(profileFolders()...)
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, p := range all {
		if strings.HasPrefix(p.Name(), begun) {
			names = append(names, cobra.CompletionWithDesc(p.Name(), p.Title()))
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}
