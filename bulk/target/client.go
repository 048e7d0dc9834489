package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// maxAnswer bounds a response.
const maxAnswer = 16 << 20

// Target writes batches over HTTP. It is a bulk.Target.
type Target struct {
	config      *Config
	client      *http.Client
	credentials []*credential
	api         api
}

// api is the implementation for one kind of provider.
type api interface {
	traits() bulk.Traits
	// request creates the request for a batch. It refuses a row that cannot be sent, with a
	// problem; the request is nil if no row is left.
	request(ctx context.Context, b bulk.Batch) (req *http.Request, refused map[int]bulk.Problem, err error)
	// path names the request in errors.
	path() string
	// served reads a 2xx response for n rows, refusal another one.
	served(ctx context.Context, a answer, n int) bulk.Outcome
	refusal(ctx context.Context, a answer, n int, o *bulk.Outcome)
	// allowance adds known limits of the server that it does not report.
	allowance(o *bulk.Outcome)
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// Target returns the target. If client is nil, it has a client of its own, with an idle
// connection for each batch that may be in flight. Redirects are never followed.
func (c *Config) Target(client *http.Client) *Target {
	if client == nil {
		client = &http.Client{Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 30 * time.Second, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second,
		}}
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own.Jar = nil // an affinity cookie would send all requests to one server
	t := &Target{config: c, client: &own}
	for _, id := range c.Identities {
		t.credentials = append(t.credentials, newCredential(id.Auth, &own))
	}
	if t.api = c.Dataverse; c.Dataverse == nil {
		t.api = c.HTTP
	}
	return t
}

// Traits describes the target to a load.
func (t *Target) Traits() bulk.Traits {
	traits := t.api.traits()
	for _, id := range t.config.Identities {
		traits.Identities = append(traits.Identities, id.Name)
	}
	return traits
}

// Send sends one batch in one request.
func (t *Target) Send(ctx context.Context, identity int, b bulk.Batch) bulk.Outcome {
	ctx, cancel := context.WithTimeout(ctx, t.config.Timeout)
	defer cancel()
	req, refused, err := t.api.request(ctx, b)
	switch {
	case err != nil:
		return t.failure(ctx, err, false)
	case req == nil:
		return merge(bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK, Rows: []dispatch.Verdict{}}}, refused, len(b.Rows))
	}
	maps.Copy(req.Header, t.config.Headers)
	credential := t.credentials[identity]
	if err := credential.set(req); err != nil {
		return t.failure(ctx, err, false)
	}
	a, written, err := t.do(req)
	if err != nil {
		return t.failure(ctx, err, written)
	}
	a.body = t.secrets(identity, req).blank(a.body)
	o := t.read(ctx, a, len(b.Rows)-len(refused))
	if credential.answered(req, a.status) {
		o.Class, o.Reason = reason.Failed, reason.ServerError // a new token may succeed
	}
	o = merge(o, refused, len(b.Rows))
	for i := range o.Problems {
		shorten(&o.Problems[i])
	}
	return o
}

// do sends a request and reads the whole response. written reports that the server may have
// received the request.
func (t *Target) do(req *http.Request) (a answer, written bool, err error) {
	var wrote atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }}
	res, err := t.client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		return answer{}, wrote.Load(), err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil && res.StatusCode/100 == 2 {
		return answer{}, true, err
	}
	return answer{res.StatusCode, res.Header, body}, true, nil
}

// read converts a response to an outcome.
func (t *Target) read(ctx context.Context, a answer, n int) bulk.Outcome {
	s := signal.Read(time.Now(), a.status, a.header, a.body)
	var o bulk.Outcome
	switch {
	case a.status/100 == 2 && len(a.body) > maxAnswer:
		o = invalid(fmt.Errorf("the answer is longer than %d bytes", maxAnswer))
	case a.status/100 == 2:
		o = t.api.served(ctx, a, n)
	default:
		o.Class, o.Reason = s.Class, reason.ClientError
		o.Exhausted = s.Exhausted
		t.judge(ctx, a, n, s, &o)
	}
	o.RetryAfter, o.HasRetryAfter, o.Parallelism = s.RetryAfter, s.HasRetryAfter, s.Parallelism
	for _, l := range s.Limits {
		if l.Unit == signal.UnitExecution && l.Quota > 0 && l.Window > 0 {
			o.Budget, o.Window = time.Duration(l.Quota)*time.Second, l.Window
		}
	}
	t.api.allowance(&o)
	if o.Err != nil {
		o.Err = fmt.Errorf("%s: %d %s: %w", t.api.path(), a.status, o.Reason, o.Err)
	} else if o.Class != reason.OK {
		o.Err = fmt.Errorf("%s: %d %s", t.api.path(), a.status, o.Reason)
	}
	return o
}

// judge sets the outcome of a response with a status other than 2xx.
func (t *Target) judge(ctx context.Context, a answer, n int, s signal.Signal, o *bulk.Outcome) {
	pressure, isPressure := s.Class.Pressure()
	switch {
	case isPressure:
		o.Reason = pressure.Reason()
		// Overload without a Retry-After may come from a proxy, and the server behind it may
		// have written the batch.
		o.Doubt = s.Class == reason.Overloaded && !s.HasRetryAfter
	case a.status == http.StatusUnauthorized:
		o.Reason = reason.Unauthorized
	case a.status == http.StatusForbidden:
		o.Reason, o.Fatal = reason.Forbidden, true
	case a.status == http.StatusRequestEntityTooLarge:
		o.TooLarge = true
	case s.Class == reason.Failed:
		o.Reason, o.Doubt = reason.ServerError, true
		if a.status == http.StatusNotImplemented || a.status == http.StatusHTTPVersionNotSupported {
			o.Fatal, o.Doubt = true, false
		}
	case s.Class == reason.Rejected:
		o.Reason = reason.ClientError
		if a.status == http.StatusNotFound || a.status == http.StatusGone {
			o.Reason = reason.NotFound
		}
		t.api.refusal(ctx, a, n, o)
	default: // a redirect, or no final answer
		o.Class, o.Fatal, o.Reason = reason.Rejected, true, reason.ClientError
		o.Err = errors.New("the answer is a redirect, which is not followed: correct the URL")
	}
	if len(o.Problems) == 0 {
		o.Problems = []bulk.Problem{{Status: a.status, Message: excerpt(a.body)}}
	}
}

// failure returns the outcome of an attempt without a response.
func (t *Target) failure(ctx context.Context, err error, written bool) bulk.Outcome {
	o := bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.Lost, Reason: reason.Unreachable, Doubt: written}}
	what := "the server cannot be reached"
	if written {
		what = "the connection ended before the answer"
	}
	netErr, isNet := errors.AsType[net.Error](err)
	_, isDNS := errors.AsType[*net.DNSError](err)
	_, isTLS := errors.AsType[*tls.CertificateVerificationError](err)
	if tokenErr, ok := errors.AsType[tokenError](err); ok {
		what = tokenErr.Error()
		if status := tokenErr.status(); status >= 400 && status < 500 && status != http.StatusTooManyRequests {
			o.Class, o.Reason = reason.Rejected, reason.Unauthorized
		}
	} else {
		switch {
		case errors.Is(err, context.Canceled):
			o.Reason, what = reason.Canceled, "canceled"
			if !written {
				o.Class = reason.Unknown
			}
		case errors.Is(ctx.Err(), context.DeadlineExceeded) || isNet && netErr.Timeout():
			o.Reason, what = reason.Timeout, "no answer in time"
		case isDNS:
			what = "the host's name cannot be resolved"
		case isTLS:
			o.Reason, what = reason.TLS, "the server's certificate is not trusted"
		}
	}
	o.Err = fmt.Errorf("%s: %s", t.api.path(), what)
	return o
}

// invalid returns the outcome of an unreadable 2xx response: its rows may have been
// written.
func invalid(err error) bulk.Outcome {
	return bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.Failed, Reason: reason.InvalidResponse, Doubt: true}, Err: err}
}

// merge adds the rows that were refused before sending to the outcome of the others.
func merge(o bulk.Outcome, refused map[int]bulk.Problem, n int) bulk.Outcome {
	if len(refused) == 0 {
		return o
	}
	verdicts, problems := make([]dispatch.Verdict, n), make([]bulk.Problem, n)
	k := 0
	for i := range n {
		if p, ok := refused[i]; ok {
			verdicts[i], problems[i] = dispatch.Refused, p
			continue
		}
		verdicts[i] = whole(o)
		if k < len(o.Rows) {
			verdicts[i] = o.Rows[k]
		}
		switch {
		case k < len(o.Problems) && len(o.Problems) > 1:
			problems[i] = o.Problems[k]
		case len(o.Problems) == 1:
			problems[i] = o.Problems[0]
		}
		k++
	}
	o.Rows, o.Problems = verdicts, problems
	return o
}

// whole returns the verdict on all rows of an outcome without verdicts for single rows.
func whole(o bulk.Outcome) dispatch.Verdict {
	switch {
	case o.Rows != nil:
		return dispatch.Unknown // it has fewer results than rows were sent
	case o.Class == reason.OK:
		return dispatch.Done
	case o.Doubt:
		return dispatch.Unknown
	}
	return dispatch.Later
}

// The maximum length in the reject file of a body that is not a known error, and of the
// server's message about one row.
const (
	maxExcerpt = 2 << 10
	maxCode    = 128
)

func excerpt(body []byte) string {
	return string(bytes.ToValidUTF8(body[:min(len(body), maxExcerpt)], []byte("\ufffd")))
}

func shorten(p *bulk.Problem) {
	for _, f := range []struct {
		text  *string
		limit int
	}{{&p.Code, maxCode}, {&p.Message, maxExcerpt}} {
		if len(*f.text) > f.limit {
			*f.text = strings.ToValidUTF8((*f.text)[:f.limit], "") + "…"
		}
	}
}

// Preview is the request for a batch, as shown to the owner.
type Preview struct {
	// Identity is the name of the credential that would send it.
	Identity string `json:"identity"`
	Method   string `json:"method"`
	URL      string `json:"url"`
	// Header has credentials, and headers of the file, as written in the file: "Bearer
	// ${CRM_TOKEN}".
	Header http.Header `json:"header"`
	// Body holds the rows.
	Body string `json:"body"`
	// Refused are rows that would be rejected without being sent, by index in the batch.
	Refused map[int]bulk.Problem `json:"refused,omitempty"`
}

// Preview returns the request for a batch without sending it. If every row is refused,
// there is no request, and URL is empty. It requests no token.
func (t *Target) Preview(ctx context.Context, identity int, b bulk.Batch) (Preview, error) {
	p := Preview{Identity: t.config.Identities[identity].Name}
	req, refused, err := t.api.request(ctx, b)
	p.Refused = refused
	if err != nil || req == nil {
		return p, err
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return p, fmt.Errorf("target: %w", err)
	}
	maps.Copy(req.Header, t.config.written)
	if a := t.config.Identities[identity].Auth; a.Header != "" {
		req.Header.Set(a.Header, a.masked())
	}
	p.Method, p.URL, p.Header, p.Body = req.Method, req.URL.String(), req.Header, string(body)
	return p, nil
}

// masked returns the credential as it would be sent, with references in place of secrets.
func (a Auth) masked() string {
	switch {
	case a.OAuth2 != nil:
		return fmt.Sprintf("Bearer (from %s with %s)", a.OAuth2.TokenURL, a.OAuth2.ClientSecret)
	case a.Scheme == "Basic":
		return fmt.Sprintf("Basic (with %s)", a.Value)
	case a.Scheme != "":
		return a.Scheme + " " + a.Value.String()
	}
	return a.Value.String()
}
