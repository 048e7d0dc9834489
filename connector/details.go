package connector

// DetailObserver is a [Caller] that observes how the pages of a detail were
// found. [Connector.Detail] calls it after the last page of each detail.
type DetailObserver interface {
	// DetailWalked takes the walk over one detail of a stream of details. It is safe
	// for concurrent use.
	DetailWalked(stream string, w *Walked)
}

// DetailsWalked gathers what the walks over the details of one stream show. The
// zero value has none. It is not safe for concurrent use.
type DetailsWalked struct {
	paged           bool // one had more than one page
	unmatched, full int64
}

// Add takes the walk over one detail.
func (d *DetailsWalked) Add(w *Walked) {
	d.paged = d.paged || w.pages > 1
	if w.end == EndUnmatched && w.last > 0 {
		d.unmatched++
	}
	// Of many details some have by chance as many records as a page holds: only
	// where the provider does not say that they end it is a sign.
	if w.ended && w.end != EndSaid && w.full() {
		d.full++
	}
}

// Warnings draws the conclusions. That the paging expression found nothing says
// something of a first collection only: what changed later may be short.
func (d *DetailsWalked) Warnings(stream string, first bool) []Warning {
	switch {
	case first && !d.paged && d.unmatched > 0:
		return []Warning{{Kind: DetailPagingUnmatched, Stream: stream, Records: d.unmatched}}
	case d.full > 0:
		return []Warning{{Kind: DetailFullLastPage, Stream: stream, Records: d.full}}
	}
	return nil
}
