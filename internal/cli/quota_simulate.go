package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/cobra"

	"github.com/headway-go/headway/quota"
)

func newQuotaSimulate() *cobra.Command {
	var (
		limits, start string
		tail          time.Duration
		asJSON        bool
	)
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Replay a timeline of calls against limits, in virtual time",
		Long: `Replays a timeline of calls against limits in virtual time, and prints each
event, each change of state, what is left in the end, and the hash of the
transition log: the same files give the same hash on every machine.

FILE is a YAML list of steps, or JSON lines with the same fields:

  - {at: 0s, id: a, model: small, input: 200, output: 400}    # approve
  - {at: 2s, do: drain, id: a, output: 100}                   # tokens that flow
  - {at: 3s, do: record, id: a, input: 210, output: 390}      # settle
  - {at: 4s, model: small, tenant: t, agent: b, input: 50, times: 100, every: 50ms}
  - {at: 9s, do: wait, id: c, model: small, within: 30s, priority: 1}
  - {at: 9s, do: cancel, id: a}
  - {at: 1h, do: config, patch: {models: {small: {burst: 5}}}}

do is approve (the default), wait, record, drain, cancel or config. approve and
wait take model, tenant, agent, priority, input, output, cached and max (its
max_tokens); wait queues for at most "within" (15s). An id names a call for what
is done with it later; to a call that was refused or still waits it does nothing. A
patch is a JSON merge patch with the fields of the JSON configuration.`,
		Example: `  headway quota simulate day.yaml --config quota.yaml
  headway quota simulate calls.jsonl --config quota.yaml --start 2026-03-08T07:59:00Z --tail 24h
  headway quota simulate day.yaml --config quota.yaml --json | jq -r .transitionHash`,
		Args: exactly(1, "a file with a timeline"),
		RunE: func(cmd *cobra.Command, args []string) error {
			origin, err := time.Parse(time.RFC3339, start)
			if err != nil {
				return usage(fmt.Errorf("--start is %.40q, must be an instant such as 2026-01-01T00:00:00Z", start))
			}
			if tail < 0 || tail > maxInstant {
				return usage(fmt.Errorf("--tail is %v, must be from 0s to %v", tail, maxInstant))
			}
			c, err := quotaConfig(limits)
			if err != nil {
				return err
			}
			actions, err := readTimeline(args[0])
			if err != nil {
				return usage(fmt.Errorf("not a timeline that can be replayed:\n%w", err))
			}
			core, err := quota.New(c, origin)
			if err != nil {
				return usage(err)
			}
			r := newReplay(core)
			if !asJSON {
				r.out = cmd.OutOrStdout()
			}
			if err := r.run(actions, tail); err != nil {
				return usage(fmt.Errorf("%s:%w", args[0], err))
			}
			if asJSON {
				return writeJSON(cmd, r.result())
			}
			_, err = io.WriteString(r.out, r.text())
			return err
		},
	}
	configFlag(cmd, &limits)
	cmd.Flags().StringVar(&start, "start", "2026-01-01T00:00:00Z", "`instant` on the wall clock at which the timeline begins")
	cmd.Flags().DurationVar(&tail, "tail", time.Minute, "go on for this long after the last step")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

const (
	maxTimeline = 16 << 20             // bytes
	maxYAML     = 4 << 20              // bytes of it, as its tree takes a hundred times as many
	maxActions  = 1_000_000            // steps, each as often as it is repeated
	maxInstant  = 366 * 24 * time.Hour // of a timeline
)

// A step is one entry of a timeline, as it is written.
type step struct {
	At       string         `json:"at" yaml:"at"`
	Do       string         `json:"do" yaml:"do"`
	ID       string         `json:"id" yaml:"id"`
	Model    string         `json:"model" yaml:"model"`
	Tenant   string         `json:"tenant" yaml:"tenant"`
	Agent    string         `json:"agent" yaml:"agent"`
	Priority int            `json:"priority" yaml:"priority"`
	Input    int64          `json:"input" yaml:"input"`
	Output   int64          `json:"output" yaml:"output"`
	Cached   int64          `json:"cached" yaml:"cached"`
	Max      int64          `json:"max" yaml:"max"`
	Within   string         `json:"within" yaml:"within"`
	Times    int            `json:"times" yaml:"times"`
	Every    string         `json:"every" yaml:"every"`
	Patch    map[string]any `json:"patch" yaml:"patch"`

	line          int
	at            time.Duration
	every, within time.Duration
	patch         []byte
}

// readTimeline reads a file of steps and orders them by time. Steps at the same
// instant stay in the order of the file.
func readTimeline(path string) ([]action, error) {
	src, err := readBounded(path, maxTimeline)
	if err != nil {
		return nil, err
	}
	steps, err := decodeTimeline(path, src)
	if err != nil {
		return nil, err
	}
	var errs []error
	actions := 0
	for i := range steps {
		if err := steps[i].resolve(); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, steps[i].line, err))
			continue
		}
		actions += steps[i].Times
	}
	switch {
	case len(errs) > 0:
		return nil, errors.Join(errs[:min(len(errs), 20)]...)
	case len(steps) == 0:
		return nil, fmt.Errorf("%s: it holds no steps", path)
	case actions > maxActions:
		return nil, fmt.Errorf("%s: %d calls with all repeats, must be at most %d", path, actions, maxActions)
	}
	return expand(steps), nil
}

// readBounded reads a file of at most so many bytes.
func readBounded(path string, limit int64) (b []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return b, err
}

// decodeTimeline reads JSON lines when the file begins with a brace, else YAML.
func decodeTimeline(path string, src []byte) ([]step, error) {
	if bytes.HasPrefix(bytes.TrimSpace(src), []byte("{")) {
		return decodeLines(path, src)
	}
	if len(src) > maxYAML {
		return nil, fmt.Errorf("%s: %d bytes of YAML, must be at most %d: use repeats (times, every) or JSON lines", path, len(src), maxYAML)
	}
	if line := tooDeep(src); line > 0 {
		return nil, fmt.Errorf("%s:%d: nested deeper than any step", path, line)
	}
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: not YAML: %w", path, err)
	}
	var steps []step
	for _, doc := range file.Docs {
		list, ok := doc.Body.(*ast.SequenceNode)
		if !ok {
			return nil, fmt.Errorf("%s: it must be a list of steps, as \"- {at: 0s, model: small, input: 200}\"", path)
		}
		for _, node := range list.Values {
			var s step
			if err := yaml.NodeToValue(node, &s, yaml.Strict()); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			s.line = lineOf(node)
			steps = append(steps, s)
		}
	}
	return steps, nil
}

// tooDeep is the line on which nesting gets deeper than any step has, before the
// parser, which recurses, sees it; 0 when none does. Brackets in text count too,
// which costs nobody anything.
func tooDeep(src []byte) int {
	const limit = 100 // brackets, or columns of indent
	depth, number := 0, 0
	for line := range bytes.Lines(src) {
		number++
		if len(line)-len(bytes.TrimLeft(line, " \t-?")) > limit {
			return number
		}
		for _, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			}
			if depth > limit {
				return number
			}
		}
	}
	return 0
}

// lineOf is the line that a node begins on.
func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	return n.GetToken().Position.Line
}

func decodeLines(path string, src []byte) ([]step, error) {
	var steps []step
	number := 0
	for line := range bytes.Lines(src) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var s step
		err := d.Decode(&s)
		if err == nil && d.More() {
			err = errors.New("more than one value on a line")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		s.line = number
		steps = append(steps, s)
	}
	return steps, nil
}

// fieldsOf says which fields a verb takes, beside at and do.
var fieldsOf = map[string][]string{
	"approve": {"id", "model", "tenant", "agent", "priority", "input", "output", "cached", "max", "times", "every"},
	"wait":    {"id", "model", "tenant", "agent", "priority", "input", "output", "cached", "max", "times", "every", "within"},
	"record":  {"id", "input", "output", "cached"},
	"drain":   {"id", "output"},
	"cancel":  {"id"},
	"config":  {"patch"},
}

// resolve reads the times and checks that the verb takes every field that is set.
func (s *step) resolve() (err error) {
	s.Do = cmp.Or(s.Do, "approve")
	takes, ok := fieldsOf[s.Do]
	if !ok {
		return fmt.Errorf("do is %.40q, must be approve, wait, record, drain, cancel or config", s.Do)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"id", s.ID != ""}, {"model", s.Model != ""}, {"tenant", s.Tenant != ""}, {"agent", s.Agent != ""},
		{"priority", s.Priority != 0}, {"input", s.Input != 0}, {"output", s.Output != 0}, {"cached", s.Cached != 0},
		{"max", s.Max != 0}, {"within", s.Within != ""}, {"times", s.Times != 0}, {"every", s.Every != ""}, {"patch", s.Patch != nil},
	} {
		if f.set && !slices.Contains(takes, f.name) {
			return fmt.Errorf("%s has no %s", s.Do, f.name)
		}
	}
	for _, f := range []struct {
		name, text, otherwise string
		into                  *time.Duration
	}{{"at", s.At, "", &s.at}, {"every", s.Every, "0s", &s.every}, {"within", s.Within, "15s", &s.within}} {
		d, err := time.ParseDuration(cmp.Or(f.text, f.otherwise))
		if err != nil || d < 0 || d > maxInstant {
			return fmt.Errorf("%s is %.40q, must be a duration from 0s to %v, such as 1m30s", f.name, f.text, maxInstant)
		}
		*f.into = d
	}
	s.Times = cmp.Or(s.Times, 1)
	switch {
	case s.Times < 1 || s.Times > maxActions:
		return fmt.Errorf("times is %d, must be from 1 to %d", s.Times, maxActions)
	case s.Times > 1 && s.ID != "":
		return fmt.Errorf("a call with the id %.40q cannot be repeated: nobody could tell its permits apart", s.ID)
	case s.every > (maxInstant-s.at)/time.Duration(max(1, s.Times-1)):
		return fmt.Errorf("the repeats end after %v", maxInstant)
	case (s.Do == "record" || s.Do == "drain" || s.Do == "cancel") && s.ID == "":
		return fmt.Errorf("%s needs the id of a call", s.Do)
	case s.Do == "config":
		s.patch, err = json.Marshal(s.Patch)
	}
	return err
}

// An action is a step at one of its instants.
type action struct {
	at time.Duration
	*step
}

// expand writes repeats out, in the order of time.
func expand(steps []step) []action {
	var all []action
	for i := range steps {
		at := steps[i].at
		for range steps[i].Times {
			all = append(all, action{at, &steps[i]})
			at += steps[i].every
		}
	}
	slices.SortStableFunc(all, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	return all
}
