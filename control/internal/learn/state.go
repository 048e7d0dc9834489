package learn

import "fmt"

// state is the state of the law.
type state uint8

const (
	starting state = iota // no response yet: the caller keeps attempts the initial interval apart
	ramping               // no refusal since the first attempt that was admitted
	holding               // after the first block: the limits that are held, if any, decide
	waiting               // blocked: nothing is sent until the canary is due
	trying                // blocked, and the canary is in flight
)

var stateNames = [...]string{"starting", "ramping", "holding", "waiting", "trying"}

func (s state) String() string { return stateNames[s] }

// event is an event that may change the state.
type event uint8

const (
	answered event = iota // a response other than a refusal
	refused               // a refusal of an attempt that was sent after the last refusal was settled
	canary                // the canary is sent
	admitted              // the canary was admitted
	fresh                 // the same, and none that was sent before the refused attempt was admitted
	nothing               // the canary's outcome is no evidence
)

var eventNames = [...]string{"answered", "refused", "canary", "admitted", "fresh", "nothing"}

func (e event) String() string { return eventNames[e] }

// moves are the legal transitions, drawn in docs/law.md. transition panics at others.
var moves = map[state]map[event]state{
	starting: {answered: ramping, refused: waiting},
	ramping:  {refused: waiting},
	holding:  {refused: waiting},
	waiting:  {refused: waiting, canary: trying},
	trying:   {refused: waiting, nothing: waiting, admitted: holding, fresh: ramping},
}

// transition changes the state, and panics if the event is illegal in it.
func (l *Law) transition(e event) {
	to, ok := moves[l.state][e]
	if !ok {
		panic(fmt.Sprintf("learn: event %v in state %v", e, l.state))
	}
	l.state = to
}
