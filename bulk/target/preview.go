package target

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"

	"github.com/headway-go/headway/bulk"
)

// Preview is the request that a batch would be, for its owner to look at.
type Preview struct {
	// Identity is who would send it.
	Identity string `json:"identity"`
	Method   string `json:"method"`
	URL      string `json:"url"`
	// Header has credentials, and the file's own headers, as the file has them:
	// "Bearer ${CRM_TOKEN}".
	Header http.Header `json:"header"`
	// Body holds the rows.
	Body string `json:"body"`
	// Refused are rows that would be rejected unsent, by their place in the batch.
	Refused map[int]bulk.Problem `json:"refused,omitempty"`
}

// Preview makes the request of a batch and does not send it. Without a URL there
// would be none: every row is refused. It asks nobody for a token.
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

// masked is what is sent, with references in the place of secrets.
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
