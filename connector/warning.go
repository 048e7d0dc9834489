package connector

import (
	"fmt"

	"github.com/headway-go/headway/internal/figure"
)

// End is how the connector knows that a page is the last one.
type End uint8

// How a list ends.
const (
	// EndUnknown: the connector does not report it.
	EndUnknown End = iota
	// EndSaid: the provider reported that this is the last page.
	EndSaid
	// EndSilent: the response says nothing about a next page.
	EndSilent
	// EndUnmatched: the field that would name the next page is missing.
	EndUnmatched
)

// WarningKind is a stable name for a [Warning].
type WarningKind string

// The kinds of warning.
const (
	// PagingUnmatched: the paging expression found nothing, not even null, in the only
	// page.
	PagingUnmatched WarningKind = "paging_unmatched"
	// FullLastPage: the last page of the list is full.
	FullLastPage WarningKind = "full_last_page"
	// IncrementalNull: no record has a value of the incremental expression.
	IncrementalNull WarningKind = "incremental_null"
	// DetailPagingUnmatched and DetailFullLastPage are the same for details.
	DetailPagingUnmatched WarningKind = "detail_paging_unmatched"
	DetailFullLastPage    WarningKind = "detail_full_last_page"
	// TombstonesMissing: detail records were deleted whose keys are unknown, since an
	// earlier version did not store them, so the sink cannot mark them.
	TombstonesMissing WarningKind = "tombstones_missing"
	// KeySetAside: the provider refuses one of several keys; the others are still used.
	// Stream is the name of the key, and Records the status.
	KeySetAside WarningKind = "key_set_aside"
)

// Warning is a sign that a list or its details may be incomplete or misread although
// nothing failed.
type Warning struct {
	Kind   WarningKind `json:"kind"`
	Stream string      `json:"stream"`
	// Records is the number of records behind the warning: those of the last page, or all
	// for incremental_null. For kinds that begin with detail it is the number of details.
	Records int64 `json:"records"`
}

// String describes the warning and what to check, in one line.
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

// Walked summarizes the pages of one walk. The zero value is a walk that begins at the
// list's first page. It is not safe for concurrent use.
type Walked struct {
	// Later reports that the first added page is not the list's first.
	Later bool

	pages, records, watermarks, last, asked int64
	uneven                                  bool // pages differ in size
	ended                                   bool
	end                                     End
}

// Add adds the next page of the walk.
func (w *Walked) Add(p Page) {
	for _, it := range p.Items {
		if it.Watermark != "" {
			w.watermarks++
		}
	}
	w.AddPage(len(p.Items)+len(p.Unread), p.Asked, p.Next == "", p.End)
}

// AddPage adds the next page by its size only, for a page of a detail.
func (w *Walked) AddPage(records, asked int, last bool, end End) {
	n := int64(records)
	w.uneven = w.uneven || w.pages > 0 && n != w.last
	w.pages++
	w.records += n
	w.last, w.asked = n, int64(asked)
	w.ended, w.end = last, end
}

// Warnings returns the warnings for the pages so far, and for the end of the list if it was
// reached.
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

// full reports whether the last page is full, that is, has the requested size. If that is
// unknown and the provider did not report the end, a page is full if it has the same size
// as all pages before, or, as the only page, a common page size.
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
