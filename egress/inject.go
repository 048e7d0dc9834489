package egress

import (
	"net/http"
	"sync"

	"github.com/headway-go/headway/egress/usage"
)

// InjectUsage says whether streams of chat completions are asked to tell their
// usage (stream_options.include_usage) when the client does not ask for it.
type InjectUsage string

// The ways.
const (
	// InjectAuto asks, and asks a model no more that refuses to be asked, with 400
	// or 422: that call is sent again at once as the client made it.
	InjectAuto   InjectUsage = "auto"
	InjectAlways InjectUsage = "always"
	// InjectNever does not ask: streams that do not tell their usage are charged
	// what was seen of them.
	InjectNever InjectUsage = "never"
)

// maxInjected bounds the models that are remembered.
const maxInjected = 1024

// injection remembers which models can be asked for usage.
type injection struct {
	mu     sync.Mutex
	models map[string]bool
}

// of is what is known of a model.
func (j *injection) of(model string) (takes, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	takes, known = j.models[model]
	return takes, known
}

func (j *injection) note(model string, takes bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if was, known := j.models[model]; known && was == takes {
		return
	}
	if j.models == nil || len(j.models) >= maxInjected {
		j.models = map[string]bool{} // a model costs one refused call to be learned anew
	}
	j.models[model] = takes
}

// inject asks for usage where that is allowed.
func (x *exchange) inject() {
	if !x.asked.Stream || x.asked.Shape != usage.OpenAIChat || x.up.InjectUsage == InjectNever {
		return
	}
	takes, known := x.up.injection.of(x.asked.Model)
	auto := x.up.InjectUsage == InjectAuto
	if auto && known && !takes {
		return
	}
	body, changed := usage.Inject(x.plain)
	if !changed {
		return
	}
	x.original, x.body, x.injected = x.body, body, true
	x.doubted = auto && !known
}

// disputed reports whether an answer may be a refusal to be asked for usage.
func (x *exchange) disputed(status int) bool {
	return x.doubted && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity)
}

// restore makes the call what the client made it.
func (x *exchange) restore() {
	x.body, x.original, x.injected, x.doubted, x.restored = x.original, nil, false, false, true
}

// judge remembers what an answer that was passed on says of the model.
func (x *exchange) judge(status int) {
	if status >= http.StatusMultipleChoices {
		return
	}
	switch {
	case x.restored:
		x.up.injection.note(x.asked.Model, false)
	case x.doubted:
		x.up.injection.note(x.asked.Model, true)
	}
}
