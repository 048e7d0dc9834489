package config

import (
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/keys"
)

// Check gives what in a configuration that can be used is of no use: keys that
// have expired at the instant now, and those for providers that there are none of.
// The error is an [*Error]; file stands for the file.
func (c *Config) Check(file string, now time.Time) error {
	f := configfile.NewFile(file, configfile.Options{})
	fail := func(field, value, bound string) {
		f.Fail(configfile.Place{}, field, "is %s; want %s", value, bound)
	}
	look := func(list string, all []keys.Key) {
		for i, k := range all {
			at := fmt.Sprintf("%s[%d]", list, i)
			if k.Expired(now) {
				fail(at+".expires", k.Expires.UTC().Format(time.RFC3339)+", which is past: the key "+configfile.Quote(k.ID)+" lets nobody in", "later, or the key deleted")
			}
			for j, glob := range k.Providers {
				known := slices.ContainsFunc(c.Providers, func(p Provider) bool {
					ok, err := path.Match(glob, p.Name)
					return ok && err == nil
				})
				if !known {
					fail(fmt.Sprintf("%s.providers[%d]", at, j), configfile.Quote(glob)+", which is not a provider here", "the name of a provider of this file, or a pattern of one")
				}
			}
		}
	}
	look("keys", c.Keys)
	look("admin_keys", c.AdminKeys)
	return f.Err()
}
