package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

const userAgent = "headway (+https://github.com/headway-go/headway)"

// route is a request's path as it may be shown: with {key} for the key.
func (c *Connector) route(r Request) string {
	return strings.TrimSuffix(c.config.Provider.BaseURL.Path, "/") + r.Path
}

// listURL is the URL of a page.
func (c *Connector) listURL(s *Stream, cursor, since string) (*url.URL, error) {
	if k := s.Paginate.Kind; cursor != "" && (k == LinkPaging || k == NextURLPaging) {
		return c.origin.absolute(cursor)
	}
	q := values(s.List.Query, nil)
	if s.Incremental != nil && since != "" {
		q.Set(s.Incremental.Param, since)
	}
	if err := s.Paginate.place(q, cursor); err != nil {
		return nil, err
	}
	return c.url(s.List.Path, q)
}

// segment is a key as one segment of a path, or a part of one. Dots alone would
// be a step up or none at all (RFC 3986, section 5.2.4), so they are escaped too.
func segment(key string) string {
	if strings.Trim(key, ".") == "" {
		return strings.ReplaceAll(key, ".", "%2E")
	}
	return url.PathEscape(key)
}

// detailURL is the URL of a page of a record's detail.
func (c *Connector) detailURL(d *Detail, key, cursor string) (*url.URL, error) {
	if k := d.Paginate.Kind; cursor != "" && (k == LinkPaging || k == NextURLPaging) {
		return c.origin.absolute(cursor)
	}
	q := values(d.Request.Query, strings.NewReplacer("{key}", key))
	if err := d.Paginate.place(q, cursor); err != nil {
		return nil, err
	}
	return c.url(strings.ReplaceAll(d.Request.Path, "{key}", segment(key)), q)
}

func values(query map[string]Value, keys *strings.Replacer) url.Values {
	q := make(url.Values, len(query))
	for name, v := range query {
		s := v.Reveal()
		if keys != nil {
			s = keys.Replace(s)
		}
		q.Set(name, s)
	}
	return q
}

// url puts an escaped path below the base URL.
func (c *Connector) url(path string, q url.Values) (*url.URL, error) {
	u := *c.config.Provider.BaseURL
	escaped := strings.TrimSuffix(u.EscapedPath(), "/") + path
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath, u.RawQuery = plain, escaped, q.Encode()
	return &u, nil
}

// request makes a GET request with headers and credential. Its Pattern is the
// route, which has no key in it: what errors may show.
func (c *Connector) request(ctx context.Context, u *url.URL, shape Request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("the request's URL cannot be made")
	}
	req.Pattern = c.route(shape)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	for _, headers := range []map[string]Value{c.config.Provider.Headers, shape.Headers} {
		for name, v := range headers {
			req.Header.Set(name, v.Reveal())
		}
	}
	switch auth := c.config.Provider.Auth; auth.Kind {
	case BearerAuth:
		req.Header.Set("Authorization", "Bearer "+auth.Secret.Reveal())
	case HeaderAuth:
		req.Header.Set(auth.Name, auth.Secret.Reveal())
	case QueryAuth:
		// Raw, so that a next page's query keeps its order.
		query := dropParam(req.URL.RawQuery, auth.Name)
		if query != "" {
			query += "&"
		}
		req.URL.RawQuery = query + url.QueryEscape(auth.Name) + "=" + url.QueryEscape(auth.Secret.Reveal())
	case OAuth2Auth:
		token, err := c.tokens.Token(ctx)
		if err != nil {
			return nil, auth.OAuth2.tokenFailure(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	case NoAuth:
	}
	return req, nil
}
