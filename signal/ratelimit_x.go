package signal

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// remainingKey is the field by which GitHub tells a rate limit from a refusal.
const remainingKey = "X-Ratelimit-Remaining"

// dialect is one way of telling a limit in separate fields. The keys are
// canonical; an empty one does not exist in the dialect.
type dialect struct {
	name, unit                                  string
	limit, remaining, used, reset, resourceName string
	refills                                     bool
}

// generic are the dialects that tell the same limit in different spellings: the
// first one that says something is read. The IETF's separate fields come first
// because their meaning is the most precise.
var generic = [...]dialect{
	{
		unit:  UnitRequests,
		limit: "Ratelimit-Limit", remaining: "Ratelimit-Remaining", reset: "Ratelimit-Reset",
	},
	{
		unit:  UnitRequests,
		limit: "X-Ratelimit-Limit", remaining: remainingKey, used: "X-Ratelimit-Used",
		reset: "X-Ratelimit-Reset", resourceName: "X-Ratelimit-Resource",
	},
	{
		unit:  UnitRequests,
		limit: "X-Rate-Limit-Limit", remaining: "X-Rate-Limit-Remaining", reset: "X-Rate-Limit-Reset",
	},
}

// openAI and anthropic tell a bucket each for requests and tokens. Their reset
// is the time until the bucket is full again.
var (
	openAI = [...]dialect{
		openAIDialect(UnitRequests, "Requests"),
		openAIDialect(UnitTokens, "Tokens"),
	}
	anthropic = [...]dialect{
		anthropicDialect(UnitRequests, "Requests"),
		anthropicDialect(UnitTokens, "Tokens"),
		anthropicDialect(UnitInputTokens, "Input-Tokens"),
		anthropicDialect(UnitOutputTokens, "Output-Tokens"),
	}
)

func openAIDialect(unit, suffix string) dialect {
	return dialect{
		name: unit, unit: unit, refills: true,
		limit: "X-Ratelimit-Limit-" + suffix, remaining: "X-Ratelimit-Remaining-" + suffix,
		reset: "X-Ratelimit-Reset-" + suffix,
	}
}

func anthropicDialect(unit, infix string) dialect {
	return dialect{
		name: unit, unit: unit, refills: true,
		limit: "Anthropic-Ratelimit-" + infix + "-Limit", remaining: "Anthropic-Ratelimit-" + infix + "-Remaining",
		reset: "Anthropic-Ratelimit-" + infix + "-Reset",
	}
}

// limits reads every limit that the header tells, in a fixed order.
func limits(from origin) []Limit {
	all := ietf(from.header)
	if !slices.ContainsFunc(all, func(l Limit) bool { return l.Remaining != Unknown }) {
		all = conventional(all, from)
	}
	for i := range openAI {
		if l := openAI[i].read(from); meant(l) {
			all = add(all, l)
		}
	}
	for i := range anthropic {
		all = add(all, anthropic[i].read(from))
	}
	all = strava(all, from, "X-Ratelimit-Limit", "X-Ratelimit-Usage", "")
	all = strava(all, from, "X-Readratelimit-Limit", "X-Readratelimit-Usage", "read-")
	return shopify(all, from.header)
}

// conventional reads the first generic dialect that says something. Parameters
// in the limit's field are policies, as early drafts have it.
func conventional(all []Limit, from origin) []Limit {
	if _, ok := from.header["X-Ratelimit-Usage"]; ok {
		return all // Strava's pairs look like it and mean something else
	}
	for i := range generic {
		l := generic[i].read(from)
		if !l.tells() {
			continue
		}
		if quota := field(from.header, generic[i].limit); len(all) == 0 && strings.Contains(quota, ";") {
			if _, rest, listed := strings.Cut(quota, ","); listed {
				quota = rest
			}
			all = policies([]string{quota})
		}
		return mergeByQuota(all, l)
	}
	return all
}

// read gives what the dialect's fields tell. A quota of 0 would forbid every
// request that was just answered, so it is taken for Unknown.
func (d *dialect) read(from origin) Limit {
	l := unknownLimit(d.name, d.unit)
	l.Refills = d.refills
	h := from.header
	if quota := leading(field(h, d.limit)); quota > 0 {
		l.Quota = quota
	}
	if l.Remaining = count(field(h, d.remaining)); l.Remaining == Unknown && d.used != "" {
		l.Remaining = left(l.Quota, count(field(h, d.used)))
	}
	if value := field(h, d.reset); value != "" {
		l.Reset = readReset(value, from)
	}
	if d.resourceName != "" {
		l.Name = field(h, d.resourceName)
	}
	return l
}

// meant guards against Azure OpenAI, where 0 may mean that nothing is known: a
// remainder of 0 counts only beside a quota or a reset to come.
func meant(l Limit) bool { return l.Quota > 0 || l.Remaining > 0 || l.Reset > 0 }

// readReset reads what comes in a reset's field. A number is delta seconds
// unless it is so large that only an epoch can be meant.
func readReset(value string, from origin) time.Duration {
	if n, ok := parseNumber(value); ok {
		switch {
		case n.whole < int64(MaxRetryAfter/time.Second):
			return n.clamped(time.Second)
		case n.whole < epochMilliseconds:
			return from.until(time.Unix(n.whole, n.nanos))
		default:
			return from.until(time.UnixMilli(n.whole))
		}
	}
	if d, err := time.ParseDuration(value); err == nil {
		if d < 0 || d > MaxRetryAfter {
			return Unknown
		}
		return d
	}
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return from.until(at)
	}
	if at, err := http.ParseTime(value); err == nil {
		return from.until(at)
	}
	return Unknown
}

// epochMilliseconds parts epochs: as seconds it lies in the year 5138, as
// milliseconds in 1973.
const epochMilliseconds = 100_000_000_000

// strava reads "100,1000" used of "200,2000": a quarter of an hour and a day,
// which turn on the UTC clock.
func strava(all []Limit, from origin, limitKey, usageKey, prefix string) []Limit {
	usage := field(from.header, usageKey)
	if usage == "" {
		return all
	}
	shortUsed, longUsed, ok := strings.Cut(usage, ",")
	shortQuota, longQuota, paired := strings.Cut(field(from.header, limitKey), ",")
	if !ok || !paired {
		return all
	}
	natural := func(name string, window time.Duration, quota, used string) Limit {
		l := unknownLimit(prefix+name, UnitRequests)
		l.Quota, l.Window = count(trim(quota)), window
		l.Remaining = left(l.Quota, count(trim(used)))
		now := from.instant()
		l.Reset = from.until(now.Truncate(window).Add(window))
		return l
	}
	short := natural("15min", 15*time.Minute, shortQuota, shortUsed)
	long := natural("day", 24*time.Hour, longQuota, longUsed)
	if short.Remaining == Unknown || long.Remaining == Unknown {
		return all
	}
	return add(add(all, short), long)
}

// shopify reads "32/40": 32 of 40 places of a leaky bucket are taken.
func shopify(all []Limit, header http.Header) []Limit {
	used, quota, ok := strings.Cut(field(header, "X-Shopify-Shop-Api-Call-Limit"), "/")
	if !ok {
		return all
	}
	l := unknownLimit("bucket", UnitRequests)
	l.Refills = true
	l.Quota = count(quota)
	if l.Remaining = left(l.Quota, count(used)); l.Remaining == Unknown || l.Quota == 0 {
		return all
	}
	return add(all, l)
}

// maxParallelism is the largest hint that is believed.
const maxParallelism = 10_000

// parallelism is Dataverse's hint of how many requests to have in flight.
func parallelism(header http.Header) int {
	if n := count(field(header, "X-Ms-Dop-Hint")); n > 0 && n <= maxParallelism {
		return int(n)
	}
	return 0
}
