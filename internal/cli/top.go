package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/story"
)

func newTop() *cobra.Command {
	var (
		every time.Duration
		looks int
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch all connections: state, rate, ceiling, back-off and what is owed",
		Long: `Shows all connections and keeps what is shown up to date, those that somebody should
look at first. It reads the state file, or with --server asks a running "headway serve",
which also knows what is proxied. It disturbs nothing.

Arrow keys, Page Up and Page Down scroll, q ends it. Where the output is not a
terminal it writes lines instead: each connection first, then each one that changed.`,
		Example: `  headway top
  headway top --server http://127.0.0.1:8700
  headway top --looks 1 | sort`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if every < 100*time.Millisecond || every > time.Hour || looks < 0 {
				return usage(fmt.Errorf("--interval is %v and --looks is %d, must be from 100ms to 1h, and not negative", every, looks))
			}
			ask, err := remote(cmd)
			if err != nil {
				return err
			}
			if ask == nil {
				archive, _, answers, err := localAPI(cmd, statePath(cmd))
				if err != nil {
					return err
				}
				defer func() { _ = archive.Close() }() // it was only read
				if ask, err = console.Ask(answers); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			w := watcher{ask: ask, every: every, source: asked(cmd)}
			if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) && looks == 0 {
				_, err := tea.NewProgram(&board{watcher: w, ctx: ctx, width: 80, height: 24}, tea.WithContext(ctx), tea.WithInput(cmd.InOrStdin()), tea.WithOutput(f)).Run()
				if ctx.Err() != nil {
					return nil // it was asked to end
				}
				return err
			}
			return answered(cmd, w.lines(ctx, cmd.OutOrStdout(), looks))
		},
	}
	stateFlag(cmd)
	serverFlag(cmd)
	cmd.Flags().DurationVar(&every, "interval", time.Second, "`time` between two looks")
	cmd.Flags().IntVar(&looks, "looks", 0, "write lines and end after so many looks; 0 goes on")
	return cmd
}

// watcher looks at connections, again and again.
type watcher struct {
	ask    *client.Client
	every  time.Duration
	source string
}

// seen is what one look found.
type seen struct {
	rows []console.Row
	at   time.Time
	err  error
}

func (w watcher) look(ctx context.Context) seen {
	rows, err := console.Rows(ctx, w.ask, "")
	slices.SortStableFunc(rows, func(a, b console.Row) int { return a.Tone.Compare(b.Tone) })
	return seen{rows, time.Now(), err}
}

// lines writes what there is and what changes, until the context or the looks end.
func (w watcher) lines(ctx context.Context, out io.Writer, looks int) error {
	last := map[string]string{}
	for n := 1; ; n++ {
		s := w.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.err != nil {
			return s.err
		}
		for _, r := range s.rows {
			cells := cells(r)
			line := strings.Join(cells, "\t")
			if last[r.Name] == line {
				continue
			}
			last[r.Name] = line
			if _, err := fmt.Fprintln(out, s.at.Format(time.TimeOnly)+"\t"+line); err != nil {
				return nil // nobody reads any more
			}
		}
		if n == looks {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.every):
		}
	}
}

// cells are a connection's name, state, rate, ceiling, back-off and what it owes.
func cells(r console.Row) []string {
	rate, ceiling, backoff, owed := story.Unknown, story.Unknown, story.Unknown, "-"
	if pools, _, ok := strings.Cut(r.PoolRates(), " at "); ok {
		rate = pools
	}
	if k := r.Known(); k != nil {
		if k.EffectiveRatePerMin > 0 {
			rate = figure.Rate(k.EffectiveRatePerMin)
		}
		ceiling, backoff = "none", "none"
		if k.CeilingRatePerMin > 0 {
			ceiling = figure.Rate(k.CeilingRatePerMin)
		}
		if b := k.LastBackoff; b != nil {
			layout := "15:04 "
			switch {
			case b.At.IsZero():
				layout = ""
			case time.Since(b.At) > 12*time.Hour:
				layout = "Jan _2 "
			}
			backoff = b.At.Local().Format(layout) + story.Reason(b.Reason)
		}
	}
	if n := r.Owed(); n >= 0 {
		owed = figure.Count(n)
	}
	return []string{story.Visible(r.Name), state(r), rate, ceiling, backoff, owed}
}

// state is that of a connection, with the reason if there is one.
func state(r console.Row) string {
	if r.Why == "" {
		return r.State
	}
	return r.State + ": " + story.Visible(r.Why)
}

// board is the terminal.
type board struct {
	watcher
	ctx           context.Context
	width, height int
	top           int // the first row that is shown
	seen          seen
	failed        error // the last look, while the rows are of one before
}

// Init begins to look.
func (b *board) Init() tea.Cmd { return func() tea.Msg { return b.look(b.ctx) } }

// Update takes what happened.
func (b *board) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	page := max(1, b.height-headLines)
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		b.width, b.height = msg.Width, msg.Height
	case seen:
		if b.failed = msg.err; msg.err == nil {
			b.seen = msg
		}
		return b.bounded(), tea.Tick(b.every, func(time.Time) tea.Msg { return b.look(b.ctx) })
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return b, tea.Quit
		case "up", "k":
			b.top--
		case "down", "j":
			b.top++
		case "pgup":
			b.top -= page
		case "pgdown", "space":
			b.top += page
		case "home":
			b.top = 0
		case "end":
			b.top = len(b.seen.rows)
		}
	}
	return b.bounded(), nil
}

// headLines are those above the rows.
const headLines = 2

// bounded keeps the rows on the screen.
func (b *board) bounded() *board {
	b.top = max(0, min(b.top, len(b.seen.rows)-max(1, b.height-headLines)))
	return b
}

// View draws.
func (b *board) View() tea.View {
	v := tea.NewView(b.text())
	v.AltScreen = true
	return v
}

// paint are the colours of tones; a terminal without colours gets none.
var paint = map[console.Tone]string{console.Bad: "\x1b[31m", console.Warn: "\x1b[33m", console.Good: "\x1b[32m"}

// text is the whole screen.
func (b *board) text() string {
	title := fmt.Sprintf("headway top  %s  %s", b.source, counted(int64(len(b.seen.rows)), "connection"))
	switch {
	case b.failed != nil && b.seen.at.IsZero():
		title = "headway top  " + b.source + "  cannot be read: " + b.failed.Error()
	case b.failed != nil:
		title = fmt.Sprintf("headway top  %s  does not answer; this is of %s", b.source, b.seen.at.Format(time.TimeOnly))
	case b.seen.at.IsZero():
		title = "headway top  " + b.source + "  reading"
	default:
		title += "  " + b.seen.at.Format(time.TimeOnly) + "  q quits"
	}
	lines := []string{clip(story.Visible(title), b.width)}
	widths := b.widths()
	lines = append(lines, "\x1b[1m"+clip(columns([]string{"CONNECTION", "STATE", "RATE", "CEILING", "LAST BACK-OFF", "OWED"}, widths, ""), b.width)+"\x1b[0m")
	for i := b.top; i < len(b.seen.rows) && len(lines) < b.height; i++ {
		r := b.seen.rows[i]
		row := cells(r)
		if utf8.RuneCountInString(row[1]) > widths[1] {
			row[1] = r.State // the reason gives way as a whole
		}
		lines = append(lines, columns(row, widths, paint[r.Tone]))
	}
	if len(b.seen.rows) == 0 && !b.seen.at.IsZero() && len(lines) < b.height {
		lines = append(lines, clip("Nothing is connected yet: \"headway collect connection.yaml\", or a call through \"headway serve\".", b.width))
	}
	return strings.Join(lines, "\n")
}

// widths are those of the columns: what is over goes to the name.
func (b *board) widths() []int {
	w := []int{10, 15, 9, 9, 19, 7}
	for _, r := range b.seen.rows {
		w[1] = max(w[1], min(utf8.RuneCountInString(state(r)), 15+max(0, b.width-80)))
	}
	if b.width < 80 {
		w[4] = 0 // the back-off gives way first
	}
	rest := b.width - len(w) + 1
	for _, one := range w[1:] {
		rest -= one
	}
	longest := 10
	for _, r := range b.seen.rows {
		longest = max(longest, utf8.RuneCountInString(r.Name))
	}
	w[0] = max(10, min(rest, longest))
	return w
}

// columns puts cells beside each other; the second is painted.
func columns(cells []string, widths []int, colour string) string {
	var line strings.Builder
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}
		text := clip(cell, widths[i])
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		switch {
		case i == 1 && colour != "":
			text = colour + text + "\x1b[0m" + space
		case i == 2 || i == 3 || i == len(cells)-1:
			text = space + text
		default:
			text += space
		}
		if i > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(text)
	}
	return strings.TrimRight(line.String(), " ")
}
