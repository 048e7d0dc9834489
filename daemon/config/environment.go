package config

import (
	"strings"

	"github.com/headway-go/headway/internal/quotafile"
)

// budgetKeys are the environment's keys for a budget.
var budgetKeys = []string{
	quotafile.EnvCallsPerMinute, quotafile.EnvBurst, quotafile.EnvAdapt, quotafile.EnvEventBuffer,
	quotafile.EnvLogLevel, quotafile.EnvScaleMin, quotafile.EnvScaleMax,
}

// environment puts the environment's keys over the budget at the top and that
// of the only provider, which gets one by them if it has none. file stands for the
// file in warnings.
func (c *Config) environment(file string, getenv func(string) string) error {
	var set []string
	for _, key := range budgetKeys {
		if getenv(key) != "" {
			set = append(set, key)
		}
	}
	if len(set) == 0 {
		return nil
	}
	if c.Quota != nil {
		next, err := c.Quota.WithEnv(getenv)
		if err != nil {
			return err
		}
		*c.Quota = next
	}
	if len(c.Providers) == 1 {
		p := &c.Providers[0]
		if p.Quota == nil {
			p.Quota = &quotafile.Settings{}
			p.RefuseUnknown = false
		}
		next, err := p.Quota.WithEnv(getenv)
		if err != nil {
			return err
		}
		*p.Quota = next
		p.complete()
	} else if c.Quota == nil {
		c.Warnings = append(c.Warnings, "environment: "+strings.Join(set, ", ")+
			": not used, since there are several providers and no quota at the top of "+file)
	}
	return nil
}
