package fit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
)

// Bounds of a trace.
const (
	// MaxSize is the maximum size of a trace, in bytes.
	MaxSize = 256 << 20
	// MaxAttempts is the maximum number of attempts in a trace.
	MaxAttempts = 1_000_000
	// maxProblems is the maximum number of bad lines that are reported.
	maxProblems = 10
)

// Attempt is one attempt of a trace. Its instants are durations since an origin that all
// attempts share: the Unix epoch if the trace has wall times.
type Attempt struct {
	// Sent is when it left, and Answered when its response arrived.
	Sent, Answered time.Duration
	// Arrived is when it reached the limiter; 0 if unknown.
	Arrived time.Duration
	// Status is the HTTP status of the response; 0 without one.
	Status int
	// Fate is what the limiter did.
	Fate Fate
	// RetryAfter is the wait that a refusal advertised; 0 if none.
	RetryAfter time.Duration
	// Pool is the pool in which it was sent; empty for the account alone.
	Pool string
	// Client is the number of the client that sent it, from 1; 0 if there is only one.
	// [Parse] does not read it.
	Client int
}

// Fate is what a limiter did with an attempt.
type Fate uint8

// The fates. An attempt that met an outage or had no response is Unclear: it may have
// counted against a limit.
const (
	Unclear Fate = iota
	Admitted
	Refused
)

// line is a line of a trace. Other fields are ignored.
type line struct {
	Sent     json.RawMessage `json:"sent"`
	Answered json.RawMessage `json:"answered"`
	Took     *json.Number    `json:"took"`
	At       json.RawMessage `json:"at"`

	Status       *int         `json:"status"`
	Refused      *bool        `json:"refused"`
	Admitted     *bool        `json:"admitted"`
	RetryAfter   *json.Number `json:"retry_after"`
	RetryAfterMS *float64     `json:"retry_after_ms"`
	Pool         string       `json:"pool"`
	Model        string       `json:"model"`
}

// Line returns the attempt as a line of a trace, with a newline.
func (a *Attempt) Line() []byte {
	b := fmt.Appendf(nil, `{"sent":%s,"answered":%s`, decimal(a.Sent), decimal(a.Answered))
	if a.Arrived > 0 {
		b = fmt.Appendf(b, `,"at":%s`, decimal(a.Arrived))
	}
	b = fmt.Appendf(b, `,"status":%d`, a.Status)
	if a.Client > 0 {
		b = fmt.Appendf(b, `,"client":%d`, a.Client)
	}
	if a.Fate != Unclear {
		b = fmt.Appendf(b, `,"refused":%t`, a.Fate == Refused)
	}
	if a.RetryAfter > 0 {
		b = fmt.Appendf(b, `,"retry_after":%s`, decimal(a.RetryAfter))
	}
	if a.Pool != "" {
		b = fmt.Appendf(b, `,"pool":%s`, strconv.Quote(a.Pool))
	}
	return append(b, "}\n"...)
}

// decimal formats seconds, to the nanosecond.
func decimal(d time.Duration) string {
	s := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// Parse reads a trace: JSON lines, one attempt each. name stands for the file in errors,
// which are all of type [*configfile.Error]. The statuses in refusals count as refusals; by
// default 429 and 503 do. The attempts are returned in the order in which they reached the
// limiter, as far as known.
func Parse(name string, src []byte, refusals ...int) ([]Attempt, error) {
	if len(refusals) == 0 {
		refusals = []int{429, 503}
	}
	var all []Attempt
	var bad []configfile.Problem
	number := 0
	for text := range bytes.Lines(src) {
		number++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		a, err := parse(text, refusals)
		if err != nil {
			bad = append(bad, configfile.Problem{File: name, Line: number, Column: 1, Message: err.Error()})
			if len(bad) == maxProblems {
				break
			}
			continue
		}
		if all = append(all, a); len(all) > MaxAttempts {
			bad = append(bad, configfile.Problem{File: name, Line: number, Column: 1, Message: fmt.Sprintf("is one of more than %d attempts: cut the trace", MaxAttempts)})
			break
		}
	}
	if len(bad) == 0 && len(all) == 0 {
		bad = append(bad, configfile.Problem{File: name, Message: `is empty: it needs an attempt a line, such as {"sent":0.25,"answered":0.31,"status":200}`})
	}
	if len(bad) > 0 {
		return nil, &configfile.Error{Problems: bad}
	}
	slices.SortStableFunc(all, func(a, b Attempt) int { return cmp.Compare(a.Sent, b.Sent) })
	return all, nil
}

// parse reads one line.
func parse(text []byte, refusals []int) (a Attempt, err error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return a, fmt.Errorf("is not an attempt as a JSON object: %w", err)
	}
	sent, hasSent, err := instant("sent", l.Sent)
	if err != nil {
		return a, err
	}
	answered, hasAnswered, err := instant("answered", l.Answered)
	if err != nil {
		return a, err
	}
	at, hasAt, err := instant("at", l.At)
	if err != nil {
		return a, err
	}
	if l.Took != nil {
		took, err := seconds(l.Took.String())
		switch {
		case err != nil || took < 0:
			return a, fmt.Errorf("took is %s; want seconds, such as 0.25", l.Took)
		case hasSent && !hasAnswered:
			answered, hasAnswered = sent+took, true
		case hasAnswered && !hasSent:
			sent, hasSent = answered-took, true
		}
	}
	switch {
	case !hasSent && !hasAnswered && !hasAt:
		return a, fmt.Errorf("says no instant; want sent and answered, or one of them and took")
	case !hasSent && hasAt:
		sent = at
	case !hasSent:
		sent = answered
	}
	if !hasAnswered {
		answered = max(sent, at)
	}
	if answered < sent {
		return a, fmt.Errorf("answered is before sent")
	}
	a = Attempt{Sent: sent, Answered: answered, Arrived: at, Pool: cmp.Or(l.Pool, l.Model)}
	if l.Status == nil && l.Refused == nil && l.Admitted == nil {
		return a, fmt.Errorf("says neither status nor refused")
	}
	if l.Status != nil {
		a.Status = *l.Status
	}
	if a.Status < 0 || a.Status > 999 {
		return a, fmt.Errorf("status is %d; want an HTTP status, or 0 without an answer", a.Status)
	}
	a.Fate = fate(&l, a.Status, refusals)
	if a.Fate != Refused {
		return a, nil
	}
	switch {
	case l.RetryAfterMS != nil && *l.RetryAfterMS >= 0 && *l.RetryAfterMS < 1e12:
		a.RetryAfter = time.Duration(*l.RetryAfterMS * float64(time.Millisecond))
	case l.RetryAfter != nil:
		if a.RetryAfter, err = seconds(l.RetryAfter.String()); err != nil || a.RetryAfter < 0 {
			return a, fmt.Errorf("retry_after is %s; want seconds, such as 2 or 0.5", l.RetryAfter)
		}
	}
	return a, nil
}

// fate returns the stated fate, or else that of the status.
func fate(l *line, status int, refusals []int) Fate {
	switch {
	case l.Refused != nil && *l.Refused:
		return Refused
	case l.Refused != nil, l.Admitted != nil && *l.Admitted:
		return Admitted
	case slices.Contains(refusals, status):
		return Refused
	case l.Admitted != nil, status == 0, status >= 500:
		return Unclear
	}
	return Admitted
}

// instant parses a number of seconds, or an RFC 3339 time.
func instant(field string, raw json.RawMessage) (at time.Duration, ok bool, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, false, nil
	}
	if raw[0] == '"' {
		var t time.Time
		if json.Unmarshal(raw, &t) == nil && t.Year() >= 1970 && t.Year() < 2250 {
			return time.Duration(t.UnixNano()), true, nil
		}
	} else if at, err := seconds(string(raw)); err == nil && at >= 0 {
		return at, true, nil
	}
	return 0, false, fmt.Errorf("%s is %s; want seconds, such as 12.5, or a time such as \"2026-11-22T10:00:00.25Z\"", field, configfile.Quote(string(raw)))
}

// seconds parses a decimal number exactly, to the nanosecond.
func seconds(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text + "s"); err == nil && !strings.ContainsAny(text, "hmuµn") {
		return d, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(x) > 9e9 {
		return 0, fmt.Errorf("%s is not a number of seconds", configfile.Quote(text))
	}
	return time.Duration(math.Round(x * 1e9)), nil
}
