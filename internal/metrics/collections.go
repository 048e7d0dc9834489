package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// collections reads the stored state of collections when Prometheus asks.
type collections struct {
	all  func() ([]collect.ConnectionStatus, error)
	fail prometheus.Counter
}

var (
	owed        = describe("headway_collection_owed", "Work that is owed, as gaps.", "connection", "reason")
	quarantined = describe("headway_collection_quarantined", "Gaps that nobody works off until somebody releases them.", "connection")
	items       = describe("headway_collection_items", "Items that are known.", "connection", "stream")
	running     = describe("headway_collection_running", "1 while somebody collects.", "connection")
	lastState   = describe("headway_collection_last_run_state", "1 for how the newest run ended, or stands.", "connection", "state", "reason")
	lastStart   = describe("headway_collection_last_run_start_timestamp_seconds", "When the newest run began.", "connection")
	lastEnd     = describe("headway_collection_last_run_end_timestamp_seconds", "When the newest run ended; no sample while it goes on.", "connection")
	attempts    = describe("headway_collection_last_run_attempts", "Requests that the newest run sent.", "connection")
	throttled   = describe("headway_collection_last_run_throttled", "Those that the provider refused for rate or load.", "connection")
	boundBy     = describe("headway_collection_last_run_bound_seconds", "The newest run's time, by what kept it from being faster.", "connection", "bound")
	attention   = describe("headway_collection_attention", "1 when somebody should look: the source stays under pressure.", "connection")
)

func (c collections) Describe(chan<- *prometheus.Desc) {}

func (c collections) Collect(ch chan<- prometheus.Metric) {
	all, err := c.all()
	if err != nil {
		c.fail.Inc() // what is not known has no samples
		return
	}
	for _, s := range all {
		for why, n := range s.Owed {
			ch <- gauge(owed, float64(n), s.Name, why)
		}
		for stream, n := range s.Items {
			ch <- gauge(items, float64(n), s.Name, stream)
		}
		ch <- gauge(quarantined, float64(s.Quarantined), s.Name)
		ch <- gauge(running, truth(s.Holder != ""), s.Name)
		ch <- gauge(attention, truth(s.Cooldown.NeedsAttention), s.Name)
		if r := s.LastRun; r != nil {
			ch <- gauge(lastState, 1, s.Name, string(r.State), r.Reason.String())
			ch <- gauge(lastStart, float64(r.Started.UnixMilli())/1000, s.Name)
			if !r.Ended.IsZero() {
				ch <- gauge(lastEnd, float64(r.Ended.UnixMilli())/1000, s.Name)
			}
			ch <- gauge(attempts, float64(r.Attempts), s.Name)
			ch <- gauge(throttled, float64(r.Throttled), s.Name)
			for _, share := range r.BoundBy.Shares() {
				ch <- gauge(boundBy, r.BoundBy[share.Bound].Seconds(), s.Name, share.Bound.String())
			}
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// connections reads the pacing of connections when Prometheus asks. Pools have names from
// outside: the first [MaxModels] of a connection of which anything is known get series of
// their own, and the worst of the rest stands under [Others].
type connections struct {
	all   func() []headway.Snapshot
	pools *perProvider
}

var (
	interval  = describe("headway_connection_interval_seconds", "The time between two attempts, of the account (no pool) or of a pool; no sample until it is known.", "connection", "pool", "law")
	ceiling   = describe("headway_connection_ceiling_seconds", "The shortest interval that the owner allows.", "connection", "law")
	backoffAt = describe("headway_connection_last_backoff_timestamp_seconds", "When the rate was last cut, and why.", "connection", "pool", "reason")
	circuit   = describe("headway_connection_circuit", "1 for the state that the circuit breaker is in.", "connection", "pool", "state")
	retryAt   = describe("headway_connection_retry_timestamp_seconds", "When a cooldown or an open circuit ends; no sample when there is none.", "connection", "pool")
	inFlight  = describe("headway_connection_in_flight", "Attempts that are under way.", "connection")
	queued    = describe("headway_connection_waiting", "Attempts that wait for their turn.", "connection")
	fleetSize = describe("headway_connection_fleet_members", "Members that share the connection's credential, as last heard; no sample where it is in no fleet, or paces alone.", "connection")
	fleetAway = describe("headway_connection_fleet_away", "1 while the fleet's server is away, so that the pace is a share of the last one known, or nothing is sent.", "connection")
	expired   = describe("headway_connection_permits_expired_total", "Permits that nobody settled in time.", "connection")
)

func (c connections) Describe(chan<- *prometheus.Desc) {}

func (c connections) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.all() {
		if s.Rate != nil {
			ch <- gauge(ceiling, s.Rate.CeilingIntervalMS/1000, s.Connection, s.Law)
		}
		account := headway.PoolSnapshot{Rate: s.Rate, Circuit: s.Circuit, RetryAt: s.RetryAt}
		all := s.Limits
		for _, p := range append(c.shown(&s), account) {
			p.Limits, all = nil, append(slices.Clip(all), p.Limits...)
			paced(ch, &s, &p)
		}
		limits(ch, s.Connection, all)
		ch <- gauge(inFlight, float64(s.InFlight), s.Connection)
		ch <- gauge(queued, float64(s.Waiting), s.Connection)
		if f := s.Fleet; f != nil && f.Members > 0 {
			ch <- gauge(fleetSize, float64(f.Members), s.Connection)
			ch <- gauge(fleetAway, truth(f.Away), s.Connection)
		}
		ch <- counter(expired, float64(s.Expired), s.Connection)
	}
}

// paced shows the pacing of an account or of a pool.
func paced(ch chan<- prometheus.Metric, s *headway.Snapshot, p *headway.PoolSnapshot) {
	if p.Rate != nil {
		ch <- gauge(interval, p.Rate.CurrentIntervalMS/1000, s.Connection, p.Name, s.Law)
		if b := p.Rate.LastBackoff; b != nil {
			ch <- gauge(backoffAt, float64(b.At.UnixMilli())/1000, s.Connection, p.Name, b.Reason.String())
		}
	}
	ch <- gauge(circuit, 1, s.Connection, p.Name, p.Circuit)
	if !p.RetryAt.IsZero() {
		ch <- gauge(retryAt, float64(p.RetryAt.UnixMilli())/1000, s.Connection, p.Name)
	}
}

// shown are the pools of which anything is known, by their labels. Those without a label
// of their own are one: the longest interval, the latest instant, the open circuit.
func (c connections) shown(s *headway.Snapshot) (all []headway.PoolSnapshot) {
	rest := -1
	for _, p := range s.Pools {
		if p.Rate == nil && len(p.Limits) == 0 && p.RetryAt.IsZero() && (p.Circuit == "closed" || p.Circuit == "off") {
			continue
		}
		name := c.pools.label(s.Connection, p.Name)
		p.Limits = slices.Clone(p.Limits)
		for i := range p.Limits {
			p.Limits[i].Pool = name
		}
		p.Name = name
		switch {
		case name != Others:
			all = append(all, p)
		case rest < 0:
			rest, all = len(all), append(all, p)
		default:
			all[rest] = worse(all[rest], p)
		}
	}
	return all
}

// worse is what stands for two pools under one label.
func worse(a, b headway.PoolSnapshot) headway.PoolSnapshot {
	if a.Rate == nil || b.Rate != nil && b.Rate.CurrentIntervalMS > a.Rate.CurrentIntervalMS {
		a.Rate = b.Rate
	}
	if b.RetryAt.After(a.RetryAt) {
		a.RetryAt = b.RetryAt
	}
	if b.Circuit == "open" || a.Circuit == "closed" {
		a.Circuit = b.Circuit
	}
	a.Limits = append(a.Limits, b.Limits...)
	return a
}

// shared reads who shares a credential through this process.
type shared struct{ all func() []fleet.Credential }

var members = describe("headway_fleet_members", "Processes that share a credential through this one; away is true of those that say nothing and may go on by themselves.", "away")

func (shared) Describe(chan<- *prometheus.Desc) {}

func (s shared) Collect(ch chan<- prometheus.Metric) {
	there, away := 0, 0
	for _, c := range s.all() {
		for _, m := range c.Members {
			if m.Away {
				away++
			} else {
				there++
			}
		}
	}
	ch <- gauge(members, float64(there), "false")
	ch <- gauge(members, float64(away), "true")
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// Quota is what is read of a quota; a *governor.Governor is one.
type Quota interface {
	Snapshot() quota.Snapshot
	Statistics() governor.Statistics
}

// quotas reads the quotas when Prometheus asks.
type quotas struct{ all func() map[string]Quota }

var (
	quotaApproved  = describe("headway_quota_approvals_total", "Calls that a quota approved.", "quota", "model")
	quotaDenied    = describe("headway_quota_denials_total", "Calls that a quota refused.", "quota", "model")
	quotaThrottles = describe("headway_quota_throttles_total", "Episodes in which a quota had nothing left for now.", "quota")
	quotaResumes   = describe("headway_quota_resumes_total", "Ends of such episodes.", "quota")
	quotaScales    = describe("headway_quota_scale_changes_total", "Changes of the factor by which agents slow down.", "quota")
	quotaExpired   = describe("headway_quota_permits_expired_total", "Permits that nobody settled in time.", "quota")
	quotaLatency   = describe("headway_quota_approval_mean_seconds", "How long an approval took on average since the start, queue included.", "quota")
	quotaOpen      = describe("headway_quota_permits_open", "Permits that are not settled yet.", "quota")
	quotaWaiting   = describe("headway_quota_waiting", "Calls that wait for approval.", "quota")
	quotaUnsaved   = describe("headway_quota_saves_failed_total", "Attempts to store the daily use that failed.", "quota")
	quotaEvents    = describe("headway_quota_events_lost_total", "Events that a slow reader did not get.", "quota")
	quotaRemaining = describe("headway_quota_remaining", "What is left of a budget; negative after an overshoot. The model is empty for all together.", "quota", "model", "budget")
	quotaMembers   = describe("headway_quota_fleet_members", "Processes that share the budgets, as last known; no sample where they are not shared.", "quota")
	quotaAway      = describe("headway_quota_fleet_away", "1 while the server that holds shared budgets is away, so that calls go on at a share, or wait.", "quota")
	quotaState     = describe("headway_quota_state", "1 for the state that the scope is in.", "quota", "model", "state")
	quotaScale     = describe("headway_quota_scale", "The factor by which agents should slow down.", "quota", "model")
	quotaTokens    = describe("headway_quota_tokens", "Tokens granted, used and given back since the start, and held now.", "quota", "model", "kind")
)

func (q quotas) Describe(chan<- *prometheus.Desc) {}

func (q quotas) Collect(ch chan<- prometheus.Metric) {
	for name, one := range q.all() {
		st, s := one.Statistics(), one.Snapshot()
		for model, n := range st.Models {
			ch <- counter(quotaApproved, float64(n.Approved), name, model)
			ch <- counter(quotaDenied, float64(n.Denied), name, model)
		}
		ch <- counter(quotaThrottles, float64(st.Throttles), name)
		ch <- counter(quotaResumes, float64(st.Resumes), name)
		ch <- counter(quotaScales, float64(st.Scaled), name)
		ch <- counter(quotaExpired, float64(st.Expired), name)
		ch <- counter(quotaUnsaved, float64(st.SavesFailed), name)
		ch <- counter(quotaEvents, float64(st.EventsLost), name)
		ch <- gauge(quotaOpen, float64(st.Open), name)
		ch <- gauge(quotaWaiting, float64(st.Waiting), name)
		if st.Approved > 0 {
			ch <- gauge(quotaLatency, st.MeanApprovalLatency.Seconds(), name)
		}
		if f := s.Fleet; f != nil {
			ch <- gauge(quotaMembers, float64(f.Members), name)
			ch <- gauge(quotaAway, truth(f.Away), name)
		}
		g := s.Global
		scope(ch, name, "", quota.ModelSnapshot{
			CallsRemaining: g.CallsRemaining, TokensRemaining: g.TokensRemaining, SoftTokensRemaining: g.SoftTokensRemaining,
			DailyTokensRemaining: g.DailyTokensRemaining, DailyCallsRemaining: g.DailyCallsRemaining,
			State: g.State, Factor: g.Factor, Ledger: g.Ledger,
		})
		for model, m := range s.Models {
			scope(ch, name, model, m)
		}
	}
}

func scope(ch chan<- prometheus.Metric, name, model string, m quota.ModelSnapshot) {
	for budget, left := range map[string]*int64{
		"calls": m.CallsRemaining, "tokens": m.TokensRemaining, "soft_tokens": m.SoftTokensRemaining,
		"daily_tokens": m.DailyTokensRemaining, "daily_calls": m.DailyCallsRemaining,
	} {
		if left != nil {
			ch <- gauge(quotaRemaining, float64(*left), name, model, budget)
		}
	}
	ch <- gauge(quotaState, 1, name, model, m.State.String())
	ch <- gauge(quotaScale, m.Factor, name, model)
	for kind, n := range map[string]int64{
		"granted": m.Ledger.Granted, "used": m.Ledger.Used, "refunded": m.Ledger.Refunded, "held": m.Ledger.Held,
	} {
		ch <- gauge(quotaTokens, float64(n), name, model, kind)
	}
}
