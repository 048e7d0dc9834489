package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/figure"
)

func newBulkResume() *cobra.Command {
	var (
		f     bulkFlags
		input string
	)
	cmd := &cobra.Command{
		Use:   "resume [DIR]",
		Short: "Go on with a load that was stopped or killed",
		Long: `Goes on with the load of a folder as it was started; without a folder, with the
only one that is not complete. The input has to be the same file (its length and
beginning are compared), the target the same address and operation. Numbers that
are given here count from now on.`,
		Example: `  headway bulk resume
  headway bulk resume .headway/bulk/contacts.csv-to-crm
  headway bulk resume .headway/bulk/contacts.csv-to-crm --target crm-new-login.yaml
  headway bulk resume .headway/bulk/contacts.csv-to-crm --input /mnt/moved/contacts.csv
  headway bulk resume .headway/bulk/stdin-to-crm < contacts.jsonl`,
		Args: atMostOne("the folder of a load"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			dir, err := oneLoad(args)
			if err != nil {
				return err
			}
			status, err := bulk.ReadStatus(dir)
			if err != nil {
				return noLoad(err)
			}
			if status.Input.Stream() && (!status.InputRead || status.Owed > 0) {
				return usage(fmt.Errorf("%s read from a pipe, which cannot be read again: of %s rows that it had read %s are owed; load those, and all after them, from a file into another folder", dir, figure.Count(status.Rows), figure.Count(status.Owed)))
			}
			r, err := readRecipe(dir)
			if err != nil {
				return usage(err)
			}
			if err := f.change(cmd, &r, input); err != nil {
				return err
			}
			return runLoad(cmd, &r, r.Input, dir, bulk.ResumeOnly, newScreen(cmd, f.asJSON, f.quiet))
		},
		ValidArgsFunction: bulkFolders,
	}
	f.targetFlag(cmd, "the target file, where it is not where it was")
	cmd.Flags().StringVar(&input, "input", "", "the rows' file, where it is not where it was")
	f.load(cmd)
	return cmd
}

// change puts what was given now over what the load was started with.
func (f *bulkFlags) change(cmd *cobra.Command, r *recipe, input string) (err error) {
	if f.target != "" {
		if r.Target, err = filepath.Abs(f.target); err != nil {
			return err
		}
		r.targetAs = f.target
	}
	if input != "" {
		if r.Input, err = filepath.Abs(input); err != nil {
			return err
		}
	}
	n := &f.numbers
	if n.MaxParallel > 0 { // by flag or environment
		r.Numbers.MaxParallel = n.MaxParallel
	}
	for name, set := range map[string]func(){
		"batch-rows":        func() { r.Numbers.BatchRows = n.BatchRows },
		"target-time":       func() { r.Numbers.TargetTime = n.TargetTime },
		"max-rejects":       func() { r.Numbers.MaxRejects = n.MaxRejects },
		"stall-timeout":     func() { r.Numbers.StallTimeout = n.StallTimeout },
		"drain":             func() { r.Numbers.Drain = n.Drain },
		"seed":              func() { r.Numbers.Seed = n.Seed },
		"stop-on-malformed": func() { r.Numbers.StopOnMalformed = n.StopOnMalformed },
	} {
		if cmd.Flags().Changed(name) {
			set()
		}
	}
	return nil
}
