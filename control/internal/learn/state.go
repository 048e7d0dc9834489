package learn

import "fmt"

// state is where the law is between two refusals.
type state uint8

const (
	starting state = iota // nothing was answered yet: attempts are the initial interval apart
	ramping               // nothing was refused yet
	holding               // what was found is held
	waiting               // blocked: nothing goes until the canary is due
	trying                // blocked, and the canary is under way
)

var stateNames = [...]string{"starting", "ramping", "holding", "waiting", "trying"}

func (s state) String() string { return stateNames[s] }

// event is what moves the law from one state to the next.
type event uint8

const (
	answered event = iota // a response, of whatever kind but a refusal
	refused               // a refusal of an attempt that was sent after the last one was settled
	canary                // the canary goes
	admitted              // the canary came through
	nothing               // the canary ended in a way that says nothing
)

// moves are the legal ones. What is not in the table does not move the law.
//
//	stateDiagram-v2
//	  starting --> ramping: answered
//	  starting --> waiting: refused
//	  ramping --> waiting: refused
//	  holding --> waiting: refused
//	  waiting --> trying: canary
//	  waiting --> waiting: refused
//	  trying --> holding: admitted
//	  trying --> waiting: refused, nothing
var moves = map[state]map[event]state{
	starting: {answered: ramping, refused: waiting},
	ramping:  {refused: waiting},
	holding:  {refused: waiting},
	waiting:  {refused: waiting, canary: trying},
	trying:   {refused: waiting, nothing: waiting, admitted: holding},
}

// transition moves the law, and panics where it may not.
func (l *Law) transition(e event) {
	to, ok := moves[l.state][e]
	if !ok {
		panic(fmt.Sprintf("learn: event %d in state %v", e, l.state))
	}
	l.state = to
}
