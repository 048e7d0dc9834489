package connector_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// listed is a page of n records, with watermarks or without.
func listed(n int, watermark string, p connector.Page) connector.Page {
	for range n {
		p.Items = append(p.Items, connector.Item{Key: "k", Watermark: watermark})
	}
	return p
}

func TestWarnings(t *testing.T) {
	more := connector.Page{Next: "c", Asked: 100}
	said, silent, missing := connector.Page{End: connector.EndSaid}, connector.Page{End: connector.EndSilent}, connector.Page{End: connector.EndUnmatched}
	of := func(asked int, p connector.Page) connector.Page { p.Asked = asked; return p }
	one := func(kind connector.WarningKind, n int64) []connector.Warning {
		return []connector.Warning{{Kind: kind, Stream: "s", Records: n}}
	}
	for name, tt := range map[string]struct {
		pages       []connector.Page
		later       bool
		incremental bool
		want        []connector.Warning
	}{
		"a short list that says that it ends":         {pages: []connector.Page{listed(3, "", said)}},
		"an empty list":                               {pages: []connector.Page{listed(0, "", missing)}, incremental: true},
		"the field of the next page is missing":       {pages: []connector.Page{listed(3, "", missing)}, want: one(connector.PagingUnmatched, 3)},
		"it was there before":                         {pages: []connector.Page{listed(100, "", more), listed(3, "", missing)}},
		"it may have been there in a run before":      {pages: []connector.Page{listed(3, "", missing)}, later: true},
		"a full only page":                            {pages: []connector.Page{listed(7, "", of(7, said))}, want: one(connector.FullLastPage, 7)},
		"a full last page":                            {pages: []connector.Page{listed(100, "", more), listed(100, "", of(100, said))}, want: one(connector.FullLastPage, 100)},
		"a last page that is not full":                {pages: []connector.Page{listed(100, "", more), listed(99, "", of(100, said))}},
		"a full page that is not the last":            {pages: []connector.Page{listed(100, "", more)}},
		"a page of one":                               {pages: []connector.Page{listed(1, "", of(1, said))}},
		"an only page of a usual size":                {pages: []connector.Page{listed(50, "", silent)}, want: one(connector.FullLastPage, 50)},
		"of which the provider says that it is all":   {pages: []connector.Page{listed(50, "", said)}},
		"an only page of another size":                {pages: []connector.Page{listed(51, "", silent)}},
		"pages that are all alike":                    {pages: []connector.Page{listed(9, "", connector.Page{Next: "c"}), listed(9, "", silent)}, want: one(connector.FullLastPage, 9)},
		"pages that differ":                           {pages: []connector.Page{listed(8, "", connector.Page{Next: "c"}), listed(9, "", silent)}},
		"a usual size in the midst of a walk":         {pages: []connector.Page{listed(50, "", silent)}, later: true},
		"no watermark on any record":                  {pages: []connector.Page{listed(2, "", connector.Page{Next: "c"}), listed(3, "", said)}, incremental: true, want: one(connector.IncrementalNull, 5)},
		"a watermark on some":                         {pages: []connector.Page{listed(2, "w", connector.Page{Next: "c"}), listed(3, "", said)}, incremental: true},
		"no watermark where nothing asks for any":     {pages: []connector.Page{listed(3, "", said)}},
		"no watermark so far, and pages follow":       {pages: []connector.Page{listed(4, "", more)}, incremental: true, want: one(connector.IncrementalNull, 4)},
		"an only page of a size that was not reached": {pages: []connector.Page{listed(30, "", of(100, said))}},
	} {
		t.Run(name, func(t *testing.T) {
			w := connector.Walked{Later: tt.later}
			for _, p := range tt.pages {
				w.Add(p)
			}
			if diff := cmp.Diff(tt.want, w.Warnings(connector.Stream{Name: "s", Incremental: tt.incremental})); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsOfDetails(t *testing.T) {
	// walk is one detail of pages of these sizes, each of which was asked to hold asked.
	walk := func(end connector.End, asked int, sizes ...int) *connector.Walked {
		var w connector.Walked
		for i, n := range sizes {
			w.AddPage(n, asked, i == len(sizes)-1, end)
		}
		return &w
	}
	missing, silent, said := connector.EndUnmatched, connector.EndSilent, connector.EndSaid
	one := func(kind connector.WarningKind, n int64) []connector.Warning {
		return []connector.Warning{{Kind: kind, Stream: "s", Records: n}}
	}
	for name, tt := range map[string]struct {
		details []*connector.Walked
		later   bool
		want    []connector.Warning
	}{
		"none":                                 {},
		"the field is never there":             {details: []*connector.Walked{walk(missing, 0, 3), walk(missing, 0, 50)}, want: one(connector.DetailPagingUnmatched, 2)},
		"it is there in one":                   {details: []*connector.Walked{walk(missing, 0, 3), walk(missing, 0, 7, 2)}},
		"a few that changed later":             {details: []*connector.Walked{walk(missing, 0, 3)}, later: true},
		"empty details":                        {details: []*connector.Walked{walk(missing, 0, 0), walk(missing, 0, 0)}},
		"a full one later":                     {details: []*connector.Walked{walk(missing, 5, 5), walk(missing, 5, 3)}, later: true, want: one(connector.DetailFullLastPage, 1)},
		"full ones without paging":             {details: []*connector.Walked{walk(silent, 0, 100), walk(silent, 0, 100), walk(silent, 0, 99)}, want: one(connector.DetailFullLastPage, 2)},
		"a size that was asked for":            {details: []*connector.Walked{walk(silent, 7, 7)}, want: one(connector.DetailFullLastPage, 1)},
		"full by chance, as the provider says": {details: []*connector.Walked{walk(said, 5, 5), walk(said, 5, 5, 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			var d connector.DetailsWalked
			for _, w := range tt.details {
				d.Add(w)
			}
			if diff := cmp.Diff(tt.want, d.Warnings("s", !tt.later)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func ExampleFailure() {
	f := &connector.Failure{
		Method: http.MethodGet, Path: "/items/{key}", Status: 503,
		Reason: reason.UpstreamPressure.Reason(), Stopped: reason.RetryBudget.Reason(),
	}
	fmt.Println(f)
	// Output:
	// GET /items/{key}: 503 upstream_pressure (not retried: retry_budget)
}

func ExampleInvalid() {
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/items"}}
	f := connector.Invalid(req, &connector.Response{Status: 200}, errors.New("expected a list"))
	fmt.Println(f)
	// Output:
	// GET /items: 200 invalid_response: expected a list
}
