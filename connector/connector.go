// Package connector defines the interface between the collection runtime and a provider:
// which streams there are, and how to request a page of a list and the detail of an item.
// Implement [Connector] in Go, or use package rest, which implements it from a YAML file.
//
// A connector decides nothing about speed, retries or durability: each of its
// requests goes through [Caller.Do], which waits for a permit, counts the
// attempt, retries within the run's budget, and bounds the body.
// Connectors keep no state between calls. The runtime may call Detail from several
// goroutines, and List for the next page while it still processes the page before.
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

// Connector requests the streams of one provider.
type Connector interface {
	// Streams returns the streams in the order in which they are collected.
	Streams() []Stream
	// List requests one page of a stream, with one call of Caller.Do. It may call Do again
	// only with a renewed credential.
	List(ctx context.Context, call Caller, req ListRequest) (Page, error)
	// Detail requests all detail records of one item, with one call of Caller.Do for each
	// page, until the last page or a cursor that repeats (see [Trail]). It is called only
	// for streams with a DetailStream.
	Detail(ctx context.Context, call Caller, stream string, item Item) ([]Record, error)
}

// Stream is one sequence of records.
type Stream struct {
	// Name is the stream's name, unique in the connection. Sinks name its file or table
	// after it.
	Name string
	// DetailStream is the name of the stream of detail records; empty if the stream has
	// no details.
	DetailStream string
	// Key and DetailKey are the top-level fields that hold the keys of records and of
	// detail records; empty if a key is computed in another way. Sinks with primary keys
	// use these names.
	Key, DetailKey string
	// Incremental reports that List supports ListRequest.Since and that items have a
	// Watermark.
	Incremental bool
	// Ascending reports that a list is sorted by watermark, the lowest first, and
	// Inclusive that a list since a watermark includes the items with that watermark.
	// With both, the details that an outage leaves owed are looked for from their first
	// watermark on; otherwise a longer part of the list is requested again. If a list
	// contradicts them, the run fails.
	Ascending, Inclusive bool
	// Lookback is how late an item may appear on the list: each walk for changes begins
	// that much before the watermark. Default 0. Watermarks must be points in time: RFC
	// 3339, dates, or seconds or milliseconds since 1970.
	Lookback time.Duration
	// Shape identifies the version of the stream's description, so that a run notices an
	// edited connection. The zero value means unknown and never counts as a change.
	Shape Shape
}

// Shape is a digest of each part of a stream's description, without secrets. A part that
// the stream does not have is empty.
type Shape struct {
	// Base is the host and path of the base URL.
	Base string `json:"base,omitempty"`
	// List is the list request: path, query, headers and paging. It includes the page
	// size only if pages are counted.
	List        string `json:"list,omitempty"`
	Records     string `json:"records,omitempty"`
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Incremental string `json:"incremental,omitempty"`
	// Detail is the detail request and how its response is read.
	Detail string `json:"detail,omitempty"`
}

// ListRequest is the request for one page.
type ListRequest struct {
	Stream string
	// Cursor is the Next of the page before; empty for the first page.
	Cursor string
	// Since is the watermark after which changes are listed; empty for all items.
	Since string
}

// A Key is one of several credentials of a connection.
type Key struct {
	// Name is the owner's name for the key, or its position. It is never the secret.
	Name string
	// Sign puts the credential on a request.
	Sign func(*http.Request) error
}

// A Keyed connector has several credentials. Its requests are not signed: the caller signs
// each with the key whose limits allow it first.
type Keyed interface {
	Connector
	// Keys returns all keys. If there are none, the connector signs its requests itself.
	Keys() []Key
}

type affinity struct{}

// WithAffinity makes a caller with several keys send all requests with the same name by the
// same key, for cursors that are valid only with the key that requested them.
func WithAffinity(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, affinity{}, name)
}

// AffinityOf returns the name set by [WithAffinity], or "".
func AffinityOf(ctx context.Context) string {
	name, _ := ctx.Value(affinity{}).(string)
	return name
}

// Page is one page of a list: the unit of commit.
type Page struct {
	Items []Item
	// Unread are entries of the page that could not be read as items. The runtime makes a
	// quarantined gap for each and continues.
	Unread []Unread
	// Next is the opaque cursor of the next page; empty if this is the last.
	Next string
	// End is how the connector knows that this is the last page.
	End End
	// Asked is the requested page size; 0 means unknown.
	Asked int
	// ServerTime is the provider's time (the Date header); zero if unknown.
	ServerTime time.Time
}

// Item is one entry of a list.
type Item struct {
	// Key identifies the item in its stream. Never empty.
	Key string
	// Data is the record as one JSON value, without newlines. It is empty in a call of
	// Detail for an item that is no longer listed.
	Data json.RawMessage
	// Fingerprint identifies the version of the item. Default "": a hash of Data.
	Fingerprint string
	// Watermark is the item's value of the incremental cursor; empty if it has none.
	Watermark string
}

// Unread is an entry of a list that could not be read as an item, such as one without a key.
type Unread struct {
	// Position is its position in the page, from 1.
	Position int
	// ID identifies the entry independently of its position: a digest of it.
	ID string
	// Problem describes what is wrong with it, without content.
	Problem string
}

// Record is one detail record.
type Record struct {
	// Key identifies the record among its item's records.
	Key string
	// Data is the record as one JSON value, without newlines.
	Data json.RawMessage
}

// Caller sends the requests of a connector, with pacing and retries.
type Caller interface {
	// Do sends req and returns a response with a 2xx status, whose body has been read.
	// Otherwise it returns a *Failure (another response, or none) or a *reason.Refusal
	// (not sent, for example because of a cap, an open circuit or a long wait).
	Do(ctx context.Context, req *http.Request) (*Response, error)
}

// Response is a response with a 2xx status, whose body has been read.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Failure is the error of a request that failed. Its text contains the method, the path
// and the reason, never a query, header, body or credential.
type Failure struct {
	// Reason is why the request failed.
	Reason reason.Reason
	// Class is the outcome of the last attempt.
	Class reason.Class
	// Status is the HTTP status; 0 when there was no response.
	Status int
	// Method and Path name the request. Path has no query. If the connector sets the
	// request's Pattern, such as "/items/{key}", Path is the pattern, so that errors
	// contain no key of a record.
	Method, Path string
	// Attempts counts the attempts, retries included.
	Attempts int
	// Stopped is why there was no further retry, if that was not the failure itself: a
	// cap or an open circuit. Its default is reason.None.
	Stopped reason.Reason
	// RetryAt is when the provider allows another attempt; zero if unknown.
	RetryAt time.Time
	// Err is the cause. For an unreadable response it describes what is wrong.
	Err error
}

// Error returns request, status, reason and cause in one line.
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

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Invalid returns the failure for a response that could not be read.
func Invalid(req *http.Request, res *Response, err error) *Failure {
	return &Failure{
		Reason: reason.InvalidResponse, Class: reason.Failed, Status: res.Status,
		Method: req.Method, Path: cmp.Or(req.Pattern, req.URL.Path), Attempts: 1, Err: err,
	}
}

// DetailObserver is a [Caller] that records how details were paged. [Connector.Detail]
// calls it after the last page of each detail.
type DetailObserver interface {
	// DetailWalked records the walk over one detail of a detail stream. It is safe for
	// concurrent use.
	DetailWalked(stream string, w *Walked)
}

// DetailsWalked summarizes the walks over the details of one stream. The zero value is
// empty. It is not safe for concurrent use.
type DetailsWalked struct {
	paged           bool // a detail had more than one page
	unmatched, full int64
}

// Add adds the walk over one detail.
func (d *DetailsWalked) Add(w *Walked) {
	d.paged = d.paged || w.pages > 1
	if w.end == EndUnmatched && w.last > 0 {
		d.unmatched++
	}
	// Some of many details fill a page by chance. A full page is a sign only if the
	// provider did not report the end.
	if w.ended && w.end != EndSaid && w.full() {
		d.full++
	}
}

// Warnings returns the warnings for the walks. A paging expression that found nothing is a
// sign only in a first collection, since later changes may fit on one page.
func (d *DetailsWalked) Warnings(stream string, first bool) []Warning {
	switch {
	case first && !d.paged && d.unmatched > 0:
		return []Warning{{Kind: DetailPagingUnmatched, Stream: stream, Records: d.unmatched}}
	case d.full > 0:
		return []Warning{{Kind: DetailFullLastPage, Stream: stream, Records: d.full}}
	}
	return nil
}

// tlsWanted are texts of servers that received a plain request on a TLS port.
var tlsWanted = [][]byte{
	[]byte("Client sent an HTTP request to an HTTPS server"),    // Go
	[]byte("The plain HTTP request was sent to HTTPS port"),     // nginx
	[]byte("speaking plain HTTP to an SSL-enabled server port"), // Apache
	[]byte("This combination of host and port requires TLS"),    // Tomcat
}

// SpeaksTLS reports whether a response to a plain HTTP request says that its port accepts
// only https, that is, the configured URL has the wrong scheme or port.
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

// Trail detects cursors that repeat, with a cycle of any length, in constant space. It uses
// Brent's algorithm on the hashes of the cursors. A cycle of n pages is found within 3n
// pages of its start. The zero value is an empty trail.
//
// Source: R. P. Brent, "An improved Monte Carlo factorization algorithm", 1980.
type Trail struct {
	// Anchor is the hash with which later cursors are compared.
	Anchor uint64 `json:"anchor,omitempty"`
	// Steps counts the cursors since the anchor was set. At Limit the anchor is replaced.
	Steps uint64 `json:"steps,omitempty"`
	Limit uint64 `json:"limit,omitempty"`
}

// Step adds the cursor of the next page, and reports whether the cursors repeat.
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

// poolKey is the context key of a pool's name.
type poolKey struct{}

// WithPool returns a context for [Caller].Do that puts its requests into a pool, whose
// requests share limits at the provider. A refusal in one pool does not slow others, unless
// the whole account turns out to be limited. There should be few names, without content.
// Without a pool, a request counts against the account only.
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
