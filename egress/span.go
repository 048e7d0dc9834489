package egress

import (
	"net/url"
	"time"

	"github.com/headway-go/headway/reason"
)

// Attempt is one sending of a call: what its span is made of.
type Attempt struct {
	// Span is the traceparent of the attempt's span, which went upstream.
	Span string
	// Began is when it was sent, on the wall clock.
	Began time.Time
	// Whole is the time until its answer had ended or it had failed.
	Whole time.Duration
	// Status is what was answered; 0 without an answer.
	Status int
	// Class is how it ended.
	Class reason.Class
	// Host is the upstream's name or address, Port its port; empty for that of the
	// scheme. URL is what was asked for, without its query.
	Host, Port, URL string
}

// trace gives the attempt a span of its own below the call's, if that has one.
func (a *attempt) trace() {
	if x := a.x; x.told.Span != "" {
		a.span = x.table.newSpan(x.told.Span)
	}
}

// traced notes the attempt for its span.
func (a *attempt) traced() {
	if a.span == "" || !a.tried {
		return
	}
	to := url.URL{Scheme: a.to.Scheme, Host: a.to.Host, Path: a.to.Path, RawPath: a.to.RawPath}
	a.x.told.Traced = append(a.x.told.Traced, Attempt{
		Span: a.span, Began: a.sentAt.Round(0), Whole: time.Since(a.sentAt), Status: a.status, Class: a.class,
		Host: to.Hostname(), Port: to.Port(), URL: to.String(),
	})
}
