// Package target implements the destination of a bulk load. A target file (YAML) describes
// a JSON API over HTTP or a table of Dataverse, the credentials, and the parameters of the
// load.
//
// [Load] reads a file and reports all problems with their lines. [Config.Target] returns
// the bulk.Target, and [Config].Params holds the parameters of the load. Each batch is one
// request. Package bulk decides what is sent again, when and with which credential.
//
// Package signal reads what a response means for the rate (429, Retry-After,
// x-ms-dop-hint, error codes); this package reads what it means for each row. After an
// unreadable response the batch is in doubt.
//
// A credential is a reference to an environment variable or a file, and is in no error, log
// or journal. Redirects are not followed, since they would send the credential elsewhere.
// The size of responses is limited. A target is safe for concurrent use. To read from an
// API use package connector.
//
// Stability: settling.
package target

import (
	"net/http"
	"net/url"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/jq"
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
	// Fleet is the address of the server of a fleet that shares the pace of each identity,
	// or "none"; the zero value leaves that to who runs the load.
	Fleet configfile.Secret
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
	Rows *Expr
	// Success gives a value other than false and null if the row of a result was written.
	// nil means that every row with a result was.
	Success *Expr
	// Code and Message give a result's error.
	Code, Message *Expr
	// Divide are the statuses by which the server refuses a whole batch because of one
	// row. Such a batch is sent again in halves.
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

// Names for what a target file has, and for what is wrong with it.
type (
	// Env looks up an environment variable; os.LookupEnv is one.
	Env = configfile.Env
	// Secret is a text that may hold a credential. It prints as the file has it
	// ("${CRM_TOKEN}"); its method Reveal returns the credential.
	Secret = configfile.Secret
	// Problem is one thing that is wrong with a target file.
	Problem = configfile.Problem
	// FileError is everything that is wrong with a target file, in its order.
	FileError = configfile.Error
	// Expr is a jq expression of the file.
	Expr = jq.Code
)

// options are how a target file is read.
var options = configfile.Options{What: "target", Want: "target, and http or dataverse"}

// Load reads a target file. Its error is a [*FileError] with every problem that
// the file has, or says why it cannot be read.
func Load(path string, env Env) (*Config, error) {
	src, err := configfile.Load(path, options)
	if err != nil {
		return nil, err
	}
	return Parse(path, src, env)
}

// Parse is like [Load] for the content of a file, which errors call name. Files that
// hold secrets are read from disk.
func Parse(name string, src []byte, env Env) (*Config, error) {
	o := options
	o.Env = env
	root, file := configfile.Parse(name, src, o)
	c := &Config{}
	if s := (section{root.Section()}); s.Section != nil {
		s.config(c)
		s.Done()
	}
	if err := file.Err(); err != nil {
		return nil, err
	}
	return c, nil
}
