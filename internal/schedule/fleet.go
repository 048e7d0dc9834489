package schedule

import (
	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/fleet"
)

// FleetOf is a connection's way into a fleet, by key, as collect.Options has it; nil
// without a fleet. A credential is the same where the provider's host and the secret are.
func FleetOf(f *fleet.Fleet, c *rest.Config) func(key string) headway.Fleet {
	if f == nil {
		return nil
	}
	return func(key string) headway.Fleet {
		auth := c.Provider.Auth
		for _, k := range c.Provider.Keys {
			if k.Name == key {
				auth = k.Auth
			}
		}
		return f.Member(c.Provider.BaseURL.Host, secretOf(auth))
	}
}

// secretOf is what tells a credential from others. Of one that the provider replaces from
// time to time it is what stays.
func secretOf(a rest.Auth) string {
	if o := a.OAuth2; o != nil {
		return o.TokenURL.String() + "\n" + o.ClientID.Reveal() + "\n" + o.ClientSecret.Reveal() + "\n" + o.RefreshToken.Reveal() + "\n" + o.TokenFile
	}
	return a.Secret.Reveal()
}
