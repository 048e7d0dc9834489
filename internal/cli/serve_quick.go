package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/egress/provider"
)

// commandLine stands for the file in errors.
const commandLine = "command line"

// quick is a configuration by flags, for the first five minutes.
type quick struct {
	upstreams     []string
	rpm, tpm, rpd int64
}

// yaml is the file that the flags stand for, so that one reader checks both.
func (q *quick) yaml() ([]byte, error) {
	providers := yaml.MapSlice{}
	for _, text := range q.upstreams {
		before, url, _ := strings.Cut(text, "=")
		name, api, given := strings.Cut(before, ":")
		if name == "" || given && api == "" || strings.HasSuffix(text, "=") {
			return nil, fmt.Errorf("--upstream is %q, must be NAME, NAME=URL or NAME:API=URL", clip(text, 80))
		}
		if !given {
			api = string(provider.HTTP)
			if slices.Contains(provider.APIs(), provider.API(name)) {
				api = name
			}
		}
		if slices.ContainsFunc(providers, func(i yaml.MapItem) bool { return i.Key == name }) {
			return nil, fmt.Errorf("--upstream names %q twice", clip(name, 80))
		}
		p := yaml.MapSlice{{Key: "api", Value: api}, {Key: "pass_through", Value: true}}
		if url != "" {
			p = append(p, yaml.MapItem{Key: "upstream", Value: url})
		}
		if global := q.limits(); len(global) > 0 {
			p = append(p, yaml.MapItem{Key: "quota", Value: yaml.MapSlice{{Key: "global", Value: global}}})
		}
		providers = append(providers, yaml.MapItem{Key: name, Value: p})
	}
	return yaml.Marshal(yaml.MapSlice{{Key: "providers", Value: providers}})
}

func (q *quick) limits() (limits yaml.MapSlice) {
	for _, l := range []struct {
		key string
		n   int64
	}{{"calls_per_minute", q.rpm}, {"tokens_per_minute", q.tpm}, {"max_daily_calls", q.rpd}} {
		if l.n != 0 {
			limits = append(limits, yaml.MapItem{Key: l.key, Value: l.n})
		}
	}
	return limits
}

// placeless takes the lines and columns out of what is wrong with a file that
// the flags stand for: nobody can look there.
func placeless(err error) error {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var errs []error
	for _, err := range all.Unwrap() {
		if p, ok := errors.AsType[*config.Problem](err); ok && p.File == commandLine {
			q := *p
			q.Line, q.Column = 0, 0
			err = &q
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
