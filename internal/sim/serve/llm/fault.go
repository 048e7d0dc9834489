package llm

import (
	"strconv"
	"strings"
)

// ailment is what a model's name asks to go wrong.
type ailment int

const (
	healthy ailment = iota
	cutting
	erring
	ailing // overloaded
	spent
	throttling
)

// fault is an ailment, and after how many chunks of text it shows.
type fault struct {
	ailment
	after int
}

// faultOf reads the end of a model's name: the whole of it, or what follows a
// hyphen.
func faultOf(model string) fault {
	for name, a := range map[string]ailment{"overloaded": ailing, "quota-exhausted": spent, "throttled": throttling} {
		if ends(model, name) {
			return fault{ailment: a}
		}
	}
	if ends(model, "error-in-stream") {
		return fault{erring, 1}
	}
	i := strings.LastIndexByte(model, '-')
	if i < 0 {
		return fault{}
	}
	n, err := strconv.ParseUint(model[i+1:], 10, 16)
	switch rest := model[:i]; {
	case err != nil:
	case ends(rest, "cut-after"):
		return fault{cutting, int(n)}
	case ends(rest, "error-after"):
		return fault{erring, int(n)}
	}
	return fault{}
}

func ends(model, name string) bool {
	rest, ok := strings.CutSuffix(model, name)
	return ok && (rest == "" || strings.HasSuffix(rest, "-"))
}

// kind is why a call is not answered as it wanted.
type kind int

const (
	malformed kind = iota
	oversized
	keyless
	unknownKey
	unknownPath
	throttled
	exhausted
	overloaded
	suspended
)
