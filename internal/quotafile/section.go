package quotafile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/span"
	"github.com/headway-go/headway/quota"
)

// named reads a mapping of names that the owner chose. A name alone is one without
// limits of its own.
func named[T any](s *configfile.Section, key string, read func(*configfile.Section, *T)) map[string]T {
	all := s.Below(key)
	if all == nil {
		return nil
	}
	values := make(map[string]T, len(all.Fields()))
	for _, f := range all.Fields() {
		var v T
		if f.Node.Kind != configfile.Null {
			m := f.Node.Section()
			if m == nil {
				continue
			}
			read(m, &v)
			m.Done()
		}
		values[f.Name] = v
	}
	return values
}

// toggle reads what is on by default into a field that says it is off.
func toggle(s *configfile.Section, key string, off *bool) {
	on := !*off
	s.Bool(key, &on)
	*off = !on
}

const notZero = "above 0, or left out"

// integer reads a whole number; package quota knows its bounds.
func integer(s *configfile.Section, key string, into *int64, zero bool) {
	n := s.Take(key)
	if n == nil {
		return
	}
	switch v, ok := n.Int(); {
	case !ok:
		n.Want("a whole number")
	case v == 0 && !zero:
		n.Want(notZero)
	default:
		*into = v
	}
}

// number reads a number; package quota knows its bounds.
func number(s *configfile.Section, key string, into *float64) {
	n := s.Take(key)
	if n == nil {
		return
	}
	switch v, ok := n.Float(); {
	case !ok:
		n.Want("a number")
	case v == 0:
		n.Want(notZero)
	default:
		*into = v
	}
}

// duration reads a length of time into milliseconds.
func duration(s *configfile.Section, key string, into *int64) {
	n := s.Take(key)
	if n == nil {
		return
	}
	switch d, ok := n.Duration(); {
	case !ok:
	case d%time.Millisecond != 0:
		n.Want("whole milliseconds")
	case d == 0:
		n.Want(notZero)
	default:
		*into = d.Milliseconds()
	}
}

// place is where a field stands.
type place struct {
	at   configfile.Place
	node *configfile.Node
}

// places are where fields stand, by their path in JSON: what package quota calls them.
type places map[string]place

// names are the keys of mappings whose own keys the owner chose.
var names = map[string]bool{"models": true, "tenants": true, "agents": true, "charges": true}

// walk notes a mapping and all that is in it. named says that its keys are names.
func (p places) walk(n *configfile.Node, json string, named bool) {
	for _, f := range n.Fields {
		key, at := f.Name, f.At
		if !named {
			key, at = inJSON(f.Name), f.Node.At
		}
		if json != "" {
			key = json + "." + key
		}
		p[key] = place{at, f.Node}
		if f.Node.Kind == configfile.Text {
			p[key+"Ms"] = p[key]
		}
		p.walk(f.Node, key, !named && names[f.Name])
	}
}

// report gives a fault that package quota found its place in the file: that of the
// field, or of what should hold it.
func (p places) report(f *quota.FieldError) {
	inside, missing := f.Field, ""
	at, ok := p[inside]
	for !ok {
		dot := strings.LastIndexByte(inside, '.')
		if dot < 0 {
			at, missing = p[""], f.Field
			break
		}
		inside, missing = inside[:dot], f.Field[dot+1:]
		at, ok = p[inside]
	}
	n, field := at.node, at.node.Path
	if missing != "" {
		field = n.Below(written(missing))
	}
	is, bound := "is "+f.Value, written(f.Bound)
	if missing == "" && strings.HasSuffix(f.Field, "Ms") {
		is = n.Is()
		var lo, hi int64
		if got, _ := fmt.Sscanf(f.Bound, "from %d to %d", &lo, &hi); got == 2 {
			bound = fmt.Sprintf("from %s to %s", span.Text(time.Duration(lo)*time.Millisecond), span.Text(time.Duration(hi)*time.Millisecond))
		}
	}
	n.File().Fail(at.at, field, "%s; want %s", is, bound)
}

// faults are the single errors of what quota says about a configuration; none
// of them gets lost, whatever their type.
func faults(err error) []*quota.FieldError {
	if err == nil {
		return nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*quota.FieldError
		for _, e := range several.Unwrap() {
			all = append(all, faults(e)...)
		}
		return all
	}
	if f, ok := errors.AsType[*quota.FieldError](err); ok {
		return []*quota.FieldError{f}
	}
	return []*quota.FieldError{{Field: "configuration", Value: err.Error(), Bound: "one that a governor takes"}}
}

var camel = regexp.MustCompile(`\b[a-z]+([A-Z][a-z]+)+\b`)

// written is text of package quota with its JSON keys as a file has them:
// softTokenWindowMs is soft_token_window.
func written(text string) string {
	return camel.ReplaceAllStringFunc(text, func(key string) string {
		var b strings.Builder
		for _, c := range key {
			if unicode.IsUpper(c) {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(c))
		}
		return strings.TrimSuffix(b.String(), "_ms")
	})
}

// inJSON is the JSON key of a file's key: soft_token_window is softTokenWindow.
func inJSON(key string) string {
	var b strings.Builder
	for i, part := range strings.Split(key, "_") {
		if i > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	return b.String()
}
