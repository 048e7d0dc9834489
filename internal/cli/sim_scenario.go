package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
	"github.com/headway-go/headway/internal/sim/serve"
)

// demoName is the scenario of the served provider; the others are in package
// scenarios.
const demoName = "demo"

// scenarioOf is the embedded scenario of that name, or the one in the file.
// Errors in its content are a [*configfile.Error].
func scenarioOf(arg string) (*scenario.Scenario, error) {
	if arg == demoName {
		return serve.Demo(), nil
	}
	if !strings.ContainsAny(arg, `/\`) { // a path is never looked for among the names
		if src, ok := scenarios.Source(arg); ok {
			return scenario.Parse(arg, []byte(src))
		}
	}
	s, err := scenario.Load(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is neither a file nor an embedded scenario %q (see %q)", arg, "headway sim list")
	}
	return s, err
}

// scenariosOf reads all the named scenarios; the error has the problems of all of them.
func scenariosOf(args []string) ([]*scenario.Scenario, error) {
	all := make([]*scenario.Scenario, len(args))
	errs := make([]error, len(args))
	for i, arg := range args {
		all[i], errs[i] = scenarioOf(arg)
	}
	return all, errors.Join(errs...)
}

// embedded is a scenario that comes with headway.
type embedded struct {
	Name string `json:"name"`
	// Description is the scenario's own, or where its numbers are from.
	Description string  `json:"description"`
	HorizonS    float64 `json:"horizon_s"`
	// Clients are the users of a bulk workload.
	Clients int `json:"clients"`
	// Rows is how many a bulk workload loads; absent for the others.
	Rows   int64    `json:"rows,omitzero"`
	Limits []string `json:"limits"`
}

// allEmbedded lists them by name.
func allEmbedded() ([]embedded, error) {
	all, err := scenarios.All()
	if err != nil {
		return nil, err
	}
	loads, err := scenarios.Bulk()
	if err != nil {
		return nil, err
	}
	all = append(append(all, loads...), serve.Demo())
	list := make([]embedded, len(all))
	for i, s := range all {
		e := embedded{
			Name: s.Name, Description: s.Description,
			HorizonS: s.Horizon.Seconds(), Clients: s.Clients, Limits: []string{},
		}
		if sim.Bulk(s) {
			e.Clients, e.Rows = s.Workload.Users, int64(s.Workload.Rows)
		}
		if e.Description == "" {
			src, _ := scenarios.Source(s.Name)
			e.Description = source(src)
		}
		for _, l := range s.Provider.EachLimit {
			e.Limits = append(e.Limits, l.String())
		}
		list[i] = e
	}
	slices.SortFunc(list, func(a, b embedded) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// source is the comment that an embedded scenario begins with, as one line.
func source(src string) string {
	var words []string
	for line := range strings.Lines(src) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		words = append(words, strings.Fields(comment)...)
	}
	return strings.TrimPrefix(strings.Join(words, " "), "Source: ")
}

// completeScenarios offers the embedded scenarios, and files when none begins so.
func completeScenarios(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	all, err := allEmbedded()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, e := range all {
		if strings.HasPrefix(e.Name, begun) && !slices.Contains(args, e.Name) {
			names = append(names, cobra.CompletionWithDesc(e.Name, strings.Join(e.Limits, "; ")))
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// completeScenario is the same for a command that takes one.
func completeScenario(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeScenarios(cmd, args, begun)
}

// completeLaws offers the laws that a list does not have yet.
func completeLaws(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	head, last := "", begun
	if i := strings.LastIndexByte(begun, ','); i >= 0 {
		head, last = begun[:i+1], begun[i+1:]
	}
	var lists []string
	for _, law := range allLaws() {
		if strings.HasPrefix(law, last) && !slices.Contains(strings.Split(head, ","), law) {
			lists = append(lists, head+law)
		}
	}
	return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeFlag adds the completion of a flag's value.
func completeFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // there is no such flag
	}
}

// plottable checks, before anything is computed, that a plot can be written to a path.
func plottable(cmd *cobra.Command, path string) error {
	if !cmd.Flags().Changed("plot") {
		return nil
	}
	return replaceable("--plot", path)
}

// replaceable checks that writeWhole may write a file there. It may not replace a device, a
// pipe or a link, which the rename would remove.
func replaceable(flag, path string) error {
	if path == "" {
		return usage(fmt.Errorf("%s is empty, must name a file", flag))
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return usage(fmt.Errorf("%s: there is no directory %s", flag, filepath.Dir(path)))
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usage(fmt.Errorf("%s: %w", flag, err))
	case !info.Mode().IsRegular():
		return usage(fmt.Errorf("%s: %s exists and is not a regular file", flag, path))
	}
	return nil
}

// writeWhole writes a file under a temporary name and renames it, so that a reader finds
// the old file or the whole new one. The error names the flag.
func writeWhole(flag, path string, write func(io.Writer) error) (err error) {
	// Not os.CreateTemp, whose files are for the owner alone: the umask decides.
	temp := fmt.Sprintf("%s.%016x.tmp", path, rand.Uint64())
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
			err = fmt.Errorf("%s: %w", flag, err)
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// content writes bytes that are complete already.
func content(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}
