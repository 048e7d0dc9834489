package headway_test

import (
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Who governs something needs one package of ours, with what an attempt is settled
// with, with refusals and with a warm start.
func TestOnePackageIsEnough(t *testing.T) {
	for only, code := range map[string]string{
		"github.com/headway-go/headway": `package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway"
)

// main governs a queue consumer, which starts from what was learned before.
func main() {
	g, err := headway.New(headway.Config{
		Name:    "queue",
		Breaker: headway.Breaker{Window: 20},
		OnEvent: func(e headway.Event) { fmt.Println(e.Type) },
	})
	if err != nil {
		panic(err)
	}
	var stored headway.State
	var at time.Time
	if headway.Fresh(at, time.Now()) == nil {
		_ = g.Restore(stored)
	}
	for {
		permit, err := g.Acquire(context.Background())
		var refusal *headway.Refusal
		if errors.As(err, &refusal) {
			var why headway.Reason = refusal.Reason
			fmt.Println(why, refusal.RetryAt)
			break
		}
		permit.Settle(headway.Outcome{Class: class(work())})
	}
	stored = g.Learned()
}

func work() error { return nil }

func class(err error) headway.Class {
	if err != nil {
		return headway.Lost
	}
	return headway.OK
}
`,
		"github.com/headway-go/headway/transport": `package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headway-go/headway/transport"
)

// main wraps a client, with retries of its own.
func main() {
	var g *transport.Governor
	g, err := transport.NewGovernor(transport.Config{Name: "acme"})
	if err != nil {
		panic(err)
	}
	t, err := transport.New(g, transport.Options{
		Backoff: transport.Backoff{Attempts: 3},
		Budget:  transport.Budget{Capacity: 10},
		Classify: func(status int, _ http.Header, _ []byte) (c transport.Class, ok bool) {
			return c, false
		},
	})
	if err != nil {
		panic(err)
	}
	client := http.Client{Transport: t}
	res, err := client.Get("https://api.example.com/things")
	var refusal *transport.Refusal
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Reason, refusal.RetryAt)
		return
	}
	_ = res.Body.Close()
}
`,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), only, code, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		var ours []string
		for _, spec := range f.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && strings.Contains(path, ".") {
				ours = append(ours, path)
			}
		}
		if !slices.Equal(ours, []string{only}) {
			t.Errorf("the program imports %v, want %s alone", ours, only)
		}
		vet(t, only, code)
	}
}
