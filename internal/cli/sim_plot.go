package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// plottable says whether a plot can go there, before anything is computed.
func plottable(cmd *cobra.Command, path string) error {
	if !cmd.Flags().Changed("plot") {
		return nil
	}
	return replaceable("--plot", path)
}

// replaceable says whether writeWhole may write a file there: never over a
// device, a pipe or a link, which a rename would take away.
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

// writeWhole writes a file so that there is the old one or the whole new one,
// never a part: under another name, then by a rename.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	// Not os.CreateTemp, whose files are for the owner alone: the umask decides.
	temp := fmt.Sprintf("%s.%016x.tmp", path, rand.Uint64())
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
