// Package config reads the YAML file of "headway serve": the address, the providers with their
// keys and budgets, and who may call. Its error reports all faults of the file at once, each
// with file, line, column, field, value and bound.
//
//	listen: 127.0.0.1:8700
//	providers:
//	  openai:
//	    api: openai
//	    key: ${OPENAI_API_KEY}
//	    quota: {global: {calls_per_minute: 60, tokens_per_minute: 20000}}
//
// The file holds references to secrets, ${NAME} or ${file:PATH}, and a secret prints as its
// reference. A budget has the keys of [quota.Config] in lower case with underscores. Its
// switches adaptive_scaling and forecast are true by default. Budget settings in the
// environment override the budget at the top level, and that of the provider if there is only
// one.
//
// The package keeps no state and reads no clock. It reads the files that hold secrets. Its
// functions are safe for concurrent use.
//
// Stability: settling.
package config

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/forward"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/quotafile"
)

// Defaults of [Config].
const (
	DefaultListen         = "127.0.0.1:8700"
	DefaultState          = ".headway"
	DefaultDrain          = 30 * time.Second
	DefaultMaxConnections = 4096
	DefaultCeiling        = 10 * time.Millisecond
	DefaultCallTimeout    = 30 * time.Minute
	DefaultMaxWait        = 15 * time.Second
	DefaultMaxBody        = 32 << 20
	DefaultSchedule       = "@every 15m"
	DefaultRunning        = 32
	DefaultForward        = forward.DefaultAddress
	DefaultForwardWait    = forward.DefaultWait
)

// OtherModels is the name under which a budget with unknown_models: allow counts the models
// that it does not list. A budget may list this name, to limit them together.
const OtherModels = "other"

// Config is the content of a file, checked and with defaults filled in.
type Config struct {
	// Listen is HOST:PORT. Default [DefaultListen]. A host that is not loopback requires
	// keys and, unless Insecure is set, TLS.
	Listen string
	// TLS configures HTTPS; nil means HTTP.
	TLS *TLS
	// Insecure allows other machines to reach the daemon without TLS.
	Insecure bool
	// State is the folder that holds the durable state. Default [DefaultState].
	State string
	// Store is the URL of a PostgreSQL database for the state of collections. Default: a
	// file in State.
	Store Secret
	// Fleet is the address of a fleet server, as fleet.Open takes it. Proxied and collected
	// connections share their pace with its members. Default: a socket in State, for
	// processes of this machine. "none" turns sharing off.
	Fleet Secret
	// Drain bounds how long a stop waits for calls under way, 100 ms to 1 h. Default
	// [DefaultDrain].
	Drain time.Duration
	// MaxConnections bounds the number of client connections, 1 to 1,000,000. Default
	// [DefaultMaxConnections].
	MaxConnections int
	// Keys are required for calls. Without them, every client that can reach the daemon may
	// call. AdminKeys may use the whole API and the console. ViewKeys are the keys of the
	// roles [Viewer] and [Operator], which may use a part of them and make no calls.
	Keys, AdminKeys, ViewKeys []Key
	// Providers are the proxied providers, in the order of the file.
	Providers []Provider
	// Quota is the budget at /v1/quota, for calls that do not go through the proxy; nil
	// without one.
	Quota *Quota
	// Collections are the connections that the daemon collects on a schedule; nil means
	// none.
	Collections *Collections
	// Forward configures the forward proxy; nil means none.
	Forward *Forward
	// Hosts are names by which clients may call the daemon, in addition to loopback names.
	// They matter only while Open: then a request with another Host is refused, since it
	// may come from a web page by DNS rebinding.
	Hosts []string
	// Clients bounds how slow clients may be.
	Clients Clients
	// CORS allows web pages of other origins to call the daemon; nil allows none.
	CORS *CORS
	// NoConsole turns off the pages under /console/.
	NoConsole bool
	// Webhooks are where events are sent.
	Webhooks []Webhook
	// Currency is that of all prices, three capital letters such as USD.
	Currency string
	// Telemetry sends traces and metrics to a collector; nil sends nothing.
	Telemetry *Telemetry
	// Log configures the logs.
	Log Log
	// Warnings are remarks of one line each, which are not errors.
	Warnings []string
}

// Clients bounds how slow clients may be, so that idle ones cannot hold connections. Zero fields
// take the defaults. A whole request or answer may take any time while data moves.
type Clients struct {
	// BodyStall bounds the time without data from a request body, 1 s to 24 h. Default 30 s.
	BodyStall time.Duration
	// BodyRate is the minimum average of a request body in bytes per second, after
	// BodyStall. Default 1024.
	BodyRate int64
	// AnswerStall bounds the time in which a client reads nothing of its answer, 1 s to
	// 24 h. Default 1 min.
	AnswerStall time.Duration
}

// CORS says which web pages may call the daemon from a browser. Their keys say what they may
// do.
type CORS struct {
	// Origins are origins such as https://app.example, or "*" for all, which requires keys.
	Origins []string
	// MaxAge is how long a browser may cache a preflight, 0 to 24 h. Default 10 min.
	MaxAge time.Duration
}

// TLS names the files of the certificate and its key, in PEM.
type TLS struct{ Cert, Key string }

// Telemetry configures the export of traces and metrics by OTLP over HTTP.
type Telemetry struct {
	// Endpoint is the collector's base URL.
	Endpoint string
	// Headers are added to each export.
	Headers map[string]Secret
	// Interval is the time between two exports of metrics, 1 s to 1 h. Default
	// 30 s.
	Interval time.Duration
	// Sample is the fraction of traces that is exported, 0 to 1. Default 1.
	Sample float64
}

// Webhook is where events are sent.
type Webhook struct {
	// URL receives requests of POST; redirects are not followed.
	URL string
	// Secret signs the requests, by HMAC-SHA256.
	Secret Secret
	// Types are the types of events that are sent; empty means all.
	Types []string
}

// Forward configures the forward proxy: what "headway run" is for one command, for programs
// that are started elsewhere.
type Forward struct {
	// Listen is HOST:PORT, of this machine alone. Default [DefaultForward].
	Listen string
	// Rules are the governed hosts, with their profiles.
	Rules []ForwardRule
	// All governs every host; Rules then only name profiles.
	All bool
	// PassThrough leaves connections of governed hosts as they are if they are not HTTP, or if
	// the program refuses the certificate.
	PassThrough bool
	// Resend are methods that may be sent again when they are refused, in addition to the
	// idempotent ones.
	Resend []string
	// MaxWait bounds how long a refused request is held, 1 s to 24 h. Default
	// [DefaultForwardWait].
	MaxWait time.Duration
	// MaxOutage bounds that while the provider answers 503 and names no wait, 1 s to 24 h.
	// Default 1 min.
	MaxOutage time.Duration
	// Ceiling is the minimum interval between two attempts of a credential, 1 ms to 24 h.
	// Default: none.
	Ceiling time.Duration
	// EnvFile is the file into which the variables for programs are written. Default:
	// proxy.env in the state folder.
	EnvFile string
	// Authority is the folder of the certificate authority. Default: the user's own state
	// folder, as for "headway run".
	Authority string
}

// Collections configures the connections that the daemon collects.
type Collections struct {
	// Dir is the folder of the connection files, *.yaml and *.yml.
	Dir string
	// Schedule is the schedule of connections whose file has none: a cron expression in
	// local time, or @every 15m. Default "@every 15m".
	Schedule string
	// Running bounds the number of concurrent runs, 1 to 10,000. Default 32.
	Running int
}

// Log configures the logs of the daemon.
type Log struct {
	// Level is the minimum level. Default [slog.LevelInfo].
	Level slog.Level
	// JSON writes JSON lines instead of text.
	JSON bool
	// Access is the file of the access log, which gets a line for each proxied call, or
	// stdout or stderr. Default: no access log.
	Access string
}

// Provider configures one provider.
type Provider struct {
	// Name is the first segment of its paths, /{name}/... It has 1 to 64 characters of a-z,
	// 0-9 and -.
	Name string
	// Description is its API and address.
	Description provider.Description
	// Key is the provider's key. With PassThrough there is none, and the client's own
	// credential is passed on.
	Key         Secret
	PassThrough bool
	// Keys are 2 to 100 keys of the provider, instead of Key. Each has its own pacing.
	Keys []ProviderKey
	// CallTimeout bounds a whole attempt, streams included, 1 s to 24 h. Default
	// [DefaultCallTimeout]. Permits of the budget last at least as long.
	CallTimeout time.Duration
	// ResponseHeaderTimeout, IdleTimeout, DialTimeout, TLSTimeout and BodyTimeout are
	// as in [egress.Provider], 1 ms to 24 h. 0 means the default there.
	ResponseHeaderTimeout, IdleTimeout, DialTimeout, TLSTimeout, BodyTimeout time.Duration
	// TLS configures connections to the upstream; nil means the system's certificate
	// authorities and no client certificate.
	TLS *UpstreamTLS
	// InjectUsage says whether streams are asked to report their usage. Default auto.
	InjectUsage egress.InjectUsage
	// MaxWait bounds the wait for budget and pacing, 1 ms to 1 h. Default
	// [DefaultMaxWait].
	MaxWait time.Duration
	// MaxBody bounds a request's body, 1 KiB to 1 GiB. Default [DefaultMaxBody].
	// MaxUpload bounds a body that costs no tokens, such as a file, 1 KiB to 64 GiB.
	// Default: MaxBody if that is set, otherwise 512 MiB.
	MaxBody, MaxUpload int64
	// Retries is how often the proxy itself retries, 0 to 10. Default 0, since clients
	// retry themselves.
	Retries int
	// Circuit configures the circuit breakers.
	Circuit egress.Circuit
	// Profile describes the limits that the provider publishes; nil means none. Default for
	// api http: the profile that lists the upstream's host.
	Profile *provider.Profile
	// Pacing configures pacing; nil means off.
	Pacing *Pacing
	// Fleet is the provider's mode in a fleet. Default [FleetShare].
	Fleet FleetMode
	// Prices are what the tokens of models cost, for usage reports; without them the cost is
	// unknown.
	Prices Prices
	// Quota is the budget; nil means no budget.
	Quota *Quota
	// RefuseUnknown refuses models that the budget does not list; otherwise they count as
	// [OtherModels]. Default: true if the budget lists models other than that one.
	RefuseUnknown bool
}

// FleetMode says how a paced provider takes part in a fleet.
type FleetMode string

// The fleet modes.
const (
	// FleetShare continues at its share of the last known rate while the server is
	// unreachable.
	FleetShare FleetMode = "share"
	// FleetWait sends nothing while the server is unreachable.
	FleetWait FleetMode = "wait"
	// FleetNone does not take part.
	FleetNone FleetMode = "none"
)

// ProviderKey is one of several keys of a provider.
type ProviderKey struct {
	// Name identifies the key in logs, events and status. Default: its position in the
	// list, from 1.
	Name string
	Key  Secret
}

// UpstreamTLS configures TLS connections to an upstream.
type UpstreamTLS struct {
	// CA is a PEM file of certificate authorities to trust instead of the system's.
	CA string
	// Cert and Key are PEM files of the client certificate and its key.
	Cert, Key string
	// Made is the configuration made from the files.
	Made *tls.Config
}

// Pacing configures the pacing of a provider.
type Pacing struct {
	// Conservative paces attempts from the first one on. Default: only the ceiling holds
	// attempts back, until the provider first refuses one or advertises a limit.
	Conservative bool
	// Ceiling is the minimum interval between two attempts, 1 µs to 24 h. Default: 0,
	// which means none; with Conservative [DefaultCeiling].
	Ceiling time.Duration
	// Initial is the interval before the first response, with Conservative, and the slowest
	// rate that is restored. Default: the ceiling; without Conservative 1 s.
	Initial time.Duration
	// Law is the control law. Default control.DefaultLaw.
	Law string
	// MaxInFlight bounds the attempts under way, 0 to 100,000. Default 0: no bound.
	MaxInFlight int
}

// The roles of keys. A Viewer reads, an Operator also acts on gaps and overrides limits, an
// Admin may do everything.
const (
	Viewer   = keys.Viewer
	Operator = keys.Operator
	Admin    = keys.Admin
)

// Open reports whether every client that can reach the daemon may call.
func (c *Config) Open() bool { return len(c.Keys) == 0 }

// Check reports entries of a valid configuration that have no effect: keys that have expired,
// and keys for providers that are not in the file. The error is an [*Error] that names the file
// as given.
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
	look("keys of a role", c.ViewKeys)
	return f.Err()
}

// Aliases for types of other packages that are part of the configuration or its errors.
type (
	// Key is one Headway key.
	Key = egress.Key
	// Role is what a key may do with the API and the console.
	Role = egress.Role
	// Prices are prices by model, each a Price.
	Prices = calls.Prices
	// ForwardRule names a host of [Forward], or several by a pattern, and the profile of its
	// provider.
	ForwardRule = forward.Rule
	// Price is what the tokens of a model cost, for each million of them.
	Price = calls.Price
	// Quota is a budget, complete and checked.
	Quota = quotafile.Settings
	// Secret is a credential. It prints as written in the file, such as ${OPENAI_API_KEY};
	// its method Reveal returns the value. The zero value means none.
	Secret = configfile.Secret
	// Problem is one fault and its position in the file.
	Problem = configfile.Problem
	// Error has all faults of a file, in the order of the file.
	Error = configfile.Error
)
