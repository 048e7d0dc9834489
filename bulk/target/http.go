package target

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

func (h *HTTP) traits() bulk.Traits {
	return bulk.Traits{Name: h.Method + " " + h.place(), MaxRows: h.MaxRows, MaxBytes: h.MaxBytes, Resend: h.Resend}
}

// place returns the URL with a hash instead of its query, which may be confidential.
func (h *HTTP) place() string {
	place, query, ok := strings.Cut(h.template, "?")
	if !ok {
		return place
	}
	sum := sha256.Sum256([]byte(query))
	return fmt.Sprintf("%s?(query %x)", place, sum[:4])
}

func (h *HTTP) path() string {
	if h.Single {
		place, _, _ := strings.Cut(h.template, "?")
		return h.Method + " " + place
	}
	return h.Method + " " + h.URL.Path
}

func (h *HTTP) request(ctx context.Context, b bulk.Batch) (*http.Request, map[int]bulk.Problem, error) {
	url := h.template
	if h.Single {
		var err error
		if url, err = fillURL(url, b.Rows[0]); err != nil {
			return nil, map[int]bulk.Problem{0: {Code: "unsendable", Message: err.Error()}}, nil
		}
	}
	req, err := http.NewRequestWithContext(ctx, h.Method, url, bytes.NewReader(h.Body.render(b)))
	if err != nil {
		return nil, nil, errors.New("invalid URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if h.KeyHeader != "" {
		req.Header.Set(h.KeyHeader, b.Key)
	}
	if h.Resend == dispatch.ResendNothing {
		req.GetBody = nil // else net/http sends it again by itself
	}
	return req, nil, nil
}

func (h *HTTP) served(ctx context.Context, a answer, n int) bulk.Outcome {
	ok := bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK}}
	if h.Answer.Rows == nil && h.Answer.Success == nil {
		return ok
	}
	ctx, cancel := context.WithTimeout(ctx, maxExpr)
	defer cancel()
	body, err := decode(a.body)
	if err != nil {
		return invalid(fmt.Errorf("the answer cannot be read: %w", err))
	}
	results := []any{body}
	if h.Answer.Rows != nil {
		found, err := h.Answer.Rows.First(ctx, body)
		if err != nil {
			return invalid(fmt.Errorf("the results cannot be found: %w", err))
		}
		list, isList := found.([]any)
		if !isList || len(list) != n {
			return invalid(fmt.Errorf("the answer has %d results for %d rows", len(list), n))
		}
		results = list
	}
	if err := h.results(ctx, a.status, results, n, &ok); err != nil {
		return invalid(fmt.Errorf("a result cannot be read: %w", err))
	}
	return ok
}

// results sets the outcome of each row from its result, or of all rows from a single
// result.
func (h *HTTP) results(ctx context.Context, status int, results []any, n int, o *bulk.Outcome) error {
	o.Rows, o.Problems = make([]dispatch.Verdict, n), make([]bulk.Problem, n)
	for i := range n {
		result := results[min(i, len(results)-1)]
		good := any(true)
		if h.Answer.Success != nil {
			var err error
			if good, err = h.Answer.Success.First(ctx, result); err != nil {
				return err
			}
		}
		if good != nil && good != false {
			o.Rows[i] = dispatch.Done
			continue
		}
		o.Rows[i] = dispatch.Refused
		o.Problems[i] = bulk.Problem{
			Status: status, Code: text(ctx, h.Answer.Code, result), Message: text(ctx, h.Answer.Message, result),
		}
	}
	return nil
}

func (h *HTTP) refusal(ctx context.Context, a answer, n int, o *bulk.Outcome) {
	if body, err := decode(a.body); err == nil {
		ctx, cancel := context.WithTimeout(ctx, maxExpr)
		defer cancel()
		p := bulk.Problem{Status: a.status, Code: text(ctx, h.Answer.Code, body), Message: text(ctx, h.Answer.Message, body)}
		if p.Message == "" {
			p.Message = excerpt(a.body)
		}
		o.Problems = []bulk.Problem{p}
	}
	switch {
	case slices.Contains(h.Answer.Divide, a.status):
		o.Divisible = true
	case h.Single && (a.status == http.StatusNotFound || a.status == http.StatusGone) && placeholder.MatchString(h.template):
		// The row refers to something that does not exist.
	default:
		o.Fatal = true
		o.Err = errors.New("no batch can succeed with this answer: correct the target")
	}
}

func (h *HTTP) allowance(*bulk.Outcome) {}
