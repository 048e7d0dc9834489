package connector_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/connector"
)

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
