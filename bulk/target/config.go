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

// Config is a complete, checked target.
type Config struct {
	// Name is the owner's name for it.
	Name string
	// Params are the parameters of the load; zero fields mean the defaults. The target's
	// own bounds are in its traits.
	Params bulk.Params
	// Identities are the credentials to write with; at least one.
	Identities []Identity
	// Fleet is the address of the fleet server through which processes share the pace of
	// each identity, or "none". The zero value leaves the choice to the process that runs
	// the load.
	Fleet configfile.Secret
	// Timeout bounds one request. Default 2 min.
	Timeout time.Duration
	// Headers are sent with every request, by canonical name.
	Headers http.Header
	// written are the same headers as written in the file, with unresolved references.
	written http.Header
	// Exactly one is set.
	HTTP      *HTTP
	Dataverse *Dataverse
}

// DefaultTimeout is the default of [Config].
const DefaultTimeout = 2 * time.Minute

// Identity is one credential, with a parallelism law, a breaker and a gate of its own.
type Identity struct {
	Name string
	Auth Auth
}

// HTTP is a JSON API.
type HTTP struct {
	// URL is the address of requests. If a request carries one row, {field} in the path or
	// query stands for a field of the row.
	URL *url.URL
	// template is the URL as written in the file.
	template string
	Method   string
	// Single means that each row is sent alone.
	Single bool
	// Body is a JSON template in which the texts $rows, $row and $key stand for the rows,
	// the row and the idempotency key.
	Body body
	// Resend says what may be sent again, and KeyHeader is the header for the idempotency
	// key.
	Resend    bulk.Resend
	KeyHeader string
	// Answer says how the result of each row is found in a response.
	Answer Answer
	// MaxRows and MaxBytes bound a batch; 0 means no bound.
	MaxRows, MaxBytes int
}

// Answer says how the result of each row is found in a response. Without Rows, the status
// applies to all rows.
type Answer struct {
	// Rows yields an array with a result for each row, in order.
	Rows *Expr
	// Success yields a value other than false and null if the row of a result was written.
	// nil means that every row with a result was written.
	Success *Expr
	// Code and Message yield a result's error.
	Code, Message *Expr
	// Divide are the statuses with which the server refuses a whole batch because of one
	// row. Such a batch is sent again in halves.
	Divide []int
}

// Operation is an operation of Dataverse.
type Operation string

// The operations.
const (
	Create Operation = "create"
	Update Operation = "update"
	Upsert Operation = "upsert"
)

// Dataverse is a table of an environment.
type Dataverse struct {
	// URL is the URL of the environment, without a path.
	URL *url.URL
	// Version is the version of the Web API. Default 9.2.
	Version string
	// Table is the entity set's name (contacts), Type the table's logical name
	// (contact).
	Table, Type string
	Operation   Operation
	// Key are the columns of an alternate key; empty if rows have the primary key.
	Key []string
	// MaxRows bounds a batch. Default 1000.
	MaxRows int
}

// Names for types that read a target file.
type (
	// Env looks up an environment variable, like os.LookupEnv.
	Env = configfile.Env
	// Secret is a text that may contain a credential. It prints as written in the file
	// ("${CRM_TOKEN}"); its method Reveal returns the credential.
	Secret = configfile.Secret
	// Problem is one problem in a target file.
	Problem = configfile.Problem
	// FileError lists all problems in a target file, in the order of the file.
	FileError = configfile.Error
	// Expr is a jq expression in the file.
	Expr = jq.Code
)

// options configure how a target file is read.
var options = configfile.Options{What: "target", Want: "target, and http or dataverse"}

// Load reads a target file. Its error is a [*FileError] with every problem of the file, or
// says why the file cannot be read.
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
