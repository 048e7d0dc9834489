package arena

import (
	"net/http"
	"time"
)

// turns lets requests start one after another, a gap apart. The gap is asked
// when a request's turn has come, so that one that has changed counts at once.
type turns struct {
	turn chan struct{}
	last time.Time
}

func newTurns() *turns { return &turns{turn: make(chan struct{}, 1)} }

// await waits for the request's turn.
func (p *turns) await(req *http.Request, gap func() time.Duration) error {
	select {
	case p.turn <- struct{}{}:
	case <-req.Context().Done():
		return req.Context().Err()
	}
	defer func() { <-p.turn }()
	if !p.last.IsZero() {
		if err := wait(req, time.Until(p.last.Add(gap()))); err != nil {
			return err
		}
	}
	p.last = time.Now()
	return nil
}

// wait sleeps, unless the request is cancelled.
func wait(req *http.Request, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-req.Context().Done():
		return req.Context().Err()
	}
}
