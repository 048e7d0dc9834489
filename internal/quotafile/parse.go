package quotafile

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/headway-go/headway/internal/yamlnode"
	"github.com/headway-go/headway/quota"
)

// MaxSize is how large a file may be, in bytes.
const MaxSize = 1 << 20

// Settings are everything that a file says.
type Settings struct {
	// Quota is the configuration of the governor, checked, with its defaults.
	Quota quota.Config
	// LogLevel is from which level on the governor logs. Default [slog.LevelInfo].
	LogLevel slog.Level

	spread map[string]bool // the scopes that say whether they are spread
}

// SaysSpread reports whether the file says spread, be it true or false, for a model,
// or for the global limits where the model is "". Then it is not for a caller to
// choose.
func (s Settings) SaysSpread(model string) bool {
	if model == "" {
		return s.spread["global"]
	}
	return s.spread["models."+model]
}

// Parse reads the governor's configuration from a YAML file; see [Read], which
// also gives the log level. The name stands for the file in errors.
func Parse(name string, data []byte) (quota.Config, error) {
	s, err := Read(name, data)
	return s.Quota, err
}

// Read reads a YAML file. The name stands for the file in errors, which are
// *[Problem], several joined. After an error the settings are zero. Bytes that
// are not a configuration are an error, never a panic.
func Read(name string, data []byte) (Settings, error) {
	r := &reader{file: yamlnode.Clip(name), places: map[string]place{}, want: "one YAML mapping with keys such as global and models"}
	s := r.read(data)
	if len(r.problems) > 0 {
		return Settings{}, joined(r.problems)
	}
	return s, nil
}

func (r *reader) read(data []byte) (s Settings) {
	root := r.root(data)
	if root == nil {
		return s
	}
	return r.settings(root, "")
}

// root is the root of the one document, or nil, with a problem.
func (r *reader) root(data []byte) ast.Node {
	if len(data) > MaxSize {
		r.fail(nil, "file", fmt.Sprintf("%d bytes long", len(data)), fmt.Sprintf("at most %d", MaxSize))
		return nil
	}
	if !r.shallow(data) {
		return nil
	}
	return r.tree(data)
}

// shallow reports nesting that no configuration has before the parser, which
// recurses, sees it. Brackets in text count too, which costs nobody anything.
func (r *reader) shallow(data []byte) bool {
	const maxDepth, maxIndent, maxLine = 20, 100, 1000
	depth, line, column, indent := 0, 1, 0, true
	for _, c := range data {
		column++
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '\n':
			line, column, indent = line+1, 0, true
			continue
		}
		indent = indent && (c == ' ' || c == '-' || c == '?' || c == '\t')
		if depth > maxDepth || column > maxLine || indent && column > maxIndent {
			r.problems = append(r.problems, &Problem{r.file, line, column, quota.FieldError{
				Field: "file", Value: "too deep or too wide here",
				Bound: fmt.Sprintf("at most %d brackets and %d columns deep, in lines of at most %d bytes", maxDepth, maxIndent, maxLine),
			}})
			return false
		}
	}
	return true
}

// tree is the root of the one document, or nil when there is none.
func (r *reader) tree(data []byte) ast.Node {
	// Keys given twice are let through here and reported with everything else.
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		message := "cannot be read"
		p := &Problem{File: r.file, Line: 1, Column: 1}
		if e, ok := errors.AsType[yaml.Error](err); ok {
			message = strings.Join(strings.Fields(e.GetMessage()), " ")
			if t := e.GetToken(); t != nil && t.Position != nil {
				p.Line, p.Column = max(1, t.Position.Line), max(1, t.Position.Column)
			}
		}
		p.FieldError = quota.FieldError{Field: "file", Value: "not YAML here (" + yamlnode.Clip(message) + ")", Bound: r.want}
		r.problems = append(r.problems, p)
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			r.fail(doc.Body, "file", "more than one document", "one document")
			return nil
		default:
			root = doc.Body
		}
	}
	if root == nil {
		r.fail(nil, "file", "empty", r.want)
	}
	return root
}

func (m *section) config(c *quota.Config) {
	if s := m.below("global"); s != nil {
		s.limits(&c.Global)
		s.done()
	}
	c.Models = named(m, "models", func(s *section, v *quota.Model) {
		s.limits(&v.Limits)
		s.text("charge", &v.Charge)
	})
	c.Tenants = named(m, "tenants", (*section).tenant)
	if s := m.below("tenant_default"); s != nil {
		s.tenant(&c.TenantDefault)
		s.done()
	}
	c.Charges = named(m, "charges", func(s *section, v *quota.Charge) {
		s.maxTokens("max_tokens", &v.MaxTokens)
		s.integer("cached_discount", &v.CachedDiscount, true)
		s.boolean("output_free", &v.OutputFree)
	})
	m.text("day_zone", &c.DayZone)
	m.duration("permit_ttl", &c.PermitTTLMS)
	m.boolean("keep_expired", &c.KeepExpired)
	m.toggle("adaptive_scaling", &c.AdaptiveScalingOff)
	m.number("scale_min", &c.ScaleMin)
	m.number("scale_max", &c.ScaleMax)
	m.duration("scale_step", &c.ScaleStepMS)
	m.toggle("forecast", &c.ForecastOff)
	m.duration("forecast_window", &c.ForecastWindowMS)
	m.integer("event_buffer", &c.EventBuffer, false)
	m.integer("max_tenants", &c.MaxTenants, false)
	m.integer("max_agents", &c.MaxAgents, false)
	m.integer("max_waiting", &c.MaxWaiting, false)
}

func (m *section) tenant(t *quota.Tenant) {
	m.limits(&t.Limits)
	m.integer("weight", &t.Weight, false)
	t.Models = named(m, "models", (*section).limits)
	t.Agents = named(m, "agents", (*section).agent)
	if s := m.below("agent_default"); s != nil {
		s.agent(&t.AgentDefault)
		s.done()
	}
}

func (m *section) agent(a *quota.Agent) {
	m.limits(&a.Limits)
	a.Models = named(m, "models", (*section).limits)
}

func (m *section) limits(l *quota.Limits) {
	m.integer("calls_per_minute", &l.CallsPerMinute, false)
	m.integer("burst", &l.Burst, false)
	m.number("refill_per_second", &l.RefillPerSecond)
	spread := m.boolean("spread", &l.Spread)
	m.integer("tokens_per_minute", &l.TokensPerMinute, false)
	m.integer("token_burst", &l.TokenBurst, false)
	m.integer("input_tokens_per_minute", &l.InputTokensPerMinute, false)
	m.integer("input_token_burst", &l.InputTokenBurst, false)
	m.integer("output_tokens_per_minute", &l.OutputTokensPerMinute, false)
	m.integer("output_token_burst", &l.OutputTokenBurst, false)
	m.integer("soft_token_budget", &l.SoftTokenBudget, false)
	m.duration("soft_token_window", &l.SoftTokenWindowMS)
	m.text("soft_policy", (*string)(&l.SoftPolicy))
	m.integer("max_daily_tokens", &l.MaxDailyTokens, false)
	m.integer("max_daily_calls", &l.MaxDailyCalls, false)
	m.text("day_zone", &l.DayZone)
	if spread != nil && !spreads(l) {
		m.r.fail(spread, join(m.path, "spread"), "set", "left out where no limit by the minute is without a burst")
	}
}

// spreads reports whether there is a limit that is spread or not.
func spreads(l *quota.Limits) bool {
	return (l.CallsPerMinute > 0 || l.RefillPerSecond > 0) && l.Burst == 0 ||
		l.TokensPerMinute > 0 && l.TokenBurst == 0 ||
		l.InputTokensPerMinute > 0 && l.InputTokenBurst == 0 ||
		l.OutputTokensPerMinute > 0 && l.OutputTokenBurst == 0
}
