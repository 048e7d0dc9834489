package rest

import (
	"cmp"
	"net/url"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/retry"
)

// Names for what reads a connection file.
type (
	// Env looks up an environment variable; os.LookupEnv is one. A nil Env has
	// no variables.
	Env = configfile.Env
	// Value is a text of the file that may be or hold a secret. It prints, logs
	// and marshals as it was written in the file ("${CHAT_TOKEN}"); only its Reveal gives
	// what it stands for. The zero value is an absent text.
	Value = configfile.Secret
	// Profile is what a provider publishes of its limits. A [transport.Transport] takes it;
	// package egress/provider finds it by its name.
	//
	// [transport.Transport]: https://pkg.go.dev/github.com/headway-go/headway/transport#Transport
	Profile = profile.Profile
	// Problem is one thing that is wrong with a connection file.
	Problem = configfile.Problem
	// ConfigError is everything that is wrong with a connection file, in the order
	// of the file.
	ConfigError = configfile.Error

	node = configfile.Node
)

// Config is a connection as its file describes it: complete and checked. It
// comes from [Load] or [Parse] and is not changed afterwards, but for the
// numbers in Provider that an owner may override (flag, environment) before a
// run. Its secrets print as references.
type Config struct {
	// Name is the connection's name.
	Name     string
	Provider Provider
	// Streams are in the order in which they are collected; at least one.
	Streams []Stream
	// Errors are the rules that [Config.Classify] applies, the first match first.
	Errors []ErrorRule
	Run    Run
	Sink   Sink

	// file and names say where each stream is named.
	file  string
	names []naming
	// warnings are what is not an error, one line each.
	warnings []string
}

// Provider is the API, the credential and how fast it may be called.
type Provider struct {
	// BaseURL is where every request goes, without query, fragment and login.
	BaseURL *url.URL
	Auth    Auth
	// Keys are several credentials, instead of Auth; nil for one.
	Keys []Key
	// Sticky has all pages of a list asked for by one of Keys.
	Sticky bool
	// Ceiling is the shortest time between two requests. 0: not set, so that
	// control.DefaultCeiling holds.
	Ceiling time.Duration
	// Fleet is the address of the server of a fleet that shares the pace, or "none"; the
	// zero value leaves that to who runs the connection.
	Fleet configfile.Secret
	// Timeout bounds one attempt. Default 30 s.
	Timeout time.Duration
	// MaxBody is the largest response in bytes. Default 64 MiB.
	MaxBody int64
	// Headers go with every request; canonical names.
	Headers map[string]Value
	Pacing  Pacing
	Retry   Retry
	Circuit Circuit
	// Pools are requests that share limits at the provider apart from the others, the
	// first that fits a request.
	Pools []Pool
	// PoolBy is what the pool of a request is where none of Pools fits.
	PoolBy PoolBy
	// Profile is what the provider publishes of its limits; nil when none is named.
	Profile *Profile
}

// Pool is a set of requests. One belongs to it when all that is not empty fits.
type Pool struct {
	Name string
	// Path is a pattern of what the file has as the request's path: * is any text without
	// a slash, ** any number of parts.
	Path string
	// Query and Headers are patterns of parameters and headers as the file has them; * is
	// any text.
	Query, Headers map[string]string
}

// PoolBy is how requests that no pool names find theirs.
type PoolBy string

// How pools are found.
const (
	// OnePool has all of them share the account's limits.
	OnePool PoolBy = ""
	// PoolByStream has a pool for each stream, and for the details of one.
	PoolByStream PoolBy = "stream"
)

// Defaults of [Provider] and [Pacing].
const (
	DefaultTimeout       = 30 * time.Second
	DefaultMaxBody       = 64 << 20
	DefaultMaxRetryAfter = 5 * time.Minute
)

// AuthKind is how the credential is sent.
type AuthKind string

// The kinds of credential.
const (
	NoAuth     AuthKind = "none"
	BearerAuth AuthKind = "bearer"
	HeaderAuth AuthKind = "header"
	QueryAuth  AuthKind = "query"
	OAuth2Auth AuthKind = "oauth2"
)

// Auth is the credential.
type Auth struct {
	Kind AuthKind
	// Name is the header's or query parameter's name.
	Name string
	// Secret is the token or key for bearer, header and query.
	Secret Value
	// OAuth2 is set for that kind only.
	OAuth2 *OAuth2
}

// Key is one of several credentials.
type Key struct {
	// Name is what the owner calls it; by default its position, from 1.
	Name string
	Auth Auth
}

// OAuth2 says how an access token is got and renewed.
type OAuth2 struct {
	TokenURL *url.URL
	// Grant is client_credentials or refresh_token.
	Grant        string
	ClientID     Value
	ClientSecret Value
	RefreshToken Value
	// TokenFile keeps the refresh token that the provider rotates. See [KeepTokens].
	TokenFile string
	Scopes    []string
}

// Pacing is how the rate follows the provider. Zero fields take the defaults
// of package control.
type Pacing struct {
	// Initial is the interval before anything is known, at least the ceiling.
	Initial time.Duration
	// Law is the control law by name; empty is control.DefaultLaw.
	Law string
	// Step is what a success takes off the interval.
	Step time.Duration
	// Factor is what a throttle multiplies the rate by, between 0 and 1.
	Factor float64
	// Tolerance is the burst tolerance: how much idle time is credited. 0 is the
	// default, twice the initial interval; negative means none.
	Tolerance time.Duration
	// JitterMin and JitterMax bound the noise under each wait. JitterMax 0 is the
	// default, the shorter of 150 ms and the ceiling; negative means none.
	JitterMin, JitterMax time.Duration
	// MaxRetryAfter is the longest Retry-After that is waited for in place.
	// Default 5 min.
	MaxRetryAfter time.Duration
}

// Retry is how one request is tried again. Zero fields take the defaults of
// package retry.
type Retry struct {
	Base, Cap time.Duration
	// Attempts counts the first one too.
	Attempts int
	// Budget bounds the retries of a whole run.
	Budget retry.Limits
}

// Stream is one list of records.
type Stream struct {
	Name string
	List Request
	// Records gives a page's records, Key what identifies one.
	Records, Key *Expr
	// Fingerprint gives what changes when a record does; nil is the whole record.
	Fingerprint *Expr
	Paginate    Paginate
	// BadRecords is what becomes of a record that the expressions do not fit.
	BadRecords BadRecords
	// Incremental is nil when only the whole list can be asked for.
	Incremental *Incremental
	// Detail is nil when the list has all there is.
	Detail *Detail
}

// BadRecords is what becomes of a record without a usable key, with the key of
// another record of its page, or whose other expressions fail.
type BadRecords string

// What becomes of bad records. A first page on which there are no others is
// always an error: then the expression is wrong, and not the records.
const (
	// QuarantineBadRecords makes a quarantined gap of each, and the rest goes on.
	QuarantineBadRecords BadRecords = "quarantine"
	// FailBadRecords ends the run.
	FailBadRecords BadRecords = "fail"
)

// Request is the shape of a GET request.
type Request struct {
	// Path is below the base URL, escaped.
	Path    string
	Query   map[string]Value
	Headers map[string]Value
	// Pool is what the request shares limits with; empty is the account. It follows
	// from [Provider].Pools and PoolBy.
	Pool string
}

// PageKind is how a list goes on after a page.
type PageKind string

// The kinds of paging.
const (
	SinglePage    PageKind = "none"
	CursorPaging  PageKind = "cursor"
	LinkPaging    PageKind = "link"
	NextURLPaging PageKind = "next_url"
	NumberPaging  PageKind = "page"
	OffsetPaging  PageKind = "offset"
)

// Paginate is how to get to the next page.
type Paginate struct {
	Kind PageKind
	// Next gives the next cursor or URL of a body (cursor, next_url).
	Next *Expr
	// Param is the query parameter of the cursor, page number or offset.
	Param string
	// Start is the first page's number.
	Start int64
	// SizeParam and Size ask for pages of a size (page, offset); empty and 0 is
	// the provider's own.
	SizeParam string
	Size      int64
}

// Incremental is how to ask for what changed.
type Incremental struct {
	// Cursor gives a record's watermark.
	Cursor *Expr
	// Param carries the last walk's watermark; the first walk does without.
	Param string
	// Ascending and Inclusive are what is known of the list. See [connector.Stream].
	Ascending, Inclusive bool
	// Lookback is how late records may come. See [connector.Stream].
	Lookback time.Duration
}

// Detail is a request for each record that is new or changed.
type Detail struct {
	// Stream is where its records go.
	Stream string
	// Request holds {key} in its path or query.
	Request      Request
	Records, Key *Expr
	// Paginate is how a detail of several pages goes on.
	Paginate Paginate
}

// Run is the owner's bounds on one run.
type Run struct {
	// MaxRequests is the most attempts; 0 means no bound.
	MaxRequests int64
	// MaxWallClock is the longest time; 0 means no bound.
	MaxWallClock time.Duration
	// CatchupPages is the most pages of each stream's past in one run; 0 means no bound.
	CatchupPages int64
	// Concurrency is how many details are asked for at once, at most
	// [MaxConcurrency]. Default 0: the collector finds it.
	Concurrency int
	// Schedule is when a process that stays runs it, as a cron expression in
	// local time; empty leaves that to the process.
	Schedule string
	// CatchupSchedule is when such a process collects the past, apart from what
	// changes; empty is with it.
	CatchupSchedule string
}

// Sink is where records go: exactly one is set.
type Sink struct {
	JSONL    *JSONL
	SQLite   *SQLite
	Parquet  *Parquet
	Postgres *Postgres
	Singer   *Singer
	Airbyte  *Airbyte
}

// JSONL is one file of JSON lines a stream.
type JSONL struct {
	// Dir is relative to the working directory. Default ./out.
	Dir string
}

// SQLite is one table a stream.
type SQLite struct {
	// File is the database of records, relative to the working directory; the
	// state stays where it is. Empty: the one that holds the state.
	File string
}

// Parquet is a folder of Parquet files.
type Parquet struct {
	// Dir is relative to the working directory. Default ./out.
	Dir string
}

// Postgres is one table a stream in a PostgreSQL database.
type Postgres struct {
	// URL is the database of records. Not given: the one that holds the state.
	URL Value
	// Schema is where the tables are. Empty: where the URL's search_path says.
	Schema string
}

// Singer is standard output, as a Singer tap writes it.
type Singer struct{}

// Airbyte is standard output, as an Airbyte source's read writes it.
type Airbyte struct{}

// DefaultDir is where records go when the file names no sink, or no folder.
const DefaultDir = "./out"

// String says where records go: "jsonl in ./out".
func (s Sink) String() string {
	switch {
	case s.JSONL != nil:
		return "jsonl in " + s.JSONL.Dir
	case s.SQLite != nil && s.SQLite.File == "":
		return "sqlite in the state file"
	case s.SQLite != nil:
		return "sqlite in " + s.SQLite.File
	case s.Parquet != nil:
		return "parquet in " + s.Parquet.Dir
	case s.Postgres != nil:
		text := "postgres in " + cmp.Or(s.Postgres.URL.String(), "the state's database")
		if s.Postgres.Schema != "" {
			text += ", schema " + s.Postgres.Schema
		}
		return text
	case s.Singer != nil:
		return "singer on standard output"
	case s.Airbyte != nil:
		return "airbyte on standard output"
	}
	return ""
}

// options are how a connection file is read.
var options = configfile.Options{
	What: "connection", Want: "connection, provider and streams", MaxBytes: 128 << 10,
	Fill: true, Secret: secretField, Private: private,
}

// Load reads a connection file. Its error is a [*ConfigError] with every
// problem that the file has, or says why the file cannot be read.
func Load(path string, env Env) (*Config, error) {
	src, err := configfile.Load(path, options)
	if err != nil {
		return nil, err
	}
	return Parse(path, src, env)
}

// Parse is [Load] for a file that was read already; name stands in errors. The
// files that secrets are in are read all the same.
func Parse(name string, src []byte, env Env) (*Config, error) {
	o := options
	o.Env = env
	root, file := configfile.Parse(name, src, o)
	if root == nil {
		return nil, file.Err()
	}
	loadSchema().validate(root, file)
	b := builder{File: file, names: &[]naming{}, env: env}
	c := b.config(root)
	c.file, c.names, c.warnings = name, *b.names, file.Warnings()
	if err := file.Err(); err != nil {
		return nil, err
	}
	return c, nil
}
