package target

import (
	"net/http"
	"net/url"
	"time"

	"github.com/headway-go/headway/bulk"
)

// Config is a target as its file describes it: complete and checked.
type Config struct {
	// Name is what the owner calls it.
	Name string
	// Params are the numbers of the load; what the file does not set has its
	// default. The target's own bounds come with its traits.
	Params bulk.Params
	// Identities write; at least one.
	Identities []Identity
	// Timeout bounds one request. Default 2 min.
	Timeout time.Duration
	// Headers go with every request; canonical names.
	Headers http.Header
	// written are the same as the file has them, references unresolved.
	written http.Header
	// Exactly one is set.
	HTTP      *HTTP
	Dataverse *Dataverse
}

// DefaultTimeout is the default of [Config].
const DefaultTimeout = 2 * time.Minute

// Identity is one credential: with it come a parallelism, a breaker and a gate
// of its own.
type Identity struct {
	Name string
	Auth Auth
}

// HTTP is a JSON API.
type HTTP struct {
	// URL is where requests go. In its path and query {field} stands for a field of
	// the row, where a request carries one row.
	URL *url.URL
	// template is the URL as it was written, to be filled.
	template string
	Method   string
	// Single sends each row alone.
	Single bool
	// Body is a JSON template: the texts $rows, $row and $key stand for the rows,
	// the row and the idempotency key.
	Body body
	// Resend is what may be sent twice, KeyHeader the header of the idempotency key.
	Resend    bulk.Resend
	KeyHeader string
	// Answer says what a response tells of each row.
	Answer Answer
	// MaxRows and MaxBytes bound a batch; 0 means no bound.
	MaxRows, MaxBytes int
}

// Answer is what a response tells of each row. Without Rows, the status tells of
// all.
type Answer struct {
	// Rows gives an array with a result for each row, in order.
	Rows *expr
	// Success gives anything but false and null for the result of a row that was
	// written. nil is any result.
	Success *expr
	// Code and Message give a result's error.
	Code, Message *expr
	// Divide are the statuses of a batch that is refused as a whole because of some
	// row: it is sent again in halves.
	Divide []int
}

// Operation is what is done in Dataverse.
type Operation string

// The operations.
const (
	Create Operation = "create"
	Update Operation = "update"
	Upsert Operation = "upsert"
)

// Dataverse is a table of an environment.
type Dataverse struct {
	// URL is the environment's, without a path.
	URL *url.URL
	// Version is the Web API's. Default 9.2.
	Version string
	// Table is the entity set's name (contacts), Type the table's logical name
	// (contact).
	Table, Type string
	Operation   Operation
	// Key are the columns of an alternate key; empty where rows hold the primary key.
	Key []string
	// MaxRows bounds a batch. Default 1000.
	MaxRows int
}

// rawFile is the file.
type rawFile struct {
	Target     string            `yaml:"target"`
	HTTP       *rawHTTP          `yaml:"http"`
	Dataverse  *rawDataverse     `yaml:"dataverse"`
	Auth       *rawAuth          `yaml:"auth"`
	Identities []rawIdentity     `yaml:"identities"`
	Headers    map[string]string `yaml:"headers"`
	Timeout    string            `yaml:"timeout"`
	Load       rawLoad           `yaml:"load"`
}

type rawIdentity struct {
	Name string   `yaml:"name"`
	Auth *rawAuth `yaml:"auth"`
}

type rawAuth struct {
	Bearer *rawSecret `yaml:"bearer"`
	Header *struct {
		Name  string     `yaml:"name"`
		Value *rawSecret `yaml:"value"`
	} `yaml:"header"`
	Basic *struct {
		Username string     `yaml:"username"`
		Password *rawSecret `yaml:"password"`
	} `yaml:"basic"`
	OAuth2 *struct {
		TokenURL     string     `yaml:"token_url"`
		ClientID     string     `yaml:"client_id"`
		ClientSecret *rawSecret `yaml:"client_secret"`
		Scopes       []string   `yaml:"scopes"`
	} `yaml:"oauth2"`
}

type rawHTTP struct {
	URL       string     `yaml:"url"`
	Method    string     `yaml:"method"`
	Single    bool       `yaml:"single"`
	Body      any        `yaml:"body"`
	Resend    string     `yaml:"resend"`
	KeyHeader string     `yaml:"key_header"`
	Answer    *rawAnswer `yaml:"answer"`
	MaxRows   int        `yaml:"max_rows"`
	MaxBytes  int        `yaml:"max_bytes"`
}

type rawAnswer struct {
	Rows    string `yaml:"rows"`
	Success string `yaml:"success"`
	Code    string `yaml:"code"`
	Message string `yaml:"message"`
	Divide  []int  `yaml:"divide"`
}

type rawDataverse struct {
	URL       string   `yaml:"url"`
	Version   string   `yaml:"version"`
	Table     string   `yaml:"table"`
	Type      string   `yaml:"type"`
	Operation string   `yaml:"operation"`
	Key       []string `yaml:"key"`
	MaxRows   int      `yaml:"max_rows"`
}

type rawLoad struct {
	BatchRows    int    `yaml:"batch_rows"`
	BatchBytes   int    `yaml:"batch_bytes"`
	FirstRows    int    `yaml:"first_rows"`
	TargetTime   string `yaml:"target_time"`
	Patience     string `yaml:"patience"`
	StallTimeout string `yaml:"stall_timeout"`
	MaxRejects   int64  `yaml:"max_rejects"`
	Attempts     int    `yaml:"attempts"`

	Parallelism struct {
		Disabled   bool    `yaml:"disabled"`
		Max        int     `yaml:"max"`
		Ceiling    int     `yaml:"ceiling"`
		Min        int     `yaml:"min"`
		Initial    float64 `yaml:"initial_factor"`
		Increase   int     `yaml:"increase"`
		Decrease   float64 `yaml:"decrease_factor"`
		Batches    int     `yaml:"stabilization_batches"`
		Interval   string  `yaml:"min_increase_interval"`
		Recovery   int     `yaml:"recovery_multiplier"`
		TTL        string  `yaml:"last_known_good_ttl"`
		IdleReset  string  `yaml:"idle_reset"`
		BusyBudget string  `yaml:"busy_budget"`
		BusyWindow string  `yaml:"busy_window"`
	} `yaml:"parallelism"`
}
