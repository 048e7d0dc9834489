// Package samples keeps what connections did in the last hour and the last day, at even
// steps: rate, ceiling, refusals and how many waited. Charts are drawn from it.
//
// A [Book] takes looks at connections and gives [Series]. Its size is bounded: some
// 10 KiB a connection, and [MaxConnections] of them. What nobody looked at is unknown,
// never 0. [Book.Encode] and [Decode] carry it over a restart.
//
// It reads no clock and no file. A Book is safe for concurrent use.
package samples

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Span is a stretch of time up to now.
type Span string

// The spans: an hour in steps of 10 s, and a day in steps of 5 min.
const (
	Hour Span = "hour"
	Day  Span = "day"
)

// Of parses a span; empty is [Hour].
func Of(text string) (Span, bool) {
	switch s := Span(text); s {
	case "":
		return Hour, true
	case Hour, Day:
		return s, true
	}
	return "", false
}

// MaxConnections bounds the connections of a book. A further one replaces the one whose
// last look is the oldest.
const MaxConnections = 5000

// maxName is the longest name of a connection that is kept, in bytes.
const maxName = 16 << 10

// steps are the lengths of a step and how many a span has.
var steps = map[Span]struct {
	step  time.Duration
	cells int
}{Hour: {10 * time.Second, 360}, Day: {5 * time.Minute, 288}}

// A Look is one connection at an instant.
type Look struct {
	Connection string
	// Known says that Rate and Ceiling are known, in attempts a minute. The
	// ceiling is 0 where the owner set no ceiling.
	Known         bool
	Rate, Ceiling float64
	// Refused counts the attempts that were refused for rate or load since the beginning
	// of what Epoch names, such as a run.
	Refused int64
	Epoch   string
	// Waiting counts those who wait for their turn.
	Waiting int
}

// Figures are numbers at even steps; NaN is unknown, and null in JSON.
type Figures []float32

// MarshalJSON writes them with four digits.
func (f Figures) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 6*len(f)+2)
	b = append(b, '[')
	for i, v := range f {
		if i > 0 {
			b = append(b, ',')
		}
		if v := float64(v); math.IsNaN(v) || math.IsInf(v, 0) {
			b = append(b, "null"...)
		} else if v == math.Trunc(v) && math.Abs(v) < 1e9 {
			b = strconv.AppendInt(b, int64(v), 10)
		} else {
			b = strconv.AppendFloat(b, v, 'g', 4, 32)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads numbers and nulls.
func (f *Figures) UnmarshalJSON(b []byte) error {
	var all []*float32
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*f = make(Figures, len(all))
	for i, v := range all {
		(*f)[i] = unknown
		if v != nil {
			(*f)[i] = *v
		}
	}
	return nil
}

var unknown = float32(math.NaN())

// Series is a connection over a span, oldest step first.
type Series struct {
	Connection string `json:"connection"`
	Span       Span   `json:"span"`
	// Source is "samples", or "runs" where only the traces of runs have it: then
	// refusals and waiting are unknown.
	Source string `json:"source"`
	// Start is when the first step begins.
	Start time.Time `json:"start"`
	// StepS is the length of a step in seconds.
	StepS int `json:"step_s"`
	// RatePerMin is the mean rate of pacing in the step, CeilingPerMin what the owner
	// allows, where 0 means that no ceiling is set. Null is unknown.
	RatePerMin    Figures `json:"rate_per_min"`
	CeilingPerMin Figures `json:"ceiling_per_min"`
	// Refused counts the attempts of the step that the provider refused for rate or load.
	Refused Figures `json:"refused"`
	// Waiting is the maximum number that waited at once.
	Waiting Figures `json:"waiting"`
}

// Known says that a step is known at all.
func (s *Series) Known() bool {
	for i := range s.RatePerMin {
		if s.RatePerMin[i] == s.RatePerMin[i] || s.Refused[i] == s.Refused[i] {
			return true
		}
	}
	return false
}

// empty returns a series without known steps.
func empty(name string, span Span, now time.Time) Series {
	at := steps[span]
	slot := now.UnixNano()/int64(at.step) - int64(at.cells) + 1
	s := Series{Connection: name, Span: span, Source: "samples", Start: time.Unix(0, slot*int64(at.step)).UTC(), StepS: int(at.step / time.Second)}
	for _, column := range []*Figures{&s.RatePerMin, &s.CeilingPerMin, &s.Refused, &s.Waiting} {
		*column = make(Figures, at.cells)
		for i := range *column {
			(*column)[i] = unknown
		}
	}
	return s
}

// A Stretch is a time in which a rate was in force.
type Stretch struct {
	From, To      time.Time
	Rate, Ceiling float64 // in attempts a minute; a rate of 0 is unknown
}

// Drawn returns a series made of the traces of runs, for a connection without looks.
// Later stretches replace earlier ones.
func Drawn(name string, span Span, now time.Time, all []Stretch) Series {
	s := empty(name, span, now)
	s.Source = "runs"
	step := steps[span].step
	for _, one := range all {
		if one.Rate <= 0 || one.To.Before(s.Start) {
			continue
		}
		for i := max(0, int(one.From.Sub(s.Start)/step)); i < len(s.RatePerMin) && !s.Start.Add(time.Duration(i)*step).After(one.To); i++ {
			s.RatePerMin[i], s.CeilingPerMin[i] = float32(one.Rate), float32(one.Ceiling)
		}
	}
	return s
}

// cell is one step of one connection.
type cell struct{ rate, ceiling, refused, waiting float32 }

var nothing = cell{unknown, unknown, unknown, unknown}

// ring are the latest steps; that of slot n is at n modulo its length. Those before
// newest-len+1 are forgotten.
type ring struct {
	cells  []cell
	newest int64
	rates  int // looks that knew a rate in the newest step
}

func newRing(span Span) ring {
	r := ring{cells: make([]cell, steps[span].cells), newest: math.MinInt64}
	r.clear()
	return r
}

func (r *ring) clear() {
	for i := range r.cells {
		r.cells[i] = nothing
	}
}

// at is the cell of a slot; nil if it is forgotten.
func (r *ring) at(slot int64) *cell {
	n := int64(len(r.cells))
	if slot > r.newest || slot <= r.newest-n {
		return nil
	}
	return &r.cells[((slot%n)+n)%n]
}

// add counts a look in its slot.
func (r *ring) add(slot int64, l Look, refused int64) {
	n := int64(len(r.cells))
	switch {
	case slot == r.newest:
	case slot > r.newest && slot-r.newest < n && r.newest != math.MinInt64:
		for r.newest < slot {
			r.newest++
			*r.at(r.newest) = nothing
		}
		r.rates = 0
	case slot > r.newest || slot <= r.newest-n: // nobody looked for long, or the clock was set back for as long
		r.clear()
		r.newest, r.rates = slot, 0
	default: // the clock was set back a little: the newest step takes it
		slot = r.newest
	}
	c := r.at(slot)
	if l.Known && !math.IsNaN(l.Rate) && !math.IsInf(l.Rate, 0) {
		r.rates++
		if c.rate != c.rate {
			c.rate = 0
		}
		c.rate += (float32(l.Rate) - c.rate) / float32(r.rates)
		c.ceiling = float32(l.Ceiling)
	}
	if c.refused != c.refused {
		c.refused, c.waiting = 0, 0
	}
	c.refused += float32(refused)
	c.waiting = max(c.waiting, float32(l.Waiting))
}

// record is one connection.
type record struct {
	rings   [2]ring // of hour and day
	refused int64
	epoch   string
}

var spans = [2]Span{Hour, Day}

func newRecord() *record { return &record{rings: [2]ring{newRing(Hour), newRing(Day)}} }

// Book keeps the samples of connections. The zero value is ready.
type Book struct {
	mu  sync.Mutex
	all map[string]*record
}

// Add takes looks of the same instant.
func (b *Book) Add(now time.Time, looks []Look) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range looks {
		r := b.all[l.Connection]
		if r == nil {
			if len(l.Connection) > maxName {
				continue
			}
			r = newRecord()
			b.put(l.Connection, r)
		}
		refused := l.Refused - r.refused
		if r.epoch != l.Epoch || refused < 0 {
			refused = l.Refused
		}
		r.refused, r.epoch = l.Refused, l.Epoch
		for i, span := range spans {
			r.rings[i].add(now.UnixNano()/int64(steps[span].step), l, refused)
		}
	}
}

// put adds a record. The caller holds the lock.
func (b *Book) put(name string, r *record) {
	if b.all == nil {
		b.all = map[string]*record{}
	}
	if len(b.all) >= MaxConnections {
		oldest := ""
		for name, one := range b.all {
			if oldest == "" || one.rings[0].newest < b.all[oldest].rings[0].newest {
				oldest = name
			}
		}
		delete(b.all, oldest)
	}
	b.all[name] = r
}

// Series is a connection over a span up to now; false if it is not known at all.
func (b *Book) Series(name string, span Span, now time.Time) (Series, bool) {
	s := empty(name, span, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.all[name]
	if r == nil {
		return s, false
	}
	at := &r.rings[0]
	if span == Day {
		at = &r.rings[1]
	}
	first := s.Start.UnixNano() / int64(steps[span].step)
	for i := range s.RatePerMin {
		if c := at.at(first + int64(i)); c != nil {
			s.RatePerMin[i], s.CeilingPerMin[i], s.Refused[i], s.Waiting[i] = c.rate, c.ceiling, c.refused, c.waiting
		}
	}
	return s, true
}

// Spark is the rate of a connection over the last hour, in few steps.
type Spark struct {
	Connection string `json:"connection"`
	// Start is when the first step begins, and StepS its length in seconds.
	Start time.Time `json:"start"`
	StepS int       `json:"step_s"`
	// RatePerMin is the mean of what is known of the rate in each step; null is unknown.
	RatePerMin Figures `json:"rate_per_min"`
}

// sparkCells is how many steps of the hour are one of a [Spark].
const sparkCells = 10

// Sparks are the rates of all connections over the hour up to now, by name.
func (b *Book) Sparks(now time.Time) []Spark {
	step := steps[Hour].step
	last := now.UnixNano() / int64(step*sparkCells)
	n := int64(steps[Hour].cells / sparkCells)
	first := (last - n + 1) * sparkCells
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Spark, 0, len(b.all))
	for name, r := range b.all {
		s := Spark{Connection: name, Start: time.Unix(0, first*int64(step)).UTC(), StepS: int(step.Seconds()) * sparkCells, RatePerMin: make(Figures, n)}
		for i := range s.RatePerMin {
			s.RatePerMin[i] = unknown
			known := float32(0)
			for j := range int64(sparkCells) {
				if c := r.rings[0].at(first + int64(i)*sparkCells + j); c != nil && c.rate == c.rate {
					if known++; known == 1 {
						s.RatePerMin[i] = 0
					}
					s.RatePerMin[i] += (c.rate - s.RatePerMin[i]) / known
				}
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Spark) int { return strings.Compare(a.Connection, b.Connection) })
	return all
}

// FileName is the name of the file in a folder of state.
const FileName = "samples.gz"

// MaxSize bounds the file, in bytes; it is far more than [MaxConnections] take.
const MaxSize = 128 << 20

// magic begins what is encoded; its last letter is the version.
const magic = "headway samples 1\n"

// Encode returns the book as the bytes of a file, without connections whose last look is
// more than a day ago.
func (b *Book) Encode(now time.Time) ([]byte, error) {
	var raw bytes.Buffer
	raw.WriteString(magic)
	b.mu.Lock()
	for name, r := range b.all {
		if day := &r.rings[1]; day.newest <= now.UnixNano()/int64(steps[Day].step)-int64(len(day.cells)) {
			continue
		}
		buf := binary.AppendUvarint(raw.AvailableBuffer(), uint64(len(name)))
		buf = append(buf, name...)
		for i := range r.rings {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(r.rings[i].newest))
			for _, c := range r.rings[i].cells {
				for _, v := range [...]float32{c.rate, c.ceiling, c.refused, c.waiting} {
					buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
				}
			}
		}
		raw.Write(buf)
	}
	b.mu.Unlock()
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(raw.Bytes())
	}
	if err == nil {
		err = z.Close()
	}
	return packed.Bytes(), err
}

// Decode reads the result of Encode. It returns an error for other or damaged data.
func Decode(data []byte) (*Book, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("not a file of samples: %w", err)
	}
	in := bufio.NewReader(z)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(in, head); err != nil || string(head) != magic {
		return nil, errors.New("not a file of samples of this version")
	}
	b := &Book{all: map[string]*record{}}
	for {
		size, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil || size > maxName || len(b.all) == MaxConnections {
			return nil, errors.New("the file of samples is damaged")
		}
		name := make([]byte, size)
		r := newRecord()
		cells := make([]byte, 8+16*max(len(r.rings[0].cells), len(r.rings[1].cells)))
		_, err = io.ReadFull(in, name)
		for i := range r.rings {
			part := cells[:8+16*len(r.rings[i].cells)]
			if _, e := io.ReadFull(in, part); e != nil && err == nil {
				err = e
			}
			r.rings[i].newest = int64(binary.LittleEndian.Uint64(part))
			for n := range r.rings[i].cells {
				at := part[8+16*n:]
				v := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(at[4*i:])) }
				r.rings[i].cells[n] = cell{v(0), v(1), v(2), v(3)}
			}
			r.rings[i].rates = 1 // the mean of the newest step goes on from what it is
		}
		if err != nil {
			return nil, fmt.Errorf("the file of samples is damaged: %w", err)
		}
		b.all[string(name)] = r
	}
}
