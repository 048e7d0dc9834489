package bulk

import (
	"sync"

	"github.com/headway-go/headway/internal/journal"
)

// maxGroup is how many entries become durable with one sync, at most.
const maxGroup = 256

// commit is an entry and what to do once it is durable, or cannot be.
type commit struct {
	entry journal.Entry
	then  func(error) // does not block; nil for nothing
}

// committer makes entries durable: all that wait, with one sync.
type committer struct {
	journal *journal.Journal
	in      chan commit
	failed  chan error // gets the first error
	done    sync.WaitGroup
}

func newCommitter(j *journal.Journal) *committer {
	c := &committer{journal: j, in: make(chan commit, maxGroup), failed: make(chan error, 1)}
	c.done.Go(c.run)
	return c
}

// add hands an entry over; it waits while many are waiting.
func (c *committer) add(e journal.Entry, then func(error)) { c.in <- commit{e, then} }

// close waits until everything handed over is durable or has failed. It returns the
// first error that nobody took from failed: when the last entries of a load fail, its
// loop may have ended already.
func (c *committer) close() error {
	close(c.in)
	c.done.Wait()
	select {
	case err := <-c.failed:
		return err
	default:
		return nil
	}
}

func (c *committer) run() {
	var group []commit
	var entries []journal.Entry
	for first := range c.in {
		group = append(group[:0], first)
	gather:
		for len(group) < maxGroup {
			select {
			case next, open := <-c.in:
				if !open {
					break gather
				}
				group = append(group, next)
			default:
				break gather
			}
		}
		entries = entries[:0]
		for _, g := range group {
			entries = append(entries, g.entry)
		}
		err := c.journal.Write(entries...)
		if err != nil {
			select {
			case c.failed <- err:
			default: // the first one counts
			}
		}
		for _, g := range group {
			if g.then != nil {
				g.then(err)
			}
		}
		clear(group)
		clear(entries)
	}
}
