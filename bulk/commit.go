package bulk

import (
	"sync"

	"github.com/headway-go/headway/internal/journal"
)

// maxGroup is the maximum number of entries that one sync makes durable.
const maxGroup = 256

// commit is a journal entry with a callback.
type commit struct {
	entry journal.Entry
	then  func(error) // called once the entry is durable or failed; must not block; may be nil
}

// committer makes entries durable. One sync covers all entries that wait.
type committer struct {
	journal *journal.Journal
	in      chan commit
	failed  chan error // receives the first error
	done    sync.WaitGroup
}

func newCommitter(j *journal.Journal) *committer {
	c := &committer{journal: j, in: make(chan commit, maxGroup), failed: make(chan error, 1)}
	c.done.Go(c.run)
	return c
}

// add queues an entry. It blocks while the queue is full.
func (c *committer) add(e journal.Entry, then func(error)) { c.in <- commit{e, then} }

// close waits until all queued entries are durable or have failed. It returns the first
// error that was not received from failed: the loop of a load may have ended before its
// last entries fail.
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
