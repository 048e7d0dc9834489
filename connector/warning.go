package connector

import (
	"fmt"

	"github.com/headway-go/headway/internal/figure"
)

// End is how the connector knows that a page is the last one.
type End uint8

// The ways in which a list ends.
const (
	// EndUnknown: the connector does not say.
	EndUnknown End = iota
	// EndSaid: the provider said that there is no page after this one.
	EndSaid
	// EndSilent: nothing in the answer speaks of a page after this one.
	EndSilent
	// EndUnmatched: the field that would name the page after this one is missing.
	EndUnmatched
)

// WarningKind is a stable name for a [Warning].
type WarningKind string

// The kinds of warning.
const (
	// PagingUnmatched: the paging expression found nothing, not even a null, in
	// the only page.
	PagingUnmatched WarningKind = "paging_unmatched"
	// FullLastPage: the list ended on a page that is full.
	FullLastPage WarningKind = "full_last_page"
	// IncrementalNull: no record has a value of the incremental expression.
	IncrementalNull WarningKind = "incremental_null"
	// DetailPagingUnmatched and DetailFullLastPage are the same of details.
	DetailPagingUnmatched WarningKind = "detail_paging_unmatched"
	DetailFullLastPage    WarningKind = "detail_full_last_page"
	// TombstonesMissing: records of details vanished whose keys nobody knows any
	// more, as an earlier version kept none, so the sink does not say that they are gone.
	TombstonesMissing WarningKind = "tombstones_missing"
	// KeySetAside: the provider refuses one of several keys, whose name stands for the
	// stream; the others went on. Records is the status.
	KeySetAside WarningKind = "key_set_aside"
)

// Warning is a sign that a list or its details are not read as their provider
// means them, so that the sink may not be as it should though nothing failed.
type Warning struct {
	Kind   WarningKind `json:"kind"`
	Stream string      `json:"stream"`
	// Records is how many records the warning is drawn from: those of the last
	// page, or of incremental_null all that were seen. Of the kinds that begin with
	// detail it is how many details.
	Records int64 `json:"records"`
}

// String is one line that says what is suspect and where to look.
func (w Warning) String() string {
	text := string(w.Kind)
	switch w.Kind {
	case KeySetAside:
		return fmt.Sprintf("key %s was refused with status %d where another was not, and set aside: the other keys went on; renew it or take it out of provider.keys", w.Stream, w.Records)
	case DetailPagingUnmatched:
		text = fmt.Sprintf("the paging expression found nothing in any detail (%s), and each was taken for one page; if there are more, look at detail.paginate", figure.Count(w.Records))
	case DetailFullLastPage:
		text = fmt.Sprintf("details ended on a full page (%s); if there are more, look at detail.paginate", figure.Count(w.Records))
	case TombstonesMissing:
		text = fmt.Sprintf("the provider no longer has %s records, and the sink cannot say which: they were collected by an earlier version, which did not keep their keys; \"collect --fresh\" collects all again without them", figure.Count(w.Records))
	case PagingUnmatched:
		text = fmt.Sprintf("the paging expression found nothing in the first page (%s records), which was taken for the only one; if there are more, look at paginate", figure.Count(w.Records))
	case FullLastPage:
		text = fmt.Sprintf("the list ended on a full page (%s records); if there are more, look at paginate, or at how far the provider lets a list be read", figure.Count(w.Records))
	case IncrementalNull:
		text = fmt.Sprintf("the incremental expression gave null for every record (%s), so each run lists everything again; look at incremental.cursor", figure.Count(w.Records))
	}
	return "stream " + w.Stream + ": " + text
}

// Walked gathers what the pages of one walk show. The zero value is a walk that
// begins at the list's first page. It is not safe for concurrent use.
type Walked struct {
	// Later says that the first page added is not the list's first.
	Later bool

	pages, records, watermarks, last, asked int64
	uneven                                  bool // pages differ in size
	ended                                   bool
	end                                     End
}

// Add takes the next page of the walk.
func (w *Walked) Add(p Page) {
	for _, it := range p.Items {
		if it.Watermark != "" {
			w.watermarks++
		}
	}
	w.AddPage(len(p.Items)+len(p.Unread), p.Asked, p.Next == "", p.End)
}

// AddPage takes the next page by its size alone, as of a detail.
func (w *Walked) AddPage(records, asked int, last bool, end End) {
	n := int64(records)
	w.uneven = w.uneven || w.pages > 0 && n != w.last
	w.pages++
	w.records += n
	w.last, w.asked = n, int64(asked)
	w.ended, w.end = last, end
}

// Warnings draws the conclusions: of the pages so far, and of the list's end
// only once that was reached.
func (w *Walked) Warnings(s Stream) []Warning {
	var all []Warning
	only := w.ended && w.pages == 1 && !w.Later && w.last > 0
	if only && w.end == EndUnmatched {
		all = append(all, Warning{Kind: PagingUnmatched, Stream: s.Name, Records: w.last})
	} else if w.ended && w.full() {
		all = append(all, Warning{Kind: FullLastPage, Stream: s.Name, Records: w.last})
	}
	if s.Incremental && w.records > 0 && w.watermarks == 0 {
		all = append(all, Warning{Kind: IncrementalNull, Stream: s.Name, Records: w.records})
	}
	return all
}

// full reports whether the last page holds what a page of the list can hold. A
// size that was asked for decides. Without one, and where the provider did not
// say that the list ends, it is the size of all pages before, or for an only
// page a number that page sizes usually are.
func (w *Walked) full() bool {
	switch {
	case w.last < 2:
		return false
	case w.last == w.asked:
		return true
	case w.end != EndSilent && w.end != EndUnmatched || w.Later:
		return false
	case w.pages > 1:
		return !w.uneven
	}
	switch w.last {
	case 20, 25, 30, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10000:
		return true
	}
	return false
}
