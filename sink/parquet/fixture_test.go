package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/folder"
	"github.com/headway-go/headway/sink/internal/sinktest"
)

// sample are the streams of most tests: a list and its details.
var sample = []collect.StreamInfo{{Name: "talks"}, {Name: "messages", Parent: "talks"}}

// small is a sink whose parts are complete after a few records.
func small(dir string) *Sink {
	s := New(dir)
	s.target = 200
	return s
}

// opened gives an open sink that closes with the test.
func opened(t *testing.T, s *Sink, committed json.RawMessage) *Sink {
	t.Helper()
	if err := s.Open(t.Context(), committed, sample); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t sinktest.TB, s *Sink, stream string, records ...collect.Record) {
	t.Helper()
	if err := s.Write(t.Context(), stream, records); err != nil {
		t.Fatal(err)
	}
}

func synced(t sinktest.TB, s *Sink) json.RawMessage {
	t.Helper()
	p, err := s.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closed(t sinktest.TB, s *Sink) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func plant(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// files lists a folder with what is hidden, but without the lock.
func files(t sinktest.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != folder.LockName {
			names = append(names, e.Name())
		}
	}
	return names
}

// row is a record as a reader of the parts has it.
type row struct {
	key, parent string
	value       any
}

// rows reads all parts of a stream, in their order, as the package comment says.
func rows(t sinktest.TB, dir, stream string) (all []row) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, stream, "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range parts {
		all = append(all, readPart(t, path)...)
	}
	return all
}

func readPart(t sinktest.TB, path string) (all []row) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	p, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range p.RowGroups() {
		r := group.Rows()
		buffer := make([]parquet.Row, 10)
		for {
			n, err := r.ReadRows(buffer)
			for _, read := range buffer[:n] {
				all = append(all, restored(t, p.Schema(), read))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func restored(t sinktest.TB, schema *parquet.Schema, values parquet.Row) (r row) {
	t.Helper()
	record, rest := map[string]any{}, map[string]any{}
	var whole []any // at most one
	for i, v := range values {
		if v.IsNull() {
			continue
		}
		f := schema.Fields()[i]
		switch name := f.Name(); name {
		case "_key":
			r.key = string(v.ByteArray())
		case "_parent":
			r.parent = string(v.ByteArray())
		case "_value":
			whole = append(whole, sinktest.Parsed(t, string(v.ByteArray())))
		case "_rest":
			rest = sinktest.Parsed(t, string(v.ByteArray())).(map[string]any)
		default:
			switch kindOf(f.Type()) {
			case field.Boolean:
				record[name] = v.Boolean()
			case field.Integer:
				record[name] = json.Number(fmt.Sprint(v.Int64()))
			case field.Real:
				b, err := json.Marshal(v.Double())
				if err != nil {
					t.Fatal(err)
				}
				record[name] = json.Number(b)
			case field.JSON:
				record[name] = sinktest.Parsed(t, string(v.ByteArray()))
			default:
				record[name] = string(v.ByteArray())
			}
		}
	}
	if len(whole) > 0 {
		r.value = whole[0]
		return r
	}
	maps.Copy(record, rest)
	r.value = record
	return r
}

// rowOf is a record as it should be read back.
func rowOf(t sinktest.TB, r collect.Record) row {
	t.Helper()
	return row{r.Key, r.Parent, sinktest.Parsed(t, string(r.Data))}
}

func sameRow(a, b row) bool {
	return a.key == b.key && a.parent == b.parent && sinktest.Same(a.value, b.value)
}
