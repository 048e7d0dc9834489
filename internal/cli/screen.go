package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
)

// How often progress is shown.
const (
	repaint   = 200 * time.Millisecond // on a terminal
	plainLine = 5 * time.Second        // elsewhere
)

// screen shows one run: a block that is repainted on a terminal, a line every
// few seconds elsewhere, or JSON lines.
type screen struct {
	out, err io.Writer
	json     bool
	quiet    bool
	width    func() int // nil when standard error is not a terminal

	destination string // where the records go, for people

	mu      sync.Mutex
	painted int // lines of the block on the terminal
}

func newScreen(cmd *cobra.Command, asJSON, quiet bool) *screen {
	s := &screen{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: asJSON, quiet: quiet}
	if f, ok := s.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.width = func() int {
			w, _, err := term.GetSize(int(f.Fd()))
			if err != nil || w < 20 {
				return 80
			}
			return w
		}
	}
	return s
}

// say prints a line for a person, above the progress.
func (s *screen) say(text string) {
	if s.json {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	_, _ = fmt.Fprintln(s.err, "headway: "+text)
}

// line prints one JSON line.
func (s *screen) line(kind string, v any) {
	b, err := json.Marshal(map[string]any{"type": kind, kind: v})
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(append(b, '\n'))
}

// event shows what a person would want to know at once, or everything as JSON.
func (s *screen) event(e event.Event) {
	if s.json {
		s.line("event", e)
		return
	}
	switch {
	case e.Type == event.Circuit && e.Circuit.State == "open":
		s.say("the provider keeps failing: the circuit is open, attempts pause")
	case e.Type == event.Circuit && e.Circuit.State == "closed":
		s.say("the provider answers again: the circuit is closed")
	case e.Type == event.ConnectionChanged, e.Type == event.Warning:
		s.say(eventText(e))
	case e.Note == "cursor_refused_walk_restarted":
		s.say("the provider no longer knows the stored cursor of " + e.Stream + ": walking from the start, known items are skipped")
	case e.Type == event.WarmStart && e.Note == "restored":
		s.say("warm start: going on at the speed that the last run found")
	}
}

// follow shows progress until the function that it returns is called.
func (s *screen) follow(c *rest.Config, collector *collect.Collector) (end func()) {
	if s.quiet {
		return func() {}
	}
	every := plainLine
	if s.width != nil && !s.json {
		every = repaint
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			now, ok := collector.Live()
			switch {
			case !ok:
			case s.json:
				s.line("progress", now)
			case s.width != nil:
				s.paint(progressBlock(c.Name, c.Provider.BaseURL.Host, now, s.width()))
			default:
				s.mu.Lock()
				_, _ = fmt.Fprintln(s.err, strings.Join(progressBlock(c.Name, c.Provider.BaseURL.Host, now, 0), "; "))
				s.mu.Unlock()
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
		s.mu.Lock()
		s.erase()
		s.mu.Unlock()
	}
}

// paint replaces the block on the terminal.
func (s *screen) paint(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	_, _ = io.WriteString(s.err, strings.Join(lines, "\n")+"\n")
	s.painted = len(lines)
}

// erase takes the block off, with the lock held. The terminal may have echoed a
// Ctrl-C, so the line is begun again.
func (s *screen) erase() {
	if s.painted > 0 {
		_, _ = fmt.Fprintf(s.err, "\r\x1b[%dA\x1b[J", s.painted)
		s.painted = 0
	}
}

// conclude prints the summary and gives the exit.
func (s *screen) conclude(c *rest.Config, sum collect.Summary, err error) error {
	if held, ok := errors.AsType[*collect.HeldError](err); ok {
		if s.json {
			s.line("held", map[string]any{"connection": held.Connection, "holder": held.Holder, "run": held.Run, "since": held.Since})
		} else {
			_, _ = fmt.Fprintf(s.out, "%s\nnothing to do here; see \"headway status\"\n", held.Error())
		}
		return exitOf(sum, err)
	}
	switch {
	case sum.ID == "":
		return err
	case s.json:
		s.line("summary", sum)
	default:
		_, _ = io.WriteString(s.out, summaryText(c, sum, s.destination))
	}
	return exitOf(sum, err)
}
