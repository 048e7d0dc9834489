package provider

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/headway-go/headway/quota"
)

// Call is what a request asks for.
type Call struct {
	// Model is what the path or the body names; empty when neither does.
	Model string
	// Stream says that the answer is to come in pieces.
	Stream bool
	// MaxTokens is the request's own bound on its output, for all its answers
	// together, from 0 (none is told) to [quota.MaxTokens].
	MaxTokens int64
	// Choices is how many answers are asked for, at least 1.
	Choices int64
	// Metered: the call costs quota. The others are attempts and nothing more.
	Metered bool
	// Files: the call only keeps files, and names no model because it runs none.
	Files bool
	// Shape is how the response tells its use.
	Shape Shape
	// Texts are what the model of a metered call will read: messages, system, tools
	// as JSON. It may be ranged over again, never is nil, and reads the body that
	// was given to [Description.Call], which must not change meanwhile.
	Texts iter.Seq[string]
	// Extra is flat tokens for what is not text: images, sound, files, input that
	// is tokens already. What frames messages is not among them; the estimate
	// adds it.
	Extra int64
}

// Call reads what a request asks for. The path is decoded and begins after the
// name of the provider in Headway's own paths; the body is the whole.
//
// An error is for what no upstream would take, or what two readers could take in
// two ways: a metered call whose body is not a JSON object, or which names two
// models. It says so without repeating any of the body. Everything else that
// cannot be read is left out.
func (d *Description) Call(method, path string, body []byte) (Call, error) {
	r, model := d.route(method, path)
	c := Call{Model: model, Stream: r.Stream, Choices: 1, Metered: r.Metered, Files: r.Files, Shape: r.Shape, Texts: silence}
	if d.API == HTTP {
		return c, nil
	}
	read := &reading{body: body, call: Call{Choices: 1}}
	err := read.request()
	if err != nil && r.Media && !errors.Is(err, errTwoModels) {
		read = &reading{call: Call{Choices: 1}}
		err = read.form(body, r.File)
	}
	if err != nil && (r.Metered || errors.Is(err, errTwoModels)) {
		return c, fmt.Errorf("provider: %s %s: %w", method, strings.TrimPrefix(r.Path, "**"), err)
	}
	// A call that is not known here still says which model it is for, so that who
	// is bound to models reaches no other by it.
	if c.Model == "" {
		c.Model = read.call.Model
	}
	if d.API == Gemini {
		c.Model = strings.TrimPrefix(c.Model, "models/")
	}
	if err != nil || !r.Metered {
		return c, nil
	}
	c.Stream = c.Stream || read.call.Stream && !r.verb()
	c.Choices, c.Extra = read.call.Choices, read.call.Extra
	c.MaxTokens = min(read.call.MaxTokens*c.Choices, quota.MaxTokens)
	if read.n > 0 {
		c.Texts = read.texts
	}
	return c, nil
}

// silence is not text.
func silence(func(string) bool) {}
