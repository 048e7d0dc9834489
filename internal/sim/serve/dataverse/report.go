package dataverse

import (
	"fmt"
	"maps"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
)

// Report is what an environment did so far.
type Report struct {
	// Hint is the parallelism that is recommended now.
	Hint int `json:"hint"`
	// Sets is what they hold.
	Sets map[string]SetCounts `json:"sets"`
	// Users is by the user's serve.KeyID, Servers by "server-1" and so on.
	Users   map[string]Traffic `json:"users"`
	Servers map[string]Traffic `json:"servers"`
}

// Traffic is what came from a user, or to a server, and met the limits.
type Traffic struct {
	provider.Counts
	// ByCode counts throttles by Dataverse's code.
	ByCode map[string]int64 `json:"by_code,omitempty"`
	// Batches and Rows count what was written.
	Batches int64 `json:"batches"`
	Rows    int64 `json:"rows"`
	// Execution is the time that was charged, in seconds, unscaled.
	Execution float64 `json:"execution_seconds"`
	// Executing is how many requests execute, Peak the most so far.
	Executing int `json:"executing"`
	Peak      int `json:"peak"`
}

// user is what is known of one.
type user struct {
	name  string
	next  int             // the server of the next request
	last  map[int]problem // why each server refused last
	crowd int             // requests that are under way
	count Traffic
}

// Report tells of the environment.
func (a *API) Report() (name string, did any) { return "dataverse", a.Standing() }

// Standing is the [Report] of now.
func (a *API) Standing() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := Report{
		Hint: a.hint(), Sets: make(map[string]SetCounts, len(a.tables)),
		Users: make(map[string]Traffic, len(a.users)), Servers: make(map[string]Traffic, len(a.servers)),
	}
	for name, t := range a.tables {
		r.Sets[name] = t.report()
	}
	for name, u := range a.users {
		r.Users[name] = u.count.clone()
	}
	for i := range a.servers {
		r.Servers[server(i)] = a.servers[i].clone()
	}
	return r
}

func server(i int) string { return fmt.Sprintf("server-%d", i+1) }

func (t *Traffic) clone() Traffic {
	c := *t
	c.ByCode = maps.Clone(t.ByCode)
	return c
}

// met counts a request's verdict; code is that of a throttle.
func (t *Traffic) met(v provider.Verdict, code string, execution time.Duration) {
	switch {
	case v.Admitted:
		t.Admitted++
		t.Execution += execution.Seconds()
		t.Executing++
		t.Peak = max(t.Peak, t.Executing)
	case v.Throttled:
		t.Throttled++
		if t.ByCode == nil {
			t.ByCode = make(map[string]int64)
		}
		t.ByCode[code]++
	default:
		t.Failed++
	}
}

// wrote counts a batch.
func (t *Traffic) wrote(rows int) {
	if rows > 0 {
		t.Batches++
		t.Rows += int64(rows)
	}
}
