package rest

import (
	"cmp"
	"net/url"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/retry"
)

// Names for types that read a connection file.
type (
	// Env looks up an environment variable, like os.LookupEnv. A nil Env has no variables.
	Env = configfile.Env
	// Value is a text of the file that may be, or contain, a secret. It prints, logs and
	// marshals as written in the file ("${CHAT_TOKEN}"); only Reveal returns the secret.
	// The zero value is an absent text.
	Value = configfile.Secret
	// Profile has the limits that a provider publishes. A [transport.Transport] uses it;
	// package egress/provider finds profiles by name.
	//
	// [transport.Transport]:
	// https://pkg.go.dev/github.com/headway-go/headway/transport#Transport
	Profile = profile.Profile
	// Problem is one problem in a connection file.
	Problem = configfile.Problem
	// ConfigError lists all problems in a connection file, in the order of the file.
	ConfigError = configfile.Error

	node = configfile.Node
)

// Config is a complete, checked connection. It comes from [Load] or [Parse] and must not be
// changed, except by [Config.Override] before a run. Its secrets print as references.
type Config struct {
	// Name is the connection's name.
	Name     string
	Provider Provider
	// Streams has at least one stream, in the order of collection.
	Streams []Stream
	// Errors are the rules of [Config.Classify]. The first match counts.
	Errors []ErrorRule
	Run    Run
	Sink   Sink

	// file and names record where the file names each stream.
	file  string
	names []naming
	// warnings are findings that are not errors, one line each.
	warnings []string
}

// Provider describes the API, its credential and how fast it may be called.
type Provider struct {
	// BaseURL is the base of all requests. It has no query, fragment or login.
	BaseURL *url.URL
	Auth    Auth
	// Keys are several credentials, used instead of Auth; nil if there is only one.
	Keys []Key
	// Sticky means that all pages of a list are requested with the same key.
	Sticky bool
	// Ceiling is the shortest time between two requests. 0 means control.DefaultCeiling.
	Ceiling time.Duration
	// Fleet is the address of the fleet server through which processes share the pace, or
	// "none". The zero value leaves the choice to the process that runs the connection.
	Fleet configfile.Secret
	// Timeout bounds one attempt. Default 30 s.
	Timeout time.Duration
	// MaxBody is the largest response in bytes. Default 64 MiB.
	MaxBody int64
	// Headers are sent with every request, by canonical name.
	Headers map[string]Value
	Pacing  Pacing
	Retry   Retry
	Circuit Circuit
	// Pools are sets of requests that have limits of their own at the provider. A request
	// belongs to the first that matches.
	Pools []Pool
	// PoolBy chooses the pool of requests that match none of Pools.
	PoolBy PoolBy
	// Profile has the provider's published limits; nil if none is named.
	Profile *Profile
}

// Pool is a set of requests. A request belongs to it if it matches all fields that are not
// empty.
type Pool struct {
	Name string
	// Path is a pattern for the request's path as written in the file: * matches any text
	// without a slash, ** any number of path segments.
	Path string
	// Query and Headers are patterns for parameters and headers as written in the file; *
	// matches any text.
	Query, Headers map[string]string
}

// PoolBy chooses the pool of requests that match no [Pool].
type PoolBy string

// Values of [PoolBy].
const (
	// OnePool: they share the account's limits.
	OnePool PoolBy = ""
	// PoolByStream: each stream has a pool, and its details have another.
	PoolByStream PoolBy = "stream"
)

// Defaults of [Provider] and [Pacing].
const (
	DefaultTimeout       = 30 * time.Second
	DefaultMaxBody       = 64 << 20
	DefaultMaxRetryAfter = 5 * time.Minute
)

// AuthKind is how a credential is sent.
type AuthKind string

// The ways to send a credential.
const (
	NoAuth     AuthKind = "none"
	BearerAuth AuthKind = "bearer"
	HeaderAuth AuthKind = "header"
	QueryAuth  AuthKind = "query"
	OAuth2Auth AuthKind = "oauth2"
)

// Auth is a credential.
type Auth struct {
	Kind AuthKind
	// Name is the header's or query parameter's name.
	Name string
	// Secret is the token or key for bearer, header and query.
	Secret Value
	// OAuth2 is set only for the kind OAuth2.
	OAuth2 *OAuth2
}

// Key is one of several credentials.
type Key struct {
	// Name is the owner's name for it; the default is its position, from 1.
	Name string
	Auth Auth
}

// OAuth2 describes how an access token is requested and renewed.
type OAuth2 struct {
	TokenURL *url.URL
	// Grant is client_credentials or refresh_token.
	Grant        string
	ClientID     Value
	ClientSecret Value
	RefreshToken Value
	// TokenFile stores the refresh token if the provider rotates it. See [KeepTokens].
	TokenFile string
	Scopes    []string
}

// Pacing configures the control law. Zero fields mean the defaults of package control.
type Pacing struct {
	// Initial is the interval before a rate is learned. It is at least the ceiling.
	Initial time.Duration
	// Law is the name of the control law; "" means control.DefaultLaw.
	Law string
	// Step is subtracted from the interval after each success.
	Step time.Duration
	// Factor multiplies the rate after a throttle. It is between 0 and 1.
	Factor float64
	// Tolerance is the burst tolerance: how much idle time is credited. 0 means the
	// default, twice the initial interval; a negative value means none.
	Tolerance time.Duration
	// JitterMin and JitterMax bound the random time added to each wait. 0 as JitterMax
	// means the default, the shorter of 150 ms and the ceiling; a negative value means
	// none.
	JitterMin, JitterMax time.Duration
	// MaxRetryAfter is the longest Retry-After for which a run waits. Default 5 min.
	MaxRetryAfter time.Duration
}

// Retry configures how one request is retried. Zero fields mean the defaults of package
// retry.
type Retry struct {
	Base, Cap time.Duration
	// Attempts includes the first attempt.
	Attempts int
	// Budget bounds the retries of a whole run.
	Budget retry.Limits
}

// Stream is one list of records.
type Stream struct {
	Name string
	List Request
	// Records yields a page's records, and Key the key of a record.
	Records, Key *Expr
	// Fingerprint yields a value that changes with the record; nil means the whole record.
	Fingerprint *Expr
	Paginate    Paginate
	// BadRecords says what happens to records for which the expressions fail.
	BadRecords BadRecords
	// Incremental is nil if only the whole list can be requested.
	Incremental *Incremental
	// Detail is nil if records have no details.
	Detail *Detail
}

// BadRecords says what happens to a bad record: one without a usable key, with the key of
// another record of its page, or for which another expression fails.
type BadRecords string

// Values of [BadRecords]. A first page that has only bad records is always an error, since
// then the expression is wrong.
const (
	// QuarantineBadRecords opens a quarantined gap for each, and the run continues.
	QuarantineBadRecords BadRecords = "quarantine"
	// FailBadRecords ends the run.
	FailBadRecords BadRecords = "fail"
)

// Request describes a GET request.
type Request struct {
	// Path is appended to the base URL. It is escaped.
	Path    string
	Query   map[string]Value
	Headers map[string]Value
	// Pool is the pool whose limits the request shares; "" means the account. It follows
	// from [Provider].Pools and PoolBy.
	Pool string
}

// PageKind is a kind of paging.
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

// Paginate describes how the next page is found.
type Paginate struct {
	Kind PageKind
	// Next yields the next cursor or URL from a body (cursor, next_url).
	Next *Expr
	// Param is the query parameter of the cursor, page number or offset.
	Param string
	// Start is the number of the first page.
	Start int64
	// SizeParam and Size request pages of a size (page, offset); "" and 0 mean the
	// provider's default.
	SizeParam string
	Size      int64
}

// Incremental describes how changes are requested.
type Incremental struct {
	// Cursor yields a record's watermark.
	Cursor *Expr
	// Param is the query parameter for the last walk's watermark. The first walk does not
	// send it.
	Param string
	// Ascending and Inclusive describe the list. See [connector.Stream].
	Ascending, Inclusive bool
	// Lookback is how much later than its watermark a record may appear. See
	// [connector.Stream].
	Lookback time.Duration
}

// Detail describes a request for each new or changed record.
type Detail struct {
	// Stream is the stream of its records.
	Stream string
	// Request has {key} in its path or query.
	Request      Request
	Records, Key *Expr
	// Paginate is set if a detail may have several pages.
	Paginate Paginate
}

// Run has the owner's caps on one run.
type Run struct {
	// MaxRequests is the maximum number of attempts; 0 means no bound.
	MaxRequests int64
	// MaxWallClock is the maximum duration; 0 means no bound.
	MaxWallClock time.Duration
	// CatchupPages is the maximum number of catch-up pages of each stream in one run; 0
	// means no bound.
	CatchupPages int64
	// Concurrency is the number of details that are fetched at once, at most
	// [MaxConcurrency]. 0 means that the collector finds a good number.
	Concurrency int
	// Schedule is a cron expression in local time for long-running processes; "" leaves the
	// schedule to the process.
	Schedule string
	// CatchupSchedule is when such a process runs the catch-up lane; "" means together with
	// the steady lane.
	CatchupSchedule string
}

// Sink is the destination of records. Exactly one field is set.
type Sink struct {
	JSONL    *JSONL
	SQLite   *SQLite
	Parquet  *Parquet
	Postgres *Postgres
	Singer   *Singer
	Airbyte  *Airbyte
}

// JSONL writes one file of JSON lines for each stream.
type JSONL struct {
	// Dir is relative to the working directory. Default ./out.
	Dir string
}

// SQLite writes one table for each stream.
type SQLite struct {
	// File is the database of records, relative to the working directory; "" means the
	// database that holds the state.
	File string
}

// Parquet writes a folder of Parquet files.
type Parquet struct {
	// Dir is relative to the working directory. Default ./out.
	Dir string
}

// Postgres writes one table for each stream, in a PostgreSQL database.
type Postgres struct {
	// URL is the database of records; if absent, the database that holds the state.
	URL Value
	// Schema is the schema of the tables; "" means the one in the URL's search_path.
	Schema string
}

// Singer writes Singer messages to standard output, like a tap.
type Singer struct{}

// Airbyte writes Airbyte messages to standard output, like the read command of a source.
type Airbyte struct{}

// DefaultDir is the folder of records if the file names no sink or no folder.
const DefaultDir = "./out"

// String returns the destination for display: "jsonl in ./out".
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

// options configure how a connection file is read.
var options = configfile.Options{
	What: "connection", Want: "connection, provider and streams", MaxBytes: 128 << 10,
	Fill: true, Secret: secretField, Private: private,
}

// Load reads a connection file. Its error is a [*ConfigError] with every problem of the
// file, or says why the file cannot be read.
func Load(path string, env Env) (*Config, error) {
	src, err := configfile.Load(path, options)
	if err != nil {
		return nil, err
	}
	return Parse(path, src, env)
}

// Parse is like [Load] for a file that was already read; name is used in errors. Files of
// secrets are read from disk.
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
