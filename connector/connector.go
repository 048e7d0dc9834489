// Package connector is the boundary between the collection runtime and a
// provider: what streams there are, how one page is asked for, how one item's
// detail is asked for. Hand-written connectors implement [Connector] in Go;
// package rest implements it from a YAML file. The runtime treats both alike.
//
// A connector decides nothing about speed, retries or durability: each of its
// requests goes through [Caller.Do], which waits for a permit, counts the
// attempt, retries within the run's budget, and bounds the body.
// Connectors keep no state between calls; the runtime may call Detail from
// several goroutines at once, and List for the next page while it still reads
// what it was given of the one before.
//
// Stability: stable.
package connector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"github.com/headway-go/headway/reason"
)

// Connector knows one provider's streams and how to ask for them.
type Connector interface {
	// Streams lists what can be collected, in the order in which it should be.
	Streams() []Stream
	// List asks for one page of a stream: one Caller.Do, and a second one only with
	// a credential that was renewed.
	List(ctx context.Context, call Caller, req ListRequest) (Page, error)
	// Detail asks for the detail records of one item, all of them: one Caller.Do a
	// page, to a last page or a cursor that repeats (see [Trail]). It is called only
	// for streams with a DetailStream.
	Detail(ctx context.Context, call Caller, stream string, item Item) ([]Record, error)
}

// Stream is one sequence of records.
type Stream struct {
	// Name is the stream's name, unique in the connection; the sink's file or table.
	Name string
	// DetailStream names the stream that detail records go to; empty when the
	// stream has no detail request.
	DetailStream string
	// Key and DetailKey are the top-level fields of the records that hold their
	// keys; empty when a key is computed otherwise. Sinks with primary keys name
	// their columns so.
	Key, DetailKey string
	// Incremental says that List understands ListRequest.Since, and that items
	// carry a Watermark.
	Incremental bool
	// Ascending says that a list comes in the order of its watermarks, the lowest
	// first, and Inclusive that a list since a watermark has the items of that
	// very watermark. With both, what an outage leaves owed is looked for from
	// its first watermark on; otherwise the whole list is asked for again. A list
	// that contradicts them ends the run with an error that says so.
	Ascending, Inclusive bool
	// Lookback is how late an item may appear on the list: each walk for changes
	// begins so much before the watermark, and takes what it finds there that is
	// new. Default 0. Watermarks have to be points in time: RFC 3339, dates,
	// seconds or milliseconds since 1970.
	Lookback time.Duration
	// Shape tells versions of the stream's description apart, so that a run
	// notices an edited connection. The zero value is unknown, and never changes.
	Shape Shape
}

// Shape is a digest of each part of a stream's description. No digest is of a
// secret. A part that the stream does not have is empty.
type Shape struct {
	// Base is where requests go: host and path.
	Base string `json:"base,omitempty"`
	// List is what is listed and how its pages are found: path, query, headers and
	// paging. The size of a page is not part of it unless pages are counted.
	List        string `json:"list,omitempty"`
	Records     string `json:"records,omitempty"`
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Incremental string `json:"incremental,omitempty"`
	// Detail is the request for an item's detail and how its answer is read.
	Detail string `json:"detail,omitempty"`
}

// ListRequest asks for one page.
type ListRequest struct {
	Stream string
	// Cursor is what the page before gave as Next; empty for the first page.
	Cursor string
	// Since is the committed watermark to list changes after; empty for all.
	Since string
}

// A Key is one of several credentials of a connection.
type Key struct {
	// Name says which one it is: what its owner calls it, or its position. Never the secret.
	Name string
	// Sign puts the credential on a request.
	Sign func(*http.Request) error
}

// A Keyed connector has several credentials. Its requests carry none: the caller signs
// each with the key that has room soonest.
type Keyed interface {
	Connector
	// Keys are all of them; none means that the requests are signed as they are.
	Keys() []Key
}

type affinity struct{}

// WithAffinity asks a caller to send all requests of one name by one key, where there are
// several: for cursors that are good for the key that they were given to.
func WithAffinity(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, affinity{}, name)
}

// AffinityOf is the name; empty for none.
func AffinityOf(ctx context.Context) string {
	name, _ := ctx.Value(affinity{}).(string)
	return name
}

// Page is one page of a list: the unit of commit.
type Page struct {
	Items []Item
	// Unread are entries of the page that are not items: the runtime makes a
	// quarantined gap of each and goes on.
	Unread []Unread
	// Next is the opaque cursor of the following page; empty when this is the last.
	Next string
	// End is how the connector knows that this is the last page.
	End End
	// Asked is how many records the page was asked to hold; 0 is unknown.
	Asked int
	// ServerTime is the provider's own clock (the Date header); zero when unknown.
	ServerTime time.Time
}

// Item is one entry of a list.
type Item struct {
	// Key identifies the item in its stream. Never empty.
	Key string
	// Data is the record as one JSON value, without newlines. It is empty in a
	// call of Detail for an item whose list shows it no longer.
	Data json.RawMessage
	// Fingerprint tells versions of the item apart; empty lets the runtime hash Data.
	Fingerprint string
	// Watermark is the item's incremental cursor value; empty when it has none.
	Watermark string
}

// Unread is an entry of a list that cannot be an item, such as one without a key.
type Unread struct {
	// Position is where it stands in its page, from 1.
	Position int
	// ID tells it from other such entries, wherever it stands: a digest of it.
	ID string
	// Problem is what is wrong with it, without content.
	Problem string
}

// Record is one detail record.
type Record struct {
	// Key identifies the record among its item's records.
	Key string
	// Data is the record as one JSON value, without newlines.
	Data json.RawMessage
}

// Caller sends one request for a connector, governed.
type Caller interface {
	// Do sends req and returns the whole, bounded response with a 2xx status.
	// Anything else is a *Failure (the provider's answer, or none) or a
	// *reason.Refusal (not sent: a cap, an open circuit, a long wait).
	Do(ctx context.Context, req *http.Request) (*Response, error)
}

// Response is a whole response with a 2xx status.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Failure is a request that did not give what was asked for. Its text holds
// method, path and class, never a query, header, body or credential.
type Failure struct {
	// Reason is why, as in the gap that it becomes.
	Reason reason.Reason
	// Class is the outcome of the last attempt.
	Class reason.Class
	// Status is the HTTP status; 0 when there was no response.
	Status int
	// Method and Path name the request. Path has no query; it is the request's
	// Pattern where the connector sets one, such as "/items/{key}", so that no
	// record's key stands in an error.
	Method, Path string
	// Attempts counts what was sent for it, retries included.
	Attempts int
	// Stopped is why no further retry was made, when that was not the failure
	// itself: a cap or an open circuit. None otherwise.
	Stopped reason.Reason
	// RetryAt is when the provider allows another attempt; zero when unknown.
	RetryAt time.Time
	// Err is the cause; for a response that cannot be read, what was wrong with it.
	Err error
}

// Error is one line: request, status, reason, cause.
func (f *Failure) Error() string {
	s := fmt.Sprintf("%s %s: ", f.Method, f.Path)
	if f.Status != 0 {
		s += fmt.Sprintf("%d %s", f.Status, f.Reason)
	} else {
		s += f.Reason.String()
	}
	if f.Stopped != reason.None {
		s += fmt.Sprintf(" (not retried: %s)", f.Stopped)
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Invalid is the failure of a response that could not be read as expected.
func Invalid(req *http.Request, res *Response, err error) *Failure {
	return &Failure{
		Reason: reason.InvalidResponse, Class: reason.Failed, Status: res.Status,
		Method: req.Method, Path: cmp.Or(req.Pattern, req.URL.Path), Attempts: 1, Err: err,
	}
}

// DetailObserver is a [Caller] that observes how the pages of a detail were
// found. [Connector.Detail] calls it after the last page of each detail.
type DetailObserver interface {
	// DetailWalked takes the walk over one detail of a stream of details. It is safe
	// for concurrent use.
	DetailWalked(stream string, w *Walked)
}

// DetailsWalked gathers what the walks over the details of one stream show. The
// zero value has none. It is not safe for concurrent use.
type DetailsWalked struct {
	paged           bool // one had more than one page
	unmatched, full int64
}

// Add takes the walk over one detail.
func (d *DetailsWalked) Add(w *Walked) {
	d.paged = d.paged || w.pages > 1
	if w.end == EndUnmatched && w.last > 0 {
		d.unmatched++
	}
	// Of many details some have by chance as many records as a page holds: only
	// where the provider does not say that they end it is a sign.
	if w.ended && w.end != EndSaid && w.full() {
		d.full++
	}
}

// Warnings draws the conclusions. That the paging expression found nothing says
// something of a first collection only: what changed later may be short.
func (d *DetailsWalked) Warnings(stream string, first bool) []Warning {
	switch {
	case first && !d.paged && d.unmatched > 0:
		return []Warning{{Kind: DetailPagingUnmatched, Stream: stream, Records: d.unmatched}}
	case d.full > 0:
		return []Warning{{Kind: DetailFullLastPage, Stream: stream, Records: d.full}}
	}
	return nil
}

// tlsWanted are the words of servers whose TLS port met a plain request.
var tlsWanted = [][]byte{
	[]byte("Client sent an HTTP request to an HTTPS server"),    // Go
	[]byte("The plain HTTP request was sent to HTTPS port"),     // nginx
	[]byte("speaking plain HTTP to an SSL-enabled server port"), // Apache
	[]byte("This combination of host and port requires TLS"),    // Tomcat
}

// SpeaksTLS reports whether the answer to a plain HTTP request says that its port
// speaks https alone: the address that is configured has the wrong scheme or port.
func SpeaksTLS(status int, body []byte) bool {
	if status != http.StatusBadRequest {
		return false
	}
	for _, words := range tlsWanted {
		if bytes.Contains(body, words) {
			return true
		}
	}
	return false
}

// Trail finds a cursor that repeats, whatever the length of the cycle, in
// constant space: Brent's algorithm over the hashes of the cursors. A cycle of
// n pages is found within 3n pages of its start; a page that names itself is
// found at once. The zero value is an empty trail.
//
// Source: R. P. Brent, "An improved Monte Carlo factorization algorithm", 1980.
type Trail struct {
	// Anchor is the hash that later cursors are compared with.
	Anchor uint64 `json:"anchor,omitempty"`
	// Steps counts cursors since the anchor was set; Limit is when it moves on.
	Steps uint64 `json:"steps,omitempty"`
	Limit uint64 `json:"limit,omitempty"`
}

// Step adds the next page's cursor and reports whether it was seen before.
func (t *Trail) Step(cursor string) (repeats bool) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(cursor))
	sum := h.Sum64()
	if t.Limit > 0 && sum == t.Anchor {
		return true
	}
	if t.Limit == 0 || t.Steps == t.Limit {
		t.Anchor, t.Steps = sum, 0
		t.Limit = max(1, t.Limit*2)
		return false
	}
	t.Steps++
	return false
}

// poolKey is where a context keeps the name of a pool.
type poolKey struct{}

// WithPool gives a context for [Caller].Do: its requests share limits at the provider with
// those of the same pool, apart from the connection's others. What is refused in one pool
// slows no other, unless it is shown that the whole account is limited. Names should be
// few, and hold no content. Default: "", one limit for all.
func WithPool(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, poolKey{}, name)
}

// PoolOf returns the pool that a request's context names, or "" if it names none.
func PoolOf(req *http.Request) string {
	name, _ := req.Context().Value(poolKey{}).(string)
	return name
}
