// Package source reads rows for a bulk load: JSON lines, CSV and Parquet, from a
// file or standard input, as they are or compressed with gzip or zstd.
//
// [Open] opens an input, which is a bulk.Source: each row is one JSON object, with its
// line. A row that cannot be read is an error for that row only and names its line. The
// size of a row is limited ([Options].MaxRow), and so is the memory.
//
// A file of rejected or uncertain rows of a load is recognized by its first line, and its
// rows are taken out of their envelopes.
//
// Standard input can be resumed only if it is a file (headway bulk run - < rows.jsonl): a
// pipe cannot be read again. An input is identified by its length and the hash of its first
// bytes. Do not change the middle of an input before it is resumed: that mixes up rows.
//
// A source is used by one goroutine. It reads no clock. To read from an API use package
// connector.
//
// Stability: settling.
package source

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/journal"
)

// Format is the format of an input.
type Format string

// The formats.
const (
	JSONLines Format = "jsonl"
	CSV       Format = "csv"
	Parquet   Format = "parquet"
)

// Options are the options of [Open]. Zero fields take the defaults.
type Options struct {
	// Format is the format. Default: by the name (.csv, .parquet, .jsonl, .ndjson, .json,
	// each also with .gz or .zst), and JSON lines for standard input.
	Format Format
	// MaxRow bounds a row in bytes. Default 1 MiB.
	MaxRow int
	// CSV is for that format only.
	CSV CSVOptions
	// Stdin is read for the name "-". Default nil: there is none.
	Stdin *os.File
}

// DefaultMaxRow is the default of [Options].
const DefaultMaxRow = 1 << 20

const (
	// hashed is the number of first bytes that are hashed to identify an input.
	hashed = 64 << 10
	// maxWindow bounds what a zstd frame may ask to be kept in memory.
	maxWindow = 8 << 20
)

// Input is an open input. It is a bulk.Source.
type Input struct {
	identity journal.Input
	rows     interface{ Next() (bulk.Row, error) }
	closers  []func() error
	total    int64 // number of rows; 0 if unknown
	text     int64 // bytes of text; 0 if unknown
}

// Estimate estimates the number of rows of the input, given that read rows were read up to
// the one that begins at offset. 0 means unknown. It may be called while another goroutine
// reads.
func (i *Input) Estimate(read, offset int64) int64 {
	switch {
	case i.total > 0:
		return i.total
	case i.text == 0 || offset == 0 || read < 2:
		return 0
	}
	// Offset is where the last row begins, so it counts the rows before that one.
	return max(int64(float64(read-1)*float64(i.text)/float64(offset)), read)
}

// Next returns the next row.
func (i *Input) Next() (bulk.Row, error) { return i.rows.Next() }

// Identity identifies the input.
func (i *Input) Identity() journal.Input { return i.identity }

// Close closes the input. Standard input stays open.
func (i *Input) Close() error {
	var err error
	for _, closer := range slices.Backward(i.closers) {
		err = errors.Join(err, closer())
	}
	i.closers = nil
	return err
}

// Open opens the named input; "-" is standard input. It recognizes compression by the first
// bytes.
func Open(name string, o Options) (in *Input, err error) {
	o.MaxRow = cmp.Or(o.MaxRow, DefaultMaxRow)
	if o.Format == "" {
		if o.Format = formatOf(name); o.Format == "" {
			return nil, fmt.Errorf("source: %s: the format does not follow from the name: set it to jsonl, csv or parquet", name)
		}
	}
	switch {
	case o.MaxRow < 1 || o.MaxRow > 1<<30:
		return nil, fmt.Errorf("source: max row is %d bytes, must be from 1 to %d", o.MaxRow, 1<<30)
	case o.Format != JSONLines && o.Format != CSV && o.Format != Parquet:
		return nil, fmt.Errorf("source: format is %q, must be jsonl, csv or parquet", o.Format)
	}
	if o.Format == CSV {
		if o.CSV, err = o.CSV.resolve(); err != nil {
			return nil, err
		}
	}
	in = &Input{}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
			in = nil
		}
	}()
	f := o.Stdin
	if name != "-" {
		if f, err = os.Open(name); err != nil {
			return in, fmt.Errorf("source: %w", err)
		}
		in.closers = append(in.closers, f.Close)
	} else if f == nil {
		return in, errors.New("source: there is no standard input")
	}
	return in, in.open(f, name, o)
}

func (i *Input) open(f *os.File, name string, o Options) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	i.identity = journal.Input{Name: name, Format: o.describe()}
	regular := info.Mode().IsRegular()
	if info.IsDir() {
		return fmt.Errorf("source: %s is a folder, must be a file", name)
	}
	if regular {
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(f, 0, hashed)); err != nil {
			return fmt.Errorf("source: %s: %w", name, err)
		}
		i.identity.Size, i.identity.Hash = info.Size(), hex.EncodeToString(sum.Sum(nil)[:16])
		i.identity.Modified = info.ModTime().UTC()
	}
	if o.Format == Parquet {
		if !regular {
			return fmt.Errorf("source: %s is a stream, and Parquet is read from its end: save it to a file", name)
		}
		p, err := openParquet(f, info.Size(), o.MaxRow)
		if err != nil {
			return fmt.Errorf("source: %s: %w", name, err)
		}
		i.closers = append(i.closers, p.Close)
		i.rows, i.total = p, p.total
		return nil
	}
	opened := len(i.closers)
	text, err := i.decompress(bufio.NewReaderSize(f, 64<<10))
	if err != nil {
		return fmt.Errorf("source: %s: %w", name, err)
	}
	if regular && len(i.closers) == opened {
		i.text = info.Size() // it is not compressed
	}
	if o.Format == CSV {
		i.rows, err = newCSV(text, o.MaxRow, o.CSV)
	} else {
		i.rows, err = newJSONLines(text, o.MaxRow)
	}
	if err != nil {
		return fmt.Errorf("source: %s: %w", name, err)
	}
	return nil
}

// decompress looks at the first bytes.
func (i *Input) decompress(r *bufio.Reader) (io.Reader, error) {
	magic, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		i.closers = append(i.closers, z.Close)
		return z, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		i.closers = append(i.closers, func() error { z.Close(); return nil })
		return z, nil
	}
	return r, nil
}

// describe returns the format with all options that affect the rows.
func (o Options) describe() string {
	s := fmt.Sprintf("%s, rows of at most %d bytes", o.Format, o.MaxRow)
	if o.Format == CSV {
		s += ", " + o.CSV.describe()
	}
	return s
}

func formatOf(name string) Format {
	if name == "-" {
		return JSONLines
	}
	name = strings.ToLower(name)
	for _, suffix := range []string{".gz", ".zst", ".zstd"} {
		name = strings.TrimSuffix(name, suffix)
	}
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson", ".json":
		return JSONLines
	case ".csv":
		return CSV
	case ".parquet":
		return Parquet
	}
	return ""
}
