// Package config reads the one YAML file of "headway serve": what is listened
// on, which providers are proxied with whose key and under which budgets, and
// who may call. It answers what the owner wrote down and, if that makes no
// sense, where: file, line, column, field, value and bound, all of it at once.
//
//	listen: 127.0.0.1:8700
//	providers:
//	  openai:
//	    api: openai
//	    key: ${OPENAI_API_KEY}
//	    quota: {global: {calls_per_minute: 60, tokens_per_minute: 20000}}
//
// Secrets never stand in the file: they are ${NAME} or ${file:PATH}, and
// print as that. A budget has the keys of [quota.Config] in lower case with
// underscores; two switches are said positively, adaptive_scaling and forecast, both
// true by default. What the environment says of a budget goes over the one at the
// top and that of the only provider.
//
// The package keeps no state and reads no clock; of files it reads those that
// secrets are in. Its functions are safe for concurrent use.
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
	"github.com/headway-go/headway/internal/configfile"
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
)

// OtherModels is the model that stands for all that a budget does not list, with
// unknown_models: allow. A budget may list it, to limit them together.
const OtherModels = "other"

// Config is everything that a file says, checked, with its defaults.
type Config struct {
	// Listen is HOST:PORT. Default [DefaultListen]. Another host than a loopback
	// one demands keys and, unless Insecure, TLS.
	Listen string
	// TLS serves HTTPS; nil is HTTP.
	TLS *TLS
	// Insecure is the owner's word that others may reach the daemon without TLS.
	Insecure bool
	// State is the folder that holds the durable state. Default [DefaultState].
	State string
	// Store is the URL of a PostgreSQL database that holds the state of collections;
	// without one a file in State does.
	Store Secret
	// Fleet is the address of the server of a fleet, as fleet.Open takes it: what is
	// proxied and collected shares its pace with all members there. "none" shares it with
	// nobody; without one it is shared with processes of this machine, by a socket in State.
	Fleet Secret
	// Drain bounds how long those under way are waited for at the end, 100 ms to
	// 1 h. Default [DefaultDrain].
	Drain time.Duration
	// MaxConnections bounds the clients' connections, 1 to 1,000,000. Default
	// [DefaultMaxConnections].
	MaxConnections int
	// Keys are for calls, AdminKeys for changes at run time. Without any of
	// Keys everybody who can reach the daemon may call.
	Keys, AdminKeys []Key
	// Providers are what is proxied, in the order of the file.
	Providers []Provider
	// Quota is the budget of calls that are made elsewhere, for /v1/quota; nil
	// without one.
	Quota *Quota
	// Collections are the connections that the daemon collects by itself; nil
	// collects nothing.
	Collections *Collections
	// Hosts are names by which clients may call the daemon beside loopback ones.
	// They count only while Open: then a request under another name is refused,
	// since it may come from a web page that had its name moved here.
	Hosts []string
	// Clients is how slow clients may be.
	Clients Clients
	// CORS lets pages of other origins call the daemon; nil lets none.
	CORS *CORS
	// NoConsole serves no pages under /console/.
	NoConsole bool
	// Telemetry sends traces and metrics to a collector; nil sends nothing.
	Telemetry *Telemetry
	// Log says what is logged, and how.
	Log Log
	// Warnings are remarks of one line each. They are not errors.
	Warnings []string
}

// Clients bounds how slow clients may be, so that they cannot hold connections for
// nothing; zero fields take the defaults. There is no bound on a whole request or
// answer of one that moves.
type Clients struct {
	// BodyStall is how long a request's body may send nothing, 1 s to 24 h. Default 30 s.
	BodyStall time.Duration
	// BodyRate is how many bytes a second a body brings at least, on average once it took
	// BodyStall. Default 1024.
	BodyRate int64
	// AnswerStall is how long a client may take nothing of its answer, 1 s to 24 h.
	// Default 1 min.
	AnswerStall time.Duration
}

// CORS is which web pages may call the daemon from their readers' browsers. What
// they may do there, their keys say.
type CORS struct {
	// Origins are as browsers name them, such as https://app.example, or "*" for
	// all, which demands keys.
	Origins []string
	// MaxAge is how long a browser may remember the answer, 0 to 24 h. Default 10 min.
	MaxAge time.Duration
}

// TLS names the files of the certificate and its key, in PEM.
type TLS struct{ Cert, Key string }

// Telemetry is where traces and metrics go by OTLP over HTTP.
type Telemetry struct {
	// Endpoint is the collector's base URL.
	Endpoint string
	// Headers go with each export.
	Headers map[string]Secret
	// Interval is the time between two exports of metrics, 1 s to 1 h. Default
	// 30 s.
	Interval time.Duration
	// Sample is the share of traces that is sent, 0 to 1. Default 1.
	Sample float64
}

// Collections are connections on their schedules.
type Collections struct {
	// Dir is the folder of the connection files, *.yaml and *.yml.
	Dir string
	// Schedule is when connections run whose file says none: a cron expression in
	// local time, or @every 15m. Default "@every 15m".
	Schedule string
	// Running bounds how many are collected at once, 1 to 10,000. Default 32.
	Running int
}

// Log is the log of the daemon.
type Log struct {
	// Level is from which level on. Default [slog.LevelInfo].
	Level slog.Level
	// JSON writes JSON lines instead of text.
	JSON bool
	// Access is the file that a line for each proxied call is added to, or stdout or
	// stderr. Default: none.
	Access string
}

// Provider is one upstream connection.
type Provider struct {
	// Name is what its paths begin with: /{name}/... It is 1 to 64 of a-z, 0-9
	// and -.
	Name string
	// Description says where it is and what its API is like.
	Description provider.Description
	// Key is the provider's key; without one (PassThrough) that of the client is
	// passed on.
	Key         Secret
	PassThrough bool
	// Keys are several of the provider's keys, 2 to 100, instead of Key: each is paced
	// apart.
	Keys []ProviderKey
	// CallTimeout bounds an attempt as a whole, streams included, 1 s to 24 h.
	// Default [DefaultCallTimeout]. Permits of the budget live at least as long.
	CallTimeout time.Duration
	// ResponseHeaderTimeout, IdleTimeout, DialTimeout, TLSTimeout and BodyTimeout are
	// as in [egress.Provider], 1 ms to 24 h; 0 is its default.
	ResponseHeaderTimeout, IdleTimeout, DialTimeout, TLSTimeout, BodyTimeout time.Duration
	// TLS is how the upstream is trusted, and what it is shown; nil is as usual.
	TLS *UpstreamTLS
	// InjectUsage says whether streams are asked to tell their usage. Default auto.
	InjectUsage egress.InjectUsage
	// MaxWait bounds the wait for a budget or a turn, 1 ms to 1 h. Default
	// [DefaultMaxWait].
	MaxWait time.Duration
	// MaxBody bounds a request's body, 1 KiB to 1 GiB. Default [DefaultMaxBody].
	// MaxUpload bounds one that costs no tokens, such as a file, 1 KiB to 64 GiB.
	// Default: MaxBody where that is set, else 512 MiB.
	MaxBody, MaxUpload int64
	// Retries is how often the proxy itself retries, 0 to 10. Default 0: clients
	// retry by themselves.
	Retries int
	// Circuit is when the provider, or a part of it, is left alone because it keeps
	// failing.
	Circuit egress.Circuit
	// Profile is what the provider publishes of its limits; nil means nothing is used of
	// it. Default for api http: the one that names the upstream's host.
	Profile *provider.Profile
	// Pacing is the feedback pacing; nil is off.
	Pacing *Pacing
	// Fleet is what the provider does in the fleet. Default [FleetShare].
	Fleet FleetMode
	// Quota is the budget; nil means no budget.
	Quota *Quota
	// RefuseUnknown refuses models that the budget does not list; otherwise they
	// count as [OtherModels]. Default: where models other than that are listed.
	RefuseUnknown bool
}

// FleetMode is what a paced provider does in a fleet.
type FleetMode string

// The modes of a fleet.
const (
	// FleetShare goes on at its share of the last known rate while the server is away.
	FleetShare FleetMode = "share"
	// FleetWait sends nothing while the server is away.
	FleetWait FleetMode = "wait"
	// FleetNone is no member of a fleet.
	FleetNone FleetMode = "none"
)

// ProviderKey is one of several keys of a provider.
type ProviderKey struct {
	// Name says which one it is in logs, events and status. Default: its place in the
	// list, from 1.
	Name string
	Key  Secret
}

// UpstreamTLS is what replaces the usual in TLS connections to an upstream.
type UpstreamTLS struct {
	// CA is a PEM file of the authorities to trust instead of the system's.
	CA string
	// Cert and Key are PEM files of what the upstream is shown.
	Cert, Key string
	// Made is what the files hold.
	Made *tls.Config
}

// Pacing is how a provider's connection finds its rate.
type Pacing struct {
	// Conservative paces attempts from the first one on. Default: nothing is held back
	// but by the ceiling until the provider first refuses an attempt or advertises a
	// limit.
	Conservative bool
	// Ceiling is the shortest interval between two attempts, 1 µs to 24 h. Default: 0,
	// none; with Conservative [DefaultCeiling].
	Ceiling time.Duration
	// Initial is the interval before the first response of one that is conservative, and
	// the slowest rate that is restored. Default: the ceiling; without Conservative 1 s.
	Initial time.Duration
	// Law is the control law. Default control.DefaultLaw.
	Law string
	// MaxInFlight bounds the attempts under way, 0 to 100,000. Default 0: none.
	MaxInFlight int
}

// Open reports whether everybody who can reach the daemon may call.
func (c *Config) Open() bool { return len(c.Keys) == 0 }

// Check reports entries of a valid configuration that have no effect: keys that have
// expired by now, and keys for providers that the file does not have. The error is an
// [*Error]; file stands for the file.
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

// Names for parts of the configuration that other packages check, and for what is
// wrong with it.
type (
	// Key is one Headway key.
	Key = egress.Key
	// Quota is a budget, complete and checked.
	Quota = quotafile.Settings
	// Secret is a credential. It prints as it was written in the file, such as
	// ${OPENAI_API_KEY}; only its Reveal gives what it stands for. The zero value means
	// none.
	Secret = configfile.Secret
	// Problem is one thing that is wrong, and where.
	Problem = configfile.Problem
	// Error is everything that is wrong with a file, in its order.
	Error = configfile.Error
)
