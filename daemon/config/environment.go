package config

import (
	"errors"
	"strings"

	"github.com/headway-go/headway/internal/quotafile"
)

// budgetKeys are the environment's keys for a budget.
var budgetKeys = []string{
	quotafile.EnvCallsPerMinute, quotafile.EnvBurst, quotafile.EnvAdapt, quotafile.EnvEventBuffer,
	quotafile.EnvLogLevel, quotafile.EnvScaleMin, quotafile.EnvScaleMax,
}

// environment puts the environment's keys over the budget at the top and that
// of the only provider, which gets one by them if it has none.
func (r *reader) environment(c *Config) {
	var set []string
	for _, key := range budgetKeys {
		if r.getenv(key) != "" {
			set = append(set, key)
		}
	}
	if len(set) == 0 {
		return
	}
	if c.Quota != nil {
		*c.Quota = r.overlaid(*c.Quota)
	}
	if len(c.Providers) == 1 {
		p := &c.Providers[0]
		if p.Quota == nil {
			p.Quota = &quotafile.Settings{}
			p.RefuseUnknown = false
		}
		*p.Quota = r.overlaid(*p.Quota)
		p.complete()
	} else if c.Quota == nil {
		r.warnings = append(r.warnings, "environment: "+strings.Join(set, ", ")+
			": not used, since there are several providers and no quota at the top of "+r.file)
	}
}

// overlaid is a budget with the environment's keys over it.
func (r *reader) overlaid(s quotafile.Settings) quotafile.Settings {
	next, err := s.WithEnv(r.getenv)
	if err == nil {
		return next
	}
	errs := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		errs = several.Unwrap()
	}
	for _, err := range errs {
		p, ok := errors.AsType[*quotafile.Problem](err)
		if !ok {
			continue // how many more there are
		}
		p.File = "environment"
		if said := (&Problem{p.File, 0, 0, p.FieldError.Field, p.FieldError.Value, p.FieldError.Bound}).Error(); !r.said(said) {
			r.take([]*quotafile.Problem{p})
		}
	}
	return s
}

// said reports whether a problem is known already.
func (r *reader) said(text string) bool {
	for _, p := range r.problems {
		if p.Error() == text {
			return true
		}
	}
	return false
}
