package daemon

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/forward"
	"github.com/headway-go/headway/quota"
)

// Base returns the URL at which clients on this machine reach the daemon. at is the address
// it listens on; nil means the configured one.
func Base(c config.Config, at net.Addr) string {
	host, port, _ := net.SplitHostPort(c.Listen)
	if at != nil {
		_, port, _ = net.SplitHostPort(at.String())
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if c.TLS != nil {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}).String()
}

// Page returns a short text that lists each provider with its base URL for clients, its
// key by name or source, and its limits. It holds no secrets.
func Page(c config.Config, base string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "headway serve at %s\n", base)
	if len(c.Providers) > 0 {
		b.WriteString("\n")
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "PROVIDER\tSET IN THE CLIENT\tGOES TO\tWITH")
		for i := range c.Providers {
			p := &c.Providers[i]
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, setting(p, base), p.Description.Upstream, credential(p))
		}
		_ = w.Flush() // into memory
		b.WriteString("\n")
		for i := range c.Providers {
			p := &c.Providers[i]
			fmt.Fprintf(&b, "%s: %s; %s; waits up to %v\n", p.Name, budget(p), pacing(p), p.MaxWait)
		}
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(label, text string) { _, _ = fmt.Fprintf(w, "%s\t%s\n", label, text) }
	if c.Quota != nil {
		row("budget at /v1/quota", limits(c.Quota.Quota.Global)+models(c.Quota.Quota))
	}
	switch {
	case !c.Open():
		row("calls", fmt.Sprintf("with a key (%d configured)", len(c.Keys)))
	default:
		row("calls", "by everybody on this machine: no keys are configured")
	}
	if n := len(c.ViewKeys); n > 0 {
		row("looks at /v1", fmt.Sprintf("with a key that has a role (%d configured beside admin keys)", n))
	}
	switch {
	case len(c.AdminKeys) > 0:
		row("changes at /v1", fmt.Sprintf("with an admin key (%d configured)", len(c.AdminKeys)))
	case c.Open():
		row("changes at /v1", "by everybody on this machine: no admin keys are configured")
	default:
		row("changes at /v1", "by nobody: no admin keys are configured")
	}
	if !c.NoConsole {
		row("console", "in a browser at "+base+"/console/")
	}
	if c.Collections != nil {
		row("collections", fmt.Sprintf("in %s, %s unless their file says when", c.Collections.Dir, c.Collections.Schedule))
	}
	if f := c.Forward; f != nil {
		hosts := strings.Join(forward.Patterns(f.Rules), ", ")
		if f.All {
			hosts = "every host"
		}
		row("forward proxy", fmt.Sprintf("at %s for %s; a program gets it by: . %s", f.Listen, hosts, envFile(c)))
	}
	if at := c.Fleet; at.Reveal() == "none" {
		row("fleet", "none: the pace is shared with nobody")
	} else if at.Reveal() != "" {
		row("fleet", "the pace is shared with all members at "+placeOf(at))
	}
	row("state", c.State)
	_ = w.Flush() // into memory
	for _, warning := range c.Warnings {
		b.WriteString("\nwarning: " + warning + "\n")
	}
	return b.String()
}

// placeOf returns the address of a fleet server without user and password.
func placeOf(at config.Secret) string {
	u, err := url.Parse(at.Reveal())
	if err != nil {
		return at.String()
	}
	u.User = nil
	return u.String()
}

// setting returns the environment variable for a client, with the base URL in the form its
// SDK takes.
func setting(p *config.Provider, base string) string {
	at := base + "/" + p.Name
	switch p.Description.API {
	case provider.OpenAI:
		return "OPENAI_BASE_URL=" + at + "/v1"
	case provider.AzureOpenAI:
		return "AZURE_OPENAI_ENDPOINT=" + at
	case provider.Anthropic:
		return "ANTHROPIC_BASE_URL=" + at
	case provider.Gemini:
		return "GOOGLE_GEMINI_BASE_URL=" + at
	case provider.HTTP:
	}
	return at + "/"
}

func credential(p *config.Provider) string {
	if p.PassThrough {
		return "the client's key"
	}
	if len(p.Keys) > 0 {
		return fmt.Sprintf("%d keys, each paced apart", len(p.Keys))
	}
	return "key " + p.Key.String()
}

func pacing(p *config.Provider) string {
	if p.Pacing == nil {
		return "not paced"
	}
	s := "paced by " + p.Pacing.Law
	if !p.Pacing.Conservative {
		s += " once the provider objects"
	}
	if p.Pacing.Ceiling > 0 {
		s += ", at most " + perSecond(p.Pacing.Ceiling)
	}
	if p.Pacing.MaxInFlight > 0 {
		s += fmt.Sprintf(", %d at once", p.Pacing.MaxInFlight)
	}
	return s
}

func perSecond(interval time.Duration) string {
	return strconv.FormatFloat(float64(time.Second)/float64(interval), 'g', 3, 64) + "/s"
}

func budget(p *config.Provider) string {
	if p.Quota == nil {
		return "no budget"
	}
	s := limits(p.Quota.Quota.Global) + models(p.Quota.Quota)
	if p.RefuseUnknown {
		s += ", other models refused"
	}
	return s
}

// models returns text that says how many models have limits of their own.
func models(c quota.Config) string {
	n := len(c.Models)
	if m, ok := c.Models[config.OtherModels]; ok && m.Limits == (quota.Limits{}) {
		n--
	}
	switch n {
	case 0:
		return ""
	case 1:
		return ", 1 model listed"
	}
	return fmt.Sprintf(", %d models listed", n)
}

// limits returns the limits of one scope as text.
func limits(l quota.Limits) string {
	var all []string
	add := func(n int64, what string) {
		if n > 0 {
			all = append(all, grouped(n)+" "+what)
		}
	}
	add(l.CallsPerMinute, "calls/min")
	if l.CallsPerMinute == 0 && l.RefillPerSecond > 0 {
		all = append(all, strconv.FormatFloat(l.RefillPerSecond, 'g', 3, 64)+" calls/s")
	}
	add(l.TokensPerMinute, "tokens/min")
	add(l.InputTokensPerMinute, "input tokens/min")
	add(l.OutputTokensPerMinute, "output tokens/min")
	add(l.MaxDailyCalls, "calls/day")
	add(l.MaxDailyTokens, "tokens/day")
	if len(all) == 0 {
		return "no limit for all together"
	}
	return strings.Join(all, ", ")
}

// grouped formats a number with commas between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
