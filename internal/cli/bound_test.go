package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

func TestTheSummarySaysWhatBoundTheRun(t *testing.T) {
	set := func(ceiling time.Duration) *rest.Config {
		return &rest.Config{Name: "c", Provider: rest.Provider{Ceiling: ceiling}, Run: rest.Run{Concurrency: 2}}
	}
	belief := &event.Rate{Belief: &event.Belief{Kind: "token_bucket", Limit: 10, WindowS: 1, Confidence: 1}}
	for _, tt := range []struct {
		c    *rest.Config
		by   reason.Bounds
		rate *event.Rate
		want string
	}{
		{set(0), reason.Bounds{reason.BoundCeiling: 9, reason.BoundDisk: 1}, nil,
			"90% ceiling, 10% disk; your ceiling of 250ms (4/s), not the provider, was the limit: it is the default, set provider.ceiling"},
		{set(20 * time.Millisecond), reason.Bounds{reason.BoundCeiling: 1}, nil,
			"100% ceiling; your ceiling of 20ms (50/s), not the provider, was the limit"},
		{set(0), reason.Bounds{reason.BoundCeiling: 2, reason.BoundLatency: 2, reason.BoundProcessing: 1}, nil, "40% ceiling, 40% latency, 20% processing"},
		{set(0), reason.Bounds{reason.BoundLatency: 1}, nil,
			"100% latency; with a concurrency of 2 most of the time went on waiting for responses (run.concurrency)"},
		{set(0), reason.Bounds{reason.BoundLimit: 1}, belief, "100% provider limit; the provider's limit is believed to be "},
		{set(0), reason.Bounds{reason.BoundLimit: 1}, nil, "100% provider limit"},
		{set(0), reason.Bounds{}, nil, "unknown"},
	} {
		s := collect.Summary{Run: collect.Run{State: collect.RunDrained, Progress: collect.Progress{BoundBy: tt.by}}, Rate: tt.rate}
		if got := summaryText(tt.c, s, "nowhere"); !strings.Contains(got, "  bound by   "+tt.want) {
			t.Errorf("%v: got\n%swant %q", tt.by, got, tt.want)
		}
	}
	status := statusText(collect.ConnectionStatus{Name: "c", LastRun: &collect.Run{Progress: collect.Progress{BoundBy: reason.Bounds{reason.BoundCircuit: 1}}}})
	if !strings.Contains(status, "bound by  100% circuit") {
		t.Errorf("got\n%s", status)
	}
}
