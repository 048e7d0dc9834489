package api_test

import (
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// answers are what the operations answer with, in Go; nil is what no struct stands for.
var answers = map[string]any{
	"index": api.Index{}, "approve": api.Approval{}, "usage": api.Settled{},
	"snapshot": quota.Snapshot{}, "forecast": []api.Forecast{}, "statistics": governor.Statistics{},
	"config": quota.Config{}, "patchConfig": api.Patched{},
	"keys": []api.IssuedKey{}, "issueKey": api.NewKey{}, "revokeKey": nil,
	"rate": []api.Rate{}, "connections": []collect.ConnectionStatus{}, "schedule": []schedule.Status{},
	"runs": []collect.Run{}, "run": api.Trace{}, "gaps": []collect.Gap{}, "gap": collect.Gap{},
	"events": nil, "describe": nil, "health": api.Health{}, "ready": api.Health{}, "metrics": nil,
}

// withheld are members that stores hold and no answer has.
var withheld = []string{"collect.Replay.Stream", "collect.Replay.After"}

// Each member of an answer is described, with its type and whether it may be
// missing, and nothing is described that no answer has.
func TestAnswersAreDescribedAsTheirStructsAre(t *testing.T) {
	doc := described(t, false)
	h := held{t: t, seen: map[reflect.Type]bool{}}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			v, known := answers[op.OperationID]
			if !known {
				t.Errorf("%s %s: no struct is given for %s", method, path, op.OperationID)
			}
			if v == nil {
				continue
			}
			h.value(op.OperationID, op.Responses.Status(200).Value.Content.Get("application/json").Schema, reflect.TypeOf(v))
		}
	}
	h.value("Entry", doc.Components.Schemas["Entry"], reflect.TypeFor[events.Entry]())
	h.value("Problem", doc.Components.Schemas["Problem"], reflect.TypeFor[api.Problem]())
	for _, must := range []reflect.Type{reflect.TypeFor[event.Event](), reflect.TypeFor[collect.Lane](), reflect.TypeFor[quota.Event]()} {
		if !h.seen[must] {
			t.Errorf("%s was not compared", must)
		}
	}
}

// held compares schemas with types.
type held struct {
	t    *testing.T
	seen map[reflect.Type]bool
}

var (
	texts = reflect.TypeFor[encoding.TextMarshaler]()
	jsons = reflect.TypeFor[json.Marshaler]()
)

// value compares the schema of one value with its type.
func (h *held) value(at string, ref *openapi3.SchemaRef, typ reflect.Type) {
	h.t.Helper()
	if ref == nil || ref.Value == nil {
		h.t.Errorf("%s: no schema for %s", at, typ)
		return
	}
	s := ref.Value
	for _, one := range s.OneOf { // a value or null
		if !one.Value.Type.Is("null") {
			s = one.Value
		}
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	is := func(kinds ...string) {
		h.t.Helper()
		if s.Type == nil && (len(s.Enum) > 0 || s.Const != nil) {
			return
		}
		if !slices.ContainsFunc(kinds, s.Type.Includes) {
			h.t.Errorf("%s: described as %v, and is %s", at, s.Type, typ)
		}
	}
	switch {
	case typ == reflect.TypeFor[time.Time](), typ.Implements(texts):
		is("string")
	case typ.Implements(jsons), typ == reflect.TypeFor[json.RawMessage]():
	case typ.Kind() == reflect.Struct:
		is("object")
		if !h.seen[typ] {
			h.seen[typ] = true
			h.object(at, s, typ)
		}
	case typ.Kind() == reflect.Map:
		is("object")
		h.value(at+".*", s.AdditionalProperties.Schema, typ.Elem())
	case typ.Kind() == reflect.Slice:
		is("array")
		h.value(at+"[]", s.Items, typ.Elem())
	case typ.Kind() == reflect.String:
		is("string")
	case typ.Kind() == reflect.Bool:
		is("boolean")
	case typ.Kind() == reflect.Float64:
		is("number")
	case typ.Kind() == reflect.Interface:
	default:
		is("integer")
	}
}

// object compares the members of a struct.
func (h *held) object(at string, s *openapi3.Schema, typ reflect.Type) {
	h.t.Helper()
	properties, required := maps.Clone(s.Properties), slices.Clone(s.Required)
	for _, part := range s.AllOf {
		maps.Copy(properties, part.Value.Properties)
		required = append(required, part.Value.Required...)
	}
	in := map[string]bool{}
	for _, f := range members(typ) {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		in[name] = true
		ref, ok := properties[name]
		if !ok {
			h.t.Errorf("%s: %s.%s is answered as %s, which is not described", at, typ, f.Name, name)
			continue
		}
		mayMiss := strings.Contains(option, "omit")
		if must := slices.Contains(required, name); must == mayMiss {
			h.t.Errorf("%s.%s: described as required: %v, and it may be missing: %v", at, name, must, mayMiss)
		}
		h.value(at+"."+name, ref, f.Type)
	}
	for name := range properties {
		if !in[name] {
			h.t.Errorf("%s: %s is described, and %s has no such member", at, name, typ)
		}
	}
}

// members are the fields of a struct as JSON has them, with those of what is embedded.
func members(typ reflect.Type) (all []reflect.StructField) {
	for f := range typ.Fields() {
		tag, tagged := f.Tag.Lookup("json")
		switch name, _, _ := strings.Cut(tag, ","); {
		case f.Anonymous && name == "":
			e := f.Type
			if e.Kind() == reflect.Pointer {
				e = e.Elem()
			}
			all = append(all, members(e)...)
		case !f.IsExported(), tagged && name == "-", slices.Contains(withheld, typ.String()+"."+f.Name):
		default:
			all = append(all, f)
		}
	}
	return all
}
