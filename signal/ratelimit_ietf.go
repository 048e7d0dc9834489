package signal

import (
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"
)

// Canonical keys of draft-ietf-httpapi-ratelimit-headers.
const (
	policyKey    = "Ratelimit-Policy"
	rateLimitKey = "Ratelimit"
)

// ietf reads RateLimit-Policy and RateLimit. The policies come first and in
// their order; the current state of each is merged into it.
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
			continue // q is required: without it nothing is limited
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

// mergeByQuota gives the state that an unnamed limit tells to the policy of the
// same quota, as drafts up to 7 associate them. One that tells no quota can only
// mean the one policy there is.
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

// add appends a limit that tells something, within MaxLimits.
func add(all []Limit, l Limit) []Limit {
	if !l.tells() || len(all) >= MaxLimits {
		return all
	}
	return append(all, l)
}

// structured is a structured field's lines without the empty ones; nil when
// nothing is left or when they are too long together.
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

// entry is a dictionary's figure.
func entry(dictionary *httpsfv.Dictionary, key string) int64 {
	if member, ok := dictionary.Get(key); ok {
		if item, ok := member.(httpsfv.Item); ok {
			return figure(item.Value)
		}
	}
	return Unknown
}

// parameter is an item's figure.
func parameter(item httpsfv.Item, key string) int64 {
	value, _ := item.Params.Get(key)
	return figure(value)
}

// partition is an item's partition key. Byte sequences are what the draft says;
// strings are what some send.
func partition(item httpsfv.Item) string {
	value, _ := item.Params.Get("pk")
	if key, ok := value.([]byte); ok {
		return string(key)
	}
	word, _ := text(value)
	return word
}

// text is a string, or a token, which some write where the draft wants a string.
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

// figure is a non-negative integer of a structured field.
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

// seconds is a figure as a duration; Unknown when it is absurd.
func seconds(n int64) time.Duration {
	if n == Unknown || n > int64(MaxRetryAfter/time.Second) {
		return Unknown
	}
	return time.Duration(n) * time.Second
}
