package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

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
