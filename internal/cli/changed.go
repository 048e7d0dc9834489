package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/store/sqlite"
)

// changeText is a change with the command that an operator may want.
func changeText(connection string, c collect.Change) string {
	if c.Kind == collect.GapsOrphaned {
		return fmt.Sprintf("%s (headway gaps drop --connection %s --stream %s)", c, connection, c.Stream)
	}
	return c.String()
}

// changesOf compares a connection with its state, which is only read. Without a
// state there are no changes.
func changesOf(cmd *cobra.Command, path, name string, sink collect.Location, streams []connector.Stream) (changes []collect.Change, err error) {
	r, err := sqlite.OpenReader(cmd.Context(), path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	was, ok, err := collect.StatusOf(cmd.Context(), r, name)
	if !ok {
		return nil, err
	}
	changes = collect.Changes(was, streams)
	if c, changed := collect.SinkChange(was.SinkAt(), sink); changed {
		if slices.Contains(was.FormerSinks, sink) {
			c.Kind = collect.SinkReturned
		}
		changes = append(changes, c)
	}
	orphans, err := orphansOf(cmd, r, name, streams)
	return append(changes, orphans...), err
}

// orphansOf counts the gaps that no stream can fetch, by stream.
func orphansOf(cmd *cobra.Command, r collect.Reader, name string, streams []connector.Stream) (changes []collect.Change, err error) {
	f := collect.GapFilter{Connection: name, Limit: 500}
	for {
		gaps, err := r.Gaps(cmd.Context(), f)
		if err != nil {
			return nil, err
		}
		for _, g := range gaps {
			f.AfterID = g.ID
			if g.Status == collect.GapRecovered || !collect.Orphaned(g, streams) {
				continue
			}
			i := slices.IndexFunc(changes, func(c collect.Change) bool { return c.Stream == g.Stream })
			if i < 0 {
				i = len(changes)
				changes = append(changes, collect.Change{Kind: collect.GapsOrphaned, Stream: g.Stream})
			}
			changes[i].Count++
		}
		if len(gaps) < f.Limit {
			return changes, nil
		}
	}
}
