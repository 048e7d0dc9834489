package forward

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-go/headway/internal/profile"
)

// Pattern parses a host pattern: a name, *.NAME for all names below it, or an IP address. It
// returns the pattern in lower case; ok is false if it is invalid.
func Pattern(text string) (host string, ok bool) {
	host = strings.ToLower(strings.TrimSuffix(text, "."))
	if at, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return at.String(), true
	}
	name := strings.TrimPrefix(host, "*.")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
	}
	return host, len(name) <= 253
}

// Matches reports whether a host matches a pattern.
func Matches(pattern, host string) bool {
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(host, below) && len(host) > len(below)
	}
	return pattern == host
}

// split returns the host of an authority, in lower case, and its port or the default one.
func split(authority, usual string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = strings.Trim(authority, "[]"), usual
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	n, err := strconv.Atoi(port)
	return host, port, host != "" && err == nil && n > 0 && n < 1<<16
}

// Rule names a host, or several by a pattern, and the profile of its provider.
type Rule struct {
	Pattern string
	Profile string // name or file; "" for the profile that comes with Headway for the host
}

// Rules returns the rules for hosts, which may be patterns, and for profiles, by name or file.
// With hosts, at most one profile may be named, which is then that of every host. Without them,
// the hosts that the profiles name are governed. It returns a [NameError] for each name that is
// wrong.
func Rules(hosts, profiles []string, folders ...string) (all []Rule, wrong []*NameError) {
	if len(hosts) > 0 && len(profiles) > 1 {
		wrong = append(wrong, &NameError{Profile: true, Index: -1, Err: fmt.Errorf("%d profiles beside hosts", len(profiles))})
	}
	for i, ref := range profiles {
		p, err := profile.Find(ref, folders...)
		var rules []Rule
		if err == nil && len(hosts) == 0 {
			rules, err = rulesOf(ref, p)
		}
		if err != nil {
			wrong = append(wrong, &NameError{true, i, ref, err})
		}
		all = append(all, rules...)
	}
	for i, text := range hosts {
		pattern, ok := Pattern(text)
		if !ok {
			wrong = append(wrong, &NameError{false, i, text, errors.New("want a name such as api.example.com, *.example.com, or an address, without scheme, port or path")})
			continue
		}
		rule := Rule{Pattern: pattern}
		if len(profiles) == 1 {
			rule.Profile = profiles[0]
		}
		all = append(all, rule)
	}
	return all, wrong
}

// NameError reports a host or a profile for which [Rules] has no rule.
type NameError struct {
	Profile bool   // it is a profile
	Index   int    // in the list of hosts or profiles; -1 means the whole list
	Name    string // as it was given
	Err     error
}

func (e *NameError) Error() string { return e.Err.Error() }

func (e *NameError) Unwrap() error { return e.Err }

// rulesOf returns rules for the hosts that a profile names.
func rulesOf(ref string, p *profile.Profile) ([]Rule, error) {
	if len(p.Hosts()) == 0 {
		return nil, fmt.Errorf("the profile %s names no hosts; name them beside it", p.Name())
	}
	var all []Rule
	for _, text := range p.Hosts() {
		pattern, ok := Pattern(text)
		if !ok {
			return nil, fmt.Errorf("the profile %s names the host %.80q, which cannot be governed", p.Name(), text)
		}
		all = append(all, Rule{pattern, ref})
	}
	return all, nil
}

// Patterns returns the patterns of rules.
func Patterns(rules []Rule) []string {
	var all []string
	for _, r := range rules {
		all = append(all, r.Pattern)
	}
	return all
}

// Profiles returns the function for [Options.Profile] that finds the profile of a host: that
// of the first rule that matches, or else the one that comes with Headway, or is in one of the
// folders, for the host.
func Profiles(rules []Rule, folders ...string) func(host string) (string, func() (*profile.Profile, error)) {
	return func(host string) (string, func() (*profile.Profile, error)) {
		ref := ""
		if i := slices.IndexFunc(rules, func(r Rule) bool { return Matches(r.Pattern, host) }); i >= 0 {
			ref = rules[i].Profile
		}
		if ref == "" {
			p, err := profile.OfHost(host, folders...)
			if err != nil || p == nil {
				return "", nil
			}
			if ref = p.Name(); p.File() != "" {
				ref = p.File()
			}
		}
		return ref, func() (*profile.Profile, error) { return profile.Find(ref, folders...) }
	}
}

// memberHost returns the host that stands for a provider in a fleet: for any of the hosts of
// its profile the first that is a plain name, so that processes agree on it whichever they
// call first, or else the authority that is called.
func memberHost(ofProfile []string, host, authority string) string {
	if slices.ContainsFunc(ofProfile, func(pattern string) bool { return Matches(pattern, host) }) {
		for _, pattern := range ofProfile {
			if !strings.HasPrefix(pattern, "*") {
				return pattern
			}
		}
	}
	return authority
}

// credential returns the part of a request that identifies its credential. For an
// Authorization that changes with each request, as a signature does, it is the constant part.
func credential(h http.Header) string {
	text := h.Get("Authorization")
	if text == "" {
		for _, name := range []string{"X-Api-Key", "Api-Key", "Private-Token", "X-Goog-Api-Key"} {
			if v := h.Get(name); v != "" {
				return v
			}
		}
		return ""
	}
	kind, rest, _ := strings.Cut(text, " ")
	parameter := func(name string) string {
		for part := range strings.SplitSeq(rest, ",") {
			if key, value, ok := strings.Cut(strings.TrimSpace(part), "="); ok && strings.EqualFold(key, name) {
				return strings.Trim(value, `"`)
			}
		}
		return ""
	}
	switch lower := strings.ToLower(kind); {
	case strings.HasPrefix(lower, "aws4-"):
		id, _, _ := strings.Cut(parameter("Credential"), "/")
		return id
	case lower == "aws":
		id, _, _ := strings.Cut(rest, ":")
		return id
	case lower == "digest":
		return parameter("username")
	case lower == "oauth":
		return parameter("oauth_consumer_key") + " " + parameter("oauth_token")
	case lower == "bearer", lower == "token":
		return strings.TrimSpace(rest)
	}
	return text
}
