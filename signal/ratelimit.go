package signal

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Canonical keys of draft-ietf-httpapi-ratelimit-headers.
const (
	policyKey    = "Ratelimit-Policy"
	rateLimitKey = "Ratelimit"
)

// ietf reads RateLimit-Policy and RateLimit. The policies come first, in their order; the
// current state of each is merged into it.
func ietf(header http.Header) []Limit {
	all := policies(structured(header, policyKey))
	lines := structured(header, rateLimitKey)
	if lines == nil {
		return all
	}
	// Draft 8 and later have a List, draft 7 has a Dictionary. Neither can be
	// read as the other: a key with = is not a list item.
	if list, err := httpsfv.UnmarshalList(lines); err == nil {
		for _, member := range list {
			if item, ok := member.(httpsfv.Item); ok {
				all = state(all, item)
			}
		}
		return all
	}
	if dictionary, err := httpsfv.UnmarshalDictionary(lines); err == nil {
		l := unknownLimit("", UnitRequests)
		l.Quota = entry(dictionary, "limit")
		l.Remaining = entry(dictionary, "remaining")
		l.Reset = seconds(entry(dictionary, "reset"))
		all = mergeByQuota(all, l)
	}
	return all
}

// policies reads quota policies: a name with q, w, qu and pk, or the bare quota
// with w of drafts up to 7.
func policies(lines []string) []Limit {
	if lines == nil {
		return nil
	}
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil
	}
	var all []Limit
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok || len(all) == MaxLimits {
			continue
		}
		l := unknownLimit("", UnitRequests)
		if quota, bare := item.Value.(int64); bare {
			l.Quota = whole(quota)
		} else if l.Name, ok = text(item.Value); ok {
			l.Quota = parameter(item, "q")
		}
		if l.Quota == Unknown {
			continue // q is required: without it there is no limit
		}
		if unit, given := item.Params.Get("qu"); given {
			if word, valid := text(unit); valid && word != "" {
				l.Unit = word
			}
		}
		l.Partition = partition(item)
		if w := seconds(parameter(item, "w")); w > 0 {
			l.Window = w
		}
		all = append(all, l)
	}
	return all
}

// state merges a service limit item ("name";r=50;t=30) into the policy of the
// same name, or appends it when there is none.
func state(all []Limit, item httpsfv.Item) []Limit {
	name, ok := text(item.Value)
	remaining := parameter(item, "r")
	if !ok || remaining == Unknown {
		return all // r is required
	}
	key, reset := partition(item), seconds(parameter(item, "t"))
	for i := range all {
		l := &all[i]
		samePartition := l.Partition == key || l.Partition == "" || key == ""
		if l.Name == name && samePartition && l.Remaining == Unknown {
			l.Remaining, l.Reset = remaining, reset
			if key != "" {
				l.Partition = key
			}
			return all
		}
	}
	l := unknownLimit(name, UnitRequests)
	l.Partition, l.Remaining, l.Reset = key, remaining, reset
	return add(all, l)
}

// mergeByQuota merges an unnamed limit into the policy with the same quota, as drafts up
// to 7 pair them. A limit without a quota can only belong to the one policy there is.
func mergeByQuota(all []Limit, l Limit) []Limit {
	for i := range all {
		policy := &all[i]
		same := policy.Quota == l.Quota || (l.Quota == Unknown && len(all) == 1)
		if same && policy.Remaining == Unknown && policy.Reset == Unknown {
			policy.Remaining, policy.Reset = l.Remaining, l.Reset
			return all
		}
	}
	return add(all, l)
}

// add appends a limit that has at least one figure, up to MaxLimits.
func add(all []Limit, l Limit) []Limit {
	if !l.tells() || len(all) >= MaxLimits {
		return all
	}
	return append(all, l)
}

// structured returns the lines of a structured field that are not empty; nil if all are,
// or if they are too long together.
func structured(header http.Header, key string) []string {
	var lines []string
	total := 0
	for _, line := range header[key] {
		if line = trim(line); line == "" {
			continue
		}
		if total += len(line); total > MaxHeader {
			return nil
		}
		lines = append(lines, line)
	}
	return lines
}

// entry returns the number that a dictionary has under a key.
func entry(dictionary *httpsfv.Dictionary, key string) int64 {
	if member, ok := dictionary.Get(key); ok {
		if item, ok := member.(httpsfv.Item); ok {
			return figure(item.Value)
		}
	}
	return Unknown
}

// parameter returns the number in an item's parameter.
func parameter(item httpsfv.Item, key string) int64 {
	value, _ := item.Params.Get(key)
	return figure(value)
}

// partition returns an item's partition key. The draft specifies byte sequences; some
// servers send strings.
func partition(item httpsfv.Item) string {
	value, _ := item.Params.Get("pk")
	if key, ok := value.([]byte); ok {
		return string(key)
	}
	word, _ := text(value)
	return word
}

// text returns a string, or a token, which some servers send instead of a string.
func text(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case httpsfv.Token:
		return string(v), true
	default:
		return "", false
	}
}

// figure returns a non-negative integer of a structured field; Unknown otherwise.
func figure(value any) int64 {
	if n, ok := value.(int64); ok {
		return whole(n)
	}
	return Unknown
}

// whole turns a negative figure into Unknown.
func whole(n int64) int64 {
	if n < 0 {
		return Unknown
	}
	return n
}

// seconds returns a figure as a duration; Unknown if it is absurd.
func seconds(n int64) time.Duration {
	if n == Unknown || n > int64(MaxRetryAfter/time.Second) {
		return Unknown
	}
	return time.Duration(n) * time.Second
}

// remainingKey is the field by which GitHub distinguishes a rate limit from another
// refusal.
const remainingKey = "X-Ratelimit-Remaining"

// dialect is one way to state a limit in separate header fields. Keys are in canonical
// form; an empty one means that the dialect has no such field.
type dialect struct {
	name, unit                                  string
	limit, remaining, used, reset, resourceName string
	refills                                     bool
}

// generic are the dialects that state the same limit under different names: the first one
// present in the header is read. The IETF's separate fields come first because their
// meaning is the most precise.
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

// openAI and anthropic state one bucket for requests and one for tokens. Their reset is
// the time until the bucket is full again.
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

// limits reads every limit that the header states, in a fixed order.
func limits(from origin) []Limit {
	if !mayLimit(from.header) {
		return nil
	}
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

// mayLimit reports whether a header may state a limit: all fields that do contain the
// word in their names. Most responses have none, and looking up each field takes ten
// times as long.
func mayLimit(header http.Header) bool {
	for name := range header {
		if strings.Contains(name, "imit") {
			return true
		}
	}
	return false
}

// conventional reads the first generic dialect that is present. Parameters in the limit's
// field are policies, as in early drafts.
func conventional(all []Limit, from origin) []Limit {
	if _, ok := from.header["X-Ratelimit-Usage"]; ok {
		return all // Strava's pairs look alike but mean something else
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

// read returns the limit that the dialect's fields state. A quota of 0 would forbid the
// very request that was answered, so it counts as Unknown.
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
		_, err := time.ParseDuration(value)
		l.Precise = err == nil && l.Reset > 0
	}
	if d.resourceName != "" {
		l.Name = field(h, d.resourceName)
	}
	return l
}

// meant handles Azure OpenAI, where 0 may mean unknown: a remainder of 0 counts only
// together with a quota or a future reset.
func meant(l Limit) bool { return l.Quota > 0 || l.Remaining > 0 || l.Reset > 0 }

// readReset reads the value of a reset field. A number is delta seconds unless it is so
// large that it can only be an epoch time.
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
	if at, err := time.Parse(minuteTime, value); err == nil {
		return from.until(at)
	}
	if at, err := http.ParseTime(value); err == nil {
		return from.until(at)
	}
	return Unknown
}

// minuteTime is an instant in ISO 8601 without seconds. Source: Jira Cloud, rate limiting.
const minuteTime = "2006-01-02T15:04Z07:00"

// epochMilliseconds distinguishes an epoch time in seconds from one in milliseconds: in
// seconds it is in the year 5138, in milliseconds in 1973.
const epochMilliseconds = 100_000_000_000

// strava reads "100,1000" used of "200,2000": windows of a quarter of an hour and a day,
// aligned to the UTC clock.
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

// maxParallelism is the largest hint that is accepted.
const maxParallelism = 10_000

// parallelism returns Dataverse's recommended number of requests in flight.
func parallelism(header http.Header) int {
	if n := count(field(header, "X-Ms-Dop-Hint")); n > 0 && n <= maxParallelism {
		return int(n)
	}
	return 0
}

// Fields names the header fields, in canonical form, in which a provider states one limit
// that [Read] does not know. Empty names mean that there is no such field.
type Fields struct {
	Name, Unit                    string
	Limit, Remaining, Used, Reset string
	Window                        time.Duration // 0 when it is not known
	Refills                       bool          // see [Limit]
}

// Read returns the limit stated by a response that came at now; ok is false if there is
// none.
func (f Fields) Read(now time.Time, header http.Header) (l Limit, ok bool) {
	d := dialect{
		name: f.Name, unit: f.Unit, refills: f.Refills,
		limit: f.Limit, remaining: f.Remaining, used: f.Used, reset: f.Reset,
	}
	l = d.read(origin{now: now, header: header})
	if ok = l.tells(); ok && f.Window > 0 {
		l.Window = f.Window
	}
	return l, ok
}
