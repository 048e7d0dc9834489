package quota

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// State is the state of a scope.
type State uint8

// The states.
const (
	Normal State = iota
	Soft
	Throttle
	Exhausted
	states
)

var stateNames = [states]string{"normal", "soft", "throttle", "exhausted"}

// String returns the state's stable name.
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText returns the stable name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a stable name.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if name == string(b) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("quota: unknown state %q", b)
}

// Trigger is the cause of a state change.
type Trigger uint8

// The triggers.
const (
	// SoftReached: above 0.8 of the soft budget, or a budget is forecast to run out.
	SoftReached Trigger = iota
	// SoftRelieved: at or below 0.7 again, with capacity for what was refused.
	SoftRelieved
	// BucketEmpty: a bucket was too low for a request.
	BucketEmpty
	// Resume: the bucket holds what was refused and a margin, and nothing holds requests
	// back any more.
	Resume
	// CapReached: a daily cap is used up, or at most a hundredth is left and a request
	// did not fit into it. Tokens that are only held do not count.
	CapReached
	// DayTurned: the next day began.
	DayTurned
	// CapRaised: the owner raised the cap.
	CapRaised
	// RoomMade: tokens or calls were given back.
	RoomMade
	// HeldBack: something besides the budgets refused a request; see [Governor.HoldBack].
	HeldBack
	triggers
)

var triggerNames = [triggers]string{
	"soft_reached", "soft_relieved", "bucket_empty", "resume", "cap_reached", "day_turned", "cap_raised", "room_made", "held_back",
}

// String returns the trigger's stable name.
func (t Trigger) String() string {
	if t < triggers {
		return triggerNames[t]
	}
	return fmt.Sprintf("trigger(%d)", uint8(t))
}

// legal is the transition table: the states in which each trigger is allowed, and the
// state it leads to. The diagram in the package documentation shows it.
var legal = [triggers]struct {
	from []State
	to   State
}{
	SoftReached:  {[]State{Normal}, Soft},
	SoftRelieved: {[]State{Soft}, Normal},
	BucketEmpty:  {[]State{Normal, Soft}, Throttle},
	Resume:       {[]State{Throttle}, Normal},
	CapReached:   {[]State{Normal, Soft, Throttle}, Exhausted},
	DayTurned:    {[]State{Exhausted}, Normal},
	CapRaised:    {[]State{Exhausted}, Normal},
	RoomMade:     {[]State{Exhausted}, Normal},
	HeldBack:     {[]State{Normal, Soft}, Throttle},
}

// next returns the state that a trigger leads to; ok is false if the trigger is not
// allowed.
func next(from State, t Trigger) (to State, ok bool) {
	if slices.Contains(legal[t].from, from) {
		return legal[t].to, true
	}
	return from, false
}

// Move is one entry of the transition log.
type Move struct {
	Seq      uint64
	Instant  time.Duration
	Scope    Scope
	From, To State
	Trigger  Trigger
}

// transition is the only place where a state changes.
func (g *Governor) transition(n *node, t Trigger, at time.Duration) {
	to, ok := next(n.state, t)
	if !ok {
		panic(fmt.Sprintf("quota: %v in state %v", t, n.state))
	}
	m := Move{Seq: g.moves.total + 1, Instant: at, Scope: n.scope, From: n.state, To: to, Trigger: t}
	n.state = to
	g.moves.add(m)
	g.log.add(m)
	switch to {
	case Normal:
		n.lacking, n.wanted, n.softWanted, n.foreseen, n.heldBack = 0, [kinds]int64{}, 0, 0, 0
		g.restore(n, at)
	case Exhausted:
		n.spentOn = n.day
		n.stepAt = 0
	case Soft, Throttle, states:
		n.stepAt = 0
	}
	g.tell(n, t, at)
	g.rescale(n, at, 1)
}

// tell emits the event of a move.
func (g *Governor) tell(n *node, t Trigger, at time.Duration) {
	e := Event{Scope: n.scope}
	switch t {
	case SoftReached:
		e.Type = EventSoftPressure
		e.Forecast = n.foreseen > 0
		used, budget, span := n.pressure()
		e.Utilization, e.WindowMS = float64(share(used, 1000, budget))/1000, int64(span/time.Millisecond)
	case BucketEmpty, HeldBack:
		g.counts.throttles++
		e.Type, e.Reason = EventThrottle, Throttled
		e.RetryInMS = milliseconds(n.ready(false) - at)
	case Resume, DayTurned, CapRaised, RoomMade:
		g.counts.resumes++
		e.Type = EventResume
	case CapReached:
		e.Type, e.ScopeName, e.CapType = EventExhausted, n.scope.String(), DailyTokens
		if n.dayCalls >= n.limits.dailyCalls {
			e.CapType = DailyCalls
		}
	default:
		return
	}
	g.emit(at, e)
}

// logHash is the hash of the transition log: each entry is hashed with the previous hash.
// Only integers and names are hashed.
type logHash struct {
	sum  [sha256.Size]byte
	text []byte
}

func (l *logHash) add(m Move) {
	l.text = append(l.text[:0], l.sum[:]...)
	l.text = binary.BigEndian.AppendUint64(l.text, uint64(m.Instant))
	l.text = append(l.text, byte(m.From), byte(m.To), byte(m.Trigger))
	for _, s := range [...]string{m.Scope.Tenant, m.Scope.Agent, m.Scope.Model} {
		l.text = binary.BigEndian.AppendUint32(l.text, uint32(len(s)))
		l.text = append(l.text, s...)
	}
	l.sum = sha256.Sum256(l.text)
}

// LogHash returns the SHA-256 chain over the transition log: instant, scope and move of
// each entry. The same calls at the same instants give the same hash; calls of
// [Governor.Advance] in between do not change it.
func (g *Governor) LogHash() [sha256.Size]byte { return g.log.sum }
