package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/bulk"
)

// parquetRows reads the rows of a Parquet file, one row group after another.
type parquetRows struct {
	groups []parquet.RowGroup
	rows   parquet.Rows // of the current row group; nil before and after
	tree   *branch
	limit  int
	buffer []parquet.Row
	full   []parquet.Row // of the buffer, that are not given yet
	number int64
	total  int64
}

// rowsAtOnce is how many rows are read with one call.
const rowsAtOnce = 64

func openParquet(r io.ReaderAt, size int64, limit int) (p *parquetRows, err error) {
	defer guard(&err)
	if err := checkFooter(r, size); err != nil {
		return nil, fmt.Errorf("not a readable Parquet file: %w", err)
	}
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("not a readable Parquet file: %w", err)
	}
	tree, err := newTree(f.Root())
	if err != nil {
		return nil, err
	}
	return &parquetRows{groups: f.RowGroups(), tree: tree, total: f.NumRows(), limit: limit, buffer: make([]parquet.Row, rowsAtOnce)}, nil
}

// maxFooter is the maximum size of a file's footer, which is read at once.
const maxFooter = 64 << 20

// checkFooter checks the length of the footer, since the library allocates memory for it
// before it compares it with the size of the file.
func checkFooter(r io.ReaderAt, size int64) error {
	var tail [8]byte
	if size < 12 {
		return errors.New("it is too short")
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return err
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > min(size-12, maxFooter) {
		return fmt.Errorf("its footer has an invalid length of %d bytes", n)
	}
	return nil
}

// guard converts a panic of the library, which does not validate files, to an error.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the Parquet file is damaged: %v", r)
	}
}

// Next returns the next row.
func (p *parquetRows) Next() (row bulk.Row, err error) {
	defer guard(&err)
	for len(p.full) == 0 {
		if err := p.fill(); err != nil {
			return bulk.Row{}, err
		}
	}
	values := p.full[0]
	p.full = p.full[1:]
	p.number++
	data, err := p.tree.json(values)
	if err == nil && len(data) > p.limit {
		data, err = nil, fmt.Errorf("it is longer than %d bytes", p.limit)
	}
	if err != nil {
		return bulk.Row{}, &bulk.MalformedError{Err: fmt.Errorf("row %d: %w", p.number, err)}
	}
	return bulk.Row{Data: data}, nil
}

// fill reads more rows.
func (p *parquetRows) fill() error {
	if p.rows == nil {
		if len(p.groups) == 0 {
			return io.EOF
		}
		p.rows = p.groups[0].Rows()
		p.groups = p.groups[1:]
	}
	for i := range p.buffer {
		p.buffer[i] = p.buffer[i][:0]
	}
	n, err := p.rows.ReadRows(p.buffer)
	p.full = p.buffer[:n]
	switch {
	case errors.Is(err, io.EOF):
		err = p.rows.Close()
		p.rows = nil
	case err == nil && n == 0:
		err = io.ErrNoProgress
	}
	if err != nil {
		return fmt.Errorf("the Parquet file cannot be read after row %d: %w", p.number+int64(n), err)
	}
	return nil
}

// Close ends reading. It does not close the file.
func (p *parquetRows) Close() (err error) {
	defer guard(&err)
	if p.rows == nil {
		return nil
	}
	return p.rows.Close()
}
