package signal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/signal"
)

const unknown = signal.Unknown

func TestIETF(t *testing.T) {
	bytesPerUser := signal.Limit{
		Name: "peruser", Unit: "content-bytes", Partition: "trial1213323",
		Quota: 65535, Window: 10 * time.Second, Remaining: unknown, Reset: unknown,
	}
	with := func(l signal.Limit, partition string) signal.Limit {
		l.Partition = partition
		return l
	}
	concurrent := limit("c", 10, unknown, 3, unknown)
	concurrent.Unit = signal.UnitConcurrent

	for _, tt := range []struct {
		name  string
		pairs []string
		want  []signal.Limit
	}{
		{
			"policies", []string{"RateLimit-Policy", `"permin";q=50;w=60,"perhr";q=1000;w=3600`},
			[]signal.Limit{
				limit("permin", 50, time.Minute, unknown, unknown),
				limit("perhr", 1000, time.Hour, unknown, unknown),
			},
		},
		{
			"policies on two lines", []string{"RateLimit-Policy", `"permin";q=50;w=60`, "RateLimit-Policy", `"perhr";q=1000;w=3600`},
			[]signal.Limit{
				limit("permin", 50, time.Minute, unknown, unknown),
				limit("perhr", 1000, time.Hour, unknown, unknown),
			},
		},
		{"state", []string{"RateLimit", `"default";r=50;t=30`}, []signal.Limit{limit("default", unknown, unknown, 50, 30*time.Second)}},
		{"state without a window", []string{"RateLimit", `"default";r=999`}, []signal.Limit{limit("default", unknown, unknown, 999, unknown)}},
		{"nothing left", []string{"RateLimit", `"default";r=0;t=0`}, []signal.Limit{limit("default", unknown, unknown, 0, 0)}},
		{
			"state joins its policy", []string{
				"RateLimit-Policy", `"permin";q=50;w=60,"perhr";q=1000;w=3600`,
				"RateLimit", `"perhr";r=7;t=300,"other";r=1;t=2`,
			},
			[]signal.Limit{
				limit("permin", 50, time.Minute, unknown, unknown),
				limit("perhr", 1000, time.Hour, 7, 5*time.Minute),
				limit("other", unknown, unknown, 1, 2*time.Second),
			},
		},
		{
			"unit and partition", []string{"RateLimit-Policy", `"peruser";q=65535;qu="content-bytes";w=10;pk=:dHJpYWwxMjEzMzIz:`},
			[]signal.Limit{bytesPerUser},
		},
		{
			"concurrency", []string{"RateLimit-Policy", `"c";q=10;qu="concurrent-requests"`, "RateLimit", `"c";r=3`},
			[]signal.Limit{concurrent},
		},
		{
			"partitions of one policy", []string{
				"RateLimit-Policy", `"u";q=5;w=1;pk=:YQ==:,"u";q=9;w=1;pk=:Yg==:`,
				"RateLimit", `"u";r=2;t=1;pk=:Yg==:`,
			},
			[]signal.Limit{
				with(limit("u", 5, time.Second, unknown, unknown), "a"),
				with(limit("u", 9, time.Second, 2, time.Second), "b"),
			},
		},
		{
			"a policy for all partitions", []string{"RateLimit-Policy", `"u";q=5;w=1`, "RateLimit", `"u";r=2;t=1;pk=:YQ==:`},
			[]signal.Limit{with(limit("u", 5, time.Second, 2, time.Second), "a")},
		},
		{
			"tokens for names, and comments", []string{"RateLimit-Policy", `fixed;q=5;w=1;acme-burst=3;comment="x"`, "RateLimit", "fixed;r=4;t=1;u"},
			[]signal.Limit{limit("fixed", 5, time.Second, 4, time.Second)},
		},
		{
			"draft 7", []string{"RateLimit-Policy", "10;w=1, 100;w=60", "RateLimit", "limit=100, remaining=5, reset=30"},
			[]signal.Limit{limit("", 10, time.Second, unknown, unknown), limit("", 100, time.Minute, 5, 30*time.Second)},
		},
		{
			"draft 7 without policy", []string{"RateLimit", "limit=100, remaining=5, reset=30"},
			[]signal.Limit{limit("", 100, unknown, 5, 30*time.Second)},
		},
		{
			"draft 7 with parameters, which are ignored", []string{"RateLimit", "limit=100;w=1,remaining=5;x=y,reset=30,extra=?1"},
			[]signal.Limit{limit("", 100, unknown, 5, 30*time.Second)},
		},
		{"draft 7 in part", []string{"RateLimit", "remaining=5"}, []signal.Limit{limit("", unknown, unknown, 5, unknown)}},
		{
			"draft 6", []string{
				"RateLimit-Policy", "100;w=60", "RateLimit-Limit", "100",
				"RateLimit-Remaining", "40", "RateLimit-Reset", "12",
			},
			[]signal.Limit{limit("", 100, time.Minute, 40, 12*time.Second)},
		},
		{
			"draft 6 without a limit", []string{"RateLimit-Policy", "100;w=60", "RateLimit-Remaining", "40", "RateLimit-Reset", "12"},
			[]signal.Limit{limit("", 100, time.Minute, 40, 12*time.Second)},
		},
		{
			"draft 3", []string{"RateLimit-Limit", `10, 10;w=1, 50;w=60;comment="m"`, "RateLimit-Remaining", "9", "RateLimit-Reset", "1"},
			[]signal.Limit{limit("", 10, time.Second, 9, time.Second), limit("", 50, time.Minute, unknown, unknown)},
		},
		{
			"a limit with its window", []string{"RateLimit-Limit", "10;w=1", "RateLimit-Remaining", "9"},
			[]signal.Limit{limit("", 10, time.Second, 9, unknown)},
		},
		{
			"the precise form beats the convention", []string{"RateLimit", `"a";r=5;t=30`, "X-RateLimit-Remaining", "6", "X-RateLimit-Reset", "31"},
			[]signal.Limit{limit("a", unknown, unknown, 5, 30*time.Second)},
		},
		{
			"the convention beats a malformed one", []string{"RateLimit", `"a";r=`, "RateLimit-Policy", `"a";q=9;w=60`, "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "6"},
			[]signal.Limit{limit("a", 9, time.Minute, 6, unknown)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantLimits(t, signal.Read(noon, 200, fields(t, tt.pairs...), nil).Limits, tt.want...)
		})
	}
}

func TestIETFMalformedIsIgnored(t *testing.T) {
	for _, tt := range []struct {
		name, key, value string
		want             []signal.Limit
	}{
		{"empty", "RateLimit", "", nil},
		{"not a structured field", "RateLimit", "50 of 100", nil},
		{"trailing comma", "RateLimit", `"a";r=5;t=30,`, nil},
		{"unterminated string", "RateLimit", `"a`, nil},
		{"r is missing", "RateLimit", `"a";t=30`, nil},
		{"r is negative", "RateLimit", `"a";r=-1;t=30`, nil},
		{"r is a decimal", "RateLimit", `"a";r=1.5;t=30`, nil},
		{"r is a string", "RateLimit", `"a";r="5";t=30`, nil},
		{"r is too large", "RateLimit", `"a";r=9999999999999999;t=30`, nil},
		{"the name is a number", "RateLimit", `5;r=5;t=30`, nil},
		{"an inner list", "RateLimit", `("a" "b");r=5;t=30`, nil},
		{"t is negative", "RateLimit", `"a";r=5;t=-30`, []signal.Limit{limit("a", unknown, unknown, 5, unknown)}},
		{"t is absurd", "RateLimit", `"a";r=5;t=999999999999999`, []signal.Limit{limit("a", unknown, unknown, 5, unknown)}},
		{"one of two is whole", "RateLimit", `"a";t=30,"b";r=5`, []signal.Limit{limit("b", unknown, unknown, 5, unknown)}},
		{"dictionary of the negative", "RateLimit", "limit=-1, remaining=-5, reset=-30", nil},
		{"dictionary of strings", "RateLimit", `limit="100"`, nil},
		{"dictionary of lists", "RateLimit", `limit=(1 2), remaining=3`, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{"too long", "RateLimit", `"` + strings.Repeat("a", signal.MaxHeader) + `";r=5`, nil},
		{"q is missing", "RateLimit-Policy", `"a";w=60`, nil},
		{"q is negative", "RateLimit-Policy", `"a";q=-1;w=60`, nil},
		{"bare quota is negative", "RateLimit-Policy", `-5;w=60`, nil},
		{"bare quota is a decimal", "RateLimit-Policy", `5.0;w=60`, nil},
		{"an inner list of policies", "RateLimit-Policy", `(1 2);w=60`, nil},
		{"w is zero", "RateLimit-Policy", `"a";q=5;w=0`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"w is negative", "RateLimit-Policy", `"a";q=5;w=-60`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"w is absurd", "RateLimit-Policy", `"a";q=5;w=31622401`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"qu is a number", "RateLimit-Policy", `"a";q=5;qu=7`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"qu is empty", "RateLimit-Policy", `"a";q=5;qu=""`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"pk is a number", "RateLimit-Policy", `"a";q=5;pk=7`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := signal.Read(noon, 200, fields(t, tt.key, tt.value), nil)
			if tt.want == nil && got.Limits != nil {
				t.Fatalf("limits %+v, want none", got.Limits)
			}
			wantLimits(t, got.Limits, tt.want...)
		})
	}
	half := strings.Repeat(" ", 3) + `"` + strings.Repeat("a", signal.MaxHeader/2) + `";r=5`
	if got := signal.Read(noon, 200, fields(t, "RateLimit", half, "RateLimit", half), nil); got.Limits != nil {
		t.Errorf("two lines that are too long together give %d limits, want none", len(got.Limits))
	}
}
