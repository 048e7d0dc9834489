package sinkstate_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headway-go/headway/sink/internal/sinkstate"
)

func TestAPosition(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		check      error
		want       int
		wrong      string
	}{
		{"nothing", ``, errors.New("not called"), 7, ""},
		{"null", `null`, errors.New("not called"), 7, ""},
		{"one", `{"n": 3}`, nil, 3, ""},
		{"another sink's", `{"m": 3}`, nil, 0, `x: the committed position cannot be read; unchanged: json: unknown field "m": is the connection's sink still the same?`},
		{"one that is refused", `{"n": -3}`, errors.New("n is -3"), 0, "; unchanged: n is -3: is the connection's sink"},
	} {
		p := struct{ N int }{7}
		err := sinkstate.Position("x", "; unchanged", json.RawMessage(tt.text), &p, func() error { return tt.check })
		switch {
		case tt.wrong == "" && (err != nil || p.N != tt.want):
			t.Errorf("%s: %d, %v", tt.name, p.N, err)
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.wrong)
		}
	}
}
