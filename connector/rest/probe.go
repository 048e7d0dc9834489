package rest

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/figure"
)

// Probed is what one request found out.
type Probed struct {
	Stream string `json:"stream"`
	// Records is how many the first page has.
	Records int `json:"records"`
	// More says that there is a page after it.
	More bool `json:"more"`
	// ServerTime is the provider's clock; zero if the answer had no Date.
	ServerTime time.Time `json:"server_time,omitzero"`
	// Warnings are signs that the page is not read as the provider means it.
	Warnings []connector.Warning `json:"warnings,omitempty"`
}

// Probe asks for the first page of the first stream: one request. Its errors
// are those of [Connector.List].
func (c *Connector) Probe(ctx context.Context, call connector.Caller) (Probed, error) {
	s := &c.config.Streams[0]
	page, err := c.List(ctx, call, connector.ListRequest{Stream: s.Name})
	if err != nil {
		return Probed{}, err
	}
	var walked connector.Walked
	walked.Add(page)
	return Probed{
		Stream: s.Name, Records: len(page.Items), More: page.Next != "", ServerTime: page.ServerTime,
		Warnings: walked.Warnings(c.Streams()[0]),
	}, nil
}

// String is one line for people.
func (p Probed) String() string {
	more := "and no page after it"
	if p.More {
		more = "and a page after it"
	}
	return fmt.Sprintf("stream %s: the first page has %s records %s", p.Stream, figure.Count(int64(p.Records)), more)
}
