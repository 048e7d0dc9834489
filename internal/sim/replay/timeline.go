package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
)

const (
	MaxSize    = 16 << 20             // bytes of a file
	MaxInstant = 366 * 24 * time.Hour // of a timeline

	maxYAML    = 4 << 20   // bytes of YAML, whose tree takes a hundred times as much
	maxActions = 1_000_000 // steps, with repetitions

	maxPriority = 1_000_000     // the minimum is its negative
	maxTokens   = 1_000_000_000 // of each kind, in one call
)

// Timeline is a list of actions, in the order of time.
type Timeline struct {
	actions []action
}

// step is an entry of a timeline, as written.
type step struct {
	At       string         `json:"at"`
	Do       string         `json:"do"`
	ID       string         `json:"id"`
	Model    string         `json:"model"`
	Tenant   string         `json:"tenant"`
	Agent    string         `json:"agent"`
	Priority int            `json:"priority"`
	Input    int64          `json:"input"`
	Output   int64          `json:"output"`
	Cached   int64          `json:"cached"`
	Max      int64          `json:"max"`
	Within   string         `json:"within"`
	Times    int            `json:"times"`
	Every    string         `json:"every"`
	Patch    map[string]any `json:"patch"`

	line          int
	node          *configfile.Node // nil for a line of JSON
	at            time.Duration
	every, within time.Duration
	patch         []byte
}

// Parse reads a file of steps, YAML or JSON lines, and sorts them by time. Steps at the
// same instant keep the order of the file. An error has file, line and field.
func Parse(path string, src []byte) (Timeline, error) {
	steps, file := decode(path, src)
	actions := 0
	for i := range steps {
		steps[i].resolve(file)
		actions += steps[i].Times
	}
	err := file.Err()
	switch {
	case err != nil:
		return Timeline{}, err
	case len(steps) == 0:
		return Timeline{}, fmt.Errorf("%s: it holds no steps", path)
	case actions > maxActions:
		return Timeline{}, fmt.Errorf("%s: %d calls with all repeats, must be at most %d", path, actions, maxActions)
	}
	return Timeline{expand(steps)}, nil
}

// decode reads JSON lines if the file begins with a brace, otherwise YAML.
func decode(path string, src []byte) ([]step, *configfile.File) {
	if bytes.HasPrefix(bytes.TrimSpace(src), []byte("{")) {
		return decodeLines(path, src)
	}
	const list = "a list of steps, as \"- {at: 0s, model: small, input: 200}\""
	root, file := configfile.Parse(path, src, configfile.Options{What: "timeline", Want: list, MaxBytes: maxYAML})
	switch {
	case len(src) > maxYAML:
		file = configfile.NewFile(path, configfile.Options{})
		file.Fail(configfile.Place{}, "", "has %d bytes of YAML; want at most %d: use repeats (times, every) or JSON lines", len(src), maxYAML)
	case root == nil:
	case root.Kind != configfile.List:
		root.Want(list)
	default:
		steps := make([]step, len(root.Items))
		for i, n := range root.Items {
			steps[i].read(n)
		}
		return steps, file
	}
	return nil, file
}

// read reads a step of a YAML file.
func (s *step) read(n *configfile.Node) {
	s.node, s.line = n, n.At.Line
	m := n.Section()
	for _, f := range []struct {
		key  string
		into *string
	}{
		{"at", &s.At}, {"do", &s.Do}, {"id", &s.ID}, {"model", &s.Model}, {"tenant", &s.Tenant}, {"agent", &s.Agent},
		{"within", &s.Within}, {"every", &s.Every},
	} {
		switch v := m.Take(f.key); {
		case v == nil:
		case v.Kind == configfile.Null || v.Kind == configfile.List || v.Kind == configfile.Table:
			v.Want("a text")
		default:
			*f.into = v.Written // an id may be 42
		}
	}
	whole(m, "priority", &s.Priority)
	whole(m, "input", &s.Input)
	whole(m, "output", &s.Output)
	whole(m, "cached", &s.Cached)
	whole(m, "max", &s.Max)
	whole(m, "times", &s.Times)
	if p := m.Take("patch"); p.Section() != nil {
		s.Patch, _ = p.JSON().(map[string]any)
	}
	m.Done()
}

// whole reads a whole number.
func whole[T int | int64](m *configfile.Section, key string, into *T) {
	n := m.Take(key)
	if n == nil {
		return
	}
	v, ok := n.Int()
	if !ok {
		n.Want("a whole number")
	}
	*into = T(v)
}

func decodeLines(path string, src []byte) ([]step, *configfile.File) {
	var steps []step
	file := configfile.NewFile(path, configfile.Options{})
	number := 0
	for line := range bytes.Lines(src) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		s := step{line: number}
		err := d.Decode(&s)
		if err == nil && d.More() {
			err = errors.New("more than one value on a line")
		}
		if err != nil {
			s.fail(file, "", "cannot be read: %v", err)
			return nil, file
		}
		steps = append(steps, s)
	}
	return steps, file
}

// fail reports a problem with a field of the step, or with the step itself if field is "".
func (s *step) fail(file *configfile.File, field, format string, args ...any) {
	at := configfile.Place{Line: s.line, Column: 1}
	if n := s.node; n != nil {
		at = n.At
		if v := n.Get(field); v != nil {
			at = v.At
		}
		if field = n.Below(field); strings.HasSuffix(field, ".") {
			field = n.Path
		}
	} else {
		field = strings.TrimSuffix(fmt.Sprintf("[line %d].%s", s.line, field), ".")
	}
	file.Fail(at, field, format, args...)
}

// fieldsOf has the fields of each verb, except at and do.
var fieldsOf = map[string][]string{
	"approve": {"id", "model", "tenant", "agent", "priority", "input", "output", "cached", "max", "times", "every"},
	"wait":    {"id", "model", "tenant", "agent", "priority", "input", "output", "cached", "max", "times", "every", "within"},
	"record":  {"id", "input", "output", "cached"},
	"drain":   {"id", "output"},
	"cancel":  {"id"},
	"config":  {"patch"},
}

// resolve parses the times and checks that the verb has every field that is set.
func (s *step) resolve(file *configfile.File) {
	s.Do = cmp.Or(s.Do, "approve")
	takes, ok := fieldsOf[s.Do]
	if !ok {
		s.fail(file, "do", "is %.40q; want approve, wait, record, drain, cancel or config", s.Do)
		return
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
			s.fail(file, f.name, "is not a field of %s: want one of at, do, %s", s.Do, strings.Join(takes, ", "))
		}
	}
	for _, f := range []struct {
		name, text, otherwise string
		into                  *time.Duration
	}{{"at", s.At, "", &s.at}, {"every", s.Every, "0s", &s.every}, {"within", s.Within, "15s", &s.within}} {
		d, err := time.ParseDuration(cmp.Or(f.text, f.otherwise))
		if err != nil || d < 0 || d > MaxInstant {
			is := "is missing"
			if f.text != "" {
				is = fmt.Sprintf("is %.40q", f.text)
			}
			s.fail(file, f.name, "%s; want a duration with a unit, such as 1m30s, from 0s to %v", is, MaxInstant)
		}
		*f.into = d
	}
	for _, f := range []struct {
		name      string
		v, lo, hi int64
	}{
		{"priority", int64(s.Priority), -maxPriority, maxPriority}, {"input", s.Input, 0, maxTokens}, {"output", s.Output, 0, maxTokens},
		{"cached", s.Cached, 0, maxTokens}, {"max", s.Max, 0, maxTokens},
	} {
		if f.v < f.lo || f.v > f.hi {
			s.fail(file, f.name, "is %d; want a whole number from %d to %d", f.v, f.lo, f.hi)
		}
	}
	s.Times = cmp.Or(s.Times, 1)
	switch {
	case s.Times < 1 || s.Times > maxActions:
		s.fail(file, "times", "is %d; want from 1 to %d", s.Times, maxActions)
	case s.Times > 1 && s.ID != "":
		s.fail(file, "id", "is %.40q, and a call with an id cannot be repeated: nobody could tell its permits apart", s.ID)
	case s.every > (MaxInstant-s.at)/time.Duration(max(1, s.Times-1)):
		s.fail(file, "every", "is %s: the repeats end after %v", s.every, MaxInstant)
	case (s.Do == "record" || s.Do == "drain" || s.Do == "cancel") && s.ID == "":
		s.fail(file, "id", "is missing; want the id of a call for %s", s.Do)
	case s.Do == "config":
		var err error
		if s.patch, err = json.Marshal(s.Patch); err != nil {
			s.fail(file, "patch", "cannot be JSON: %v", err)
		}
	}
}

// action is a step at one of its instants.
type action struct {
	at time.Duration
	*step
}

// expand expands repetitions, in the order of time.
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
