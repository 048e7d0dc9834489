package rest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-go/headway/connector"
)

// maxCursor bounds a cursor in bytes; providers do not accept longer URLs.
const maxCursor = 16 << 10

var errCursor = errors.New("the stored cursor is of another kind of paging than the connection's file: after such a change the stream has to start again")

// errSamePage reports that a page number or offset did not advance the list.
var errSamePage = errors.New("the page has the same records as the page before: is the name of the paging parameter right?")

// errEcho reports that a cursor would store the credential in the state.
var errEcho = errors.New("the next page's cursor holds the credential, and cursors are stored: it is not followed; have the provider leave the credential out")

// minSecret is the minimum length of a secret for which a cursor is searched. Shorter ones
// could match by coincidence.
const minSecret = 8

// echoed reports whether a cursor contains the credential of req, or one of the renewed
// tokens.
func (a Auth) echoed(cursor string, req *http.Request, renewed []string) bool {
	secrets := append([]string{a.Secret.Reveal()}, renewed...)
	if o := a.OAuth2; o != nil {
		token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		secrets = append(secrets, token, o.ClientSecret.Reveal(), o.RefreshToken.Reveal())
	}
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s))} {
			if strings.Contains(cursor, form) {
				return true
			}
		}
	}
	return false
}

// place sets the cursor in the query of the first page.
func (p Paginate) place(q url.Values, cursor string) error {
	if p.SizeParam != "" && p.Size > 0 {
		q.Set(p.SizeParam, strconv.FormatInt(p.Size, 10))
	}
	switch p.Kind {
	case CursorPaging:
		if cursor != "" {
			q.Set(p.Param, cursor)
		}
	case NumberPaging, OffsetPaging:
		at, _, err := p.position(cursor)
		if err != nil {
			return err
		}
		q.Set(p.Param, strconv.FormatInt(at, 10))
	default:
		if cursor != "" {
			return errCursor
		}
	}
	return nil
}

// promised reports whether the previous page supplied the cursor, and with it the promise
// of another page. Page numbers and offsets are increased until a page is empty.
func (p Paginate) promised() bool {
	return p.Kind == CursorPaging || p.Kind == LinkPaging || p.Kind == NextURLPaging
}

// answer is the part of a page that paging uses.
type answer struct {
	request *url.URL
	header  http.Header
	body    *datum // nil if there was no content
	cursor  string // the cursor of the request
	found   entries
}

// next returns the cursor of the next page, "" at the end. A cursor made from a URL leads
// to o and does not have the parameter secret.
func (p Paginate) next(ctx context.Context, o origin, secret string, a answer) (string, error) {
	next, err := "", error(nil)
	switch p.Kind {
	case CursorPaging:
		return p.fromBody(ctx, a.body)
	case NextURLPaging:
		next, err = p.fromBody(ctx, a.body)
	case LinkPaging:
		next, err = nextLink(a.header)
	case NumberPaging, OffsetPaging:
		return p.advance(a)
	default:
	}
	if err != nil || next == "" {
		return "", err
	}
	return o.relative(a.request, next, secret)
}

// end reports what the last page's body says about the end of the list.
func (p Paginate) end(body *datum) connector.End {
	switch p.Kind {
	case CursorPaging, NextURLPaging:
		if p.Next.missing(body) {
			return connector.EndUnmatched
		}
		return connector.EndSaid
	case NumberPaging, OffsetPaging:
		return connector.EndSaid // a page without records
	default:
		return connector.EndSilent
	}
}

// asked returns the requested page size of u; 0 if it is unknown. If the file does not name
// the parameter, common names are tried.
func (p Paginate) asked(u *url.URL) int {
	if p.Size > 0 {
		return int(p.Size)
	}
	query := u.Query()
	for _, kind := range []nameKind{sizeName, maybeSize} {
		for _, name := range slices.Sorted(maps.Keys(query)) {
			if n, err := strconv.Atoi(query.Get(name)); sizeNameOf(name) == kind && err == nil && n > 1 {
				return n
			}
		}
	}
	return 0
}

// nameKind says how likely a parameter is a page size.
type nameKind int

const (
	notSize   nameKind = iota
	maybeSize          // it may be a filter too
	sizeName
)

// sizeNames are common names for a page size, in lower case and without separators.
var sizeNames = map[string]nameKind{
	"limit": sizeName, "perpage": sizeName, "maxpage": sizeName, "pagesize": sizeName, "pagelimit": sizeName,
	"maxresults": sizeName, "resultsperpage": sizeName,
	"size": maybeSize, "first": maybeSize, "top": maybeSize, "count": maybeSize, "rows": maybeSize, "take": maybeSize,
}

var betweenWords = strings.NewReplacer("$", "", "-", "", "_", "", "[", "", "]", "")

func sizeNameOf(parameter string) nameKind {
	return sizeNames[betweenWords.Replace(strings.ToLower(parameter))]
}

// fromBody evaluates the paging expression. null, false and "" mean the end.
func (p Paginate) fromBody(ctx context.Context, body *datum) (string, error) {
	if body == nil {
		return "", nil
	}
	v, err := p.Next.one(ctx, body)
	if err != nil {
		return "", fmt.Errorf("paging expression %s %w", p.Next, err)
	}
	s, ok := v.text()
	switch {
	case v.kind() == kindNull || v.kind() == kindBoolean && string(v.bytes()) == "false":
		return "", nil
	case !ok || v.kind() == kindNumber && p.Kind == NextURLPaging:
		return "", fmt.Errorf("paging expression %s gave %s, want a text or null", p.Next, article(v.kind()))
	case len(s) > maxCursor:
		return "", fmt.Errorf("paging expression %s gave a text of %d bytes, at most %d are a cursor", p.Next, len(s), maxCursor)
	}
	return s, nil
}

// position parses a page number or offset, and the digest of the previous page.
func (p Paginate) position(cursor string) (at int64, digest string, err error) {
	if cursor == "" {
		return p.Start, "", nil
	}
	number, digest, _ := strings.Cut(cursor, ".")
	if at, err = strconv.ParseInt(number, 10, 64); err != nil || at < 0 {
		return 0, "", errCursor
	}
	return at, digest, nil
}

// advance returns the next page number or offset. Only an empty page is the end: a short
// one may have been filtered by the provider, or the provider may use a smaller page size.
// The cursor contains a digest of the page's keys, to detect a list that does not advance.
func (p Paginate) advance(a answer) (string, error) {
	if a.found.count == 0 {
		return "", nil
	}
	at, before, err := p.position(a.cursor)
	if err != nil {
		return "", err
	}
	sum := fnv.New64a()
	for _, e := range a.found.read {
		_, _ = sum.Write(append([]byte(e.key), 0))
	}
	for _, b := range a.found.bad {
		_, _ = sum.Write(b.data)
	}
	digest := strconv.FormatUint(sum.Sum64(), 16)
	if digest == before {
		return "", errSamePage
	}
	step := int64(1)
	if p.Kind == OffsetPaging {
		step = int64(a.found.count)
	}
	return strconv.FormatInt(at+step, 10) + "." + digest, nil
}
