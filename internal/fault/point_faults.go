//go:build faults

package fault

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Point marks a step: the process dies here when the environment says so. A
// value of [Env] that names no step or no pass ends the process with a panic,
// since a test that dies nowhere would prove nothing.
func Point(name Name) {
	p := plan()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trace != nil {
		if _, err := fmt.Fprintln(p.trace, name); err != nil {
			panic(fmt.Sprintf("fault: %s: %v", TraceEnv, err))
		}
	}
	if name != p.step {
		return
	}
	if p.left--; p.left == 0 {
		die()
	}
}

// die does not return. Nothing is flushed, closed or given back.
func die() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("fault: process %d cannot kill itself: %v", os.Getpid(), err))
	}
	select {} // the kill is on its way; this goroutine does not go on meanwhile
}

// death is what the environment asks for.
type death struct {
	mu    sync.Mutex
	step  Name // "" means none
	left  int  // passes until then
	trace *os.File
}

var plan = sync.OnceValue(func() *death {
	d := &death{}
	if path := os.Getenv(TraceEnv); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			panic(fmt.Sprintf("fault: %s: %v", TraceEnv, err))
		}
		d.trace = f
	}
	text := os.Getenv(Env)
	if text == "" {
		return d
	}
	step, pass, counted := strings.Cut(text, ":")
	d.step, d.left = Name(step), 1
	if counted {
		n, err := strconv.Atoi(pass)
		if err != nil || n < 1 {
			panic(fmt.Sprintf("fault: %s is %q: the pass must be a number from 1", Env, text))
		}
		d.left = n
	}
	if !slices.Contains(names, d.step) {
		panic(fmt.Sprintf("fault: %s is %q: there is no such step; there are %v", Env, text, names))
	}
	return d
})
