package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/samples"
)

// Samples returns what a connection did in the last hour or day, in even steps.
func (c *Client) Samples(ctx context.Context, connection string, span samples.Span) (v Series, err error) {
	return v, c.get(ctx, &v, of("connection", connection, "span", string(span)), "v1", "samples")
}

// Calls returns at most limit proxied calls that have ended, the newest first. is selects
// by provider, key, tenant, agent and model.
func (c *Client) Calls(ctx context.Context, is map[string]string, limit int) ([]Call, error) {
	return list[Call](ctx, c, limit, values(is), "v1", "calls")
}

// Usage returns what proxied calls used between two days in UTC, such as 2026-11-23 (empty
// means no bound), grouped by any of day, provider, key, tenant, agent and model. is
// selects by any of them but the day. limit is as in [Client.Runs].
func (c *Client) Usage(ctx context.Context, from, to string, by []string, is map[string]string, limit int) ([]Usage, error) {
	q := values(is)
	for name, value := range map[string]string{"from": from, "to": to, "by": strings.Join(by, ",")} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return list[Usage](ctx, c, limit, q, "v1", "usage")
}

// values returns parameters, including empty ones.
func values(is map[string]string) url.Values {
	q := url.Values{}
	for name, value := range is {
		q.Set(name, value)
	}
	return q
}

// Sparks returns the rates of all connections over the last hour, by name.
func (c *Client) Sparks(ctx context.Context) ([]Spark, error) {
	return list[Spark](ctx, c, 0, url.Values{}, "v1", "sparks")
}

// ActOnGaps changes gaps: those with ids, those that a filter selects, or all. It requires
// the role operator. The daemon records the change in its audit log.
func (c *Client) ActOnGaps(ctx context.Context, change GapChange) (v api.GapsChanged, err error) {
	body, err := json.Marshal(change)
	if err != nil {
		return v, err
	}
	_, err = c.call(ctx, &v, http.MethodPost, c.url(nil, "v1", "gaps"), body)
	return v, err
}

// Audit returns at most limit changes that people made since an instant, the newest first.
// Zero values mean no bound.
func (c *Client) Audit(ctx context.Context, since time.Time, limit int) ([]Change, error) {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339))
	}
	return list[Change](ctx, c, limit, q, "v1", "audit")
}

// Simulator returns what the daemon can simulate. If a scenario is selected by name, or a
// member of a population by a number of at least 0, Draft is its text.
func (c *Client) Simulator(ctx context.Context, p SimulatorPick) (v SimulatorMenu, err error) {
	q := url.Values{}
	switch {
	case p.Scenario != "":
		q.Set("scenario", p.Scenario)
	case p.Member >= 0:
		q.Set("member", strconv.Itoa(p.Member))
		q.Set("seed", strconv.FormatUint(p.Seed, 10))
		if p.Family != "" {
			q.Set("family", p.Family)
		}
	}
	return v, c.get(ctx, &v, q, "v1", "simulator")
}

// Simulate runs a scenario under laws. It ends when ctx does.
func (c *Client) Simulate(ctx context.Context, s Simulation) (v Simulated, err error) {
	body, err := json.Marshal(s)
	if err != nil {
		return v, err
	}
	_, err = c.call(ctx, &v, http.MethodPost, c.url(nil, "v1", "simulator"), body)
	return v, err
}
