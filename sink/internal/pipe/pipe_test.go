package pipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/golden"
)

// broken takes some bytes and then fails.
type broken struct {
	bytes.Buffer
	room int
	err  error
}

func (b *broken) Write(p []byte) (int, error) {
	n := min(len(p), b.room)
	b.room -= n
	_, _ = b.Buffer.Write(p[:n])
	if n < len(p) {
		return n, b.err
	}
	return n, nil
}

func TestOnlyWholeMessagesAreHandedOver(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter("x", &out)
	line := []byte(`"` + strings.Repeat("x", 1000) + `"`)
	for range 200 {
		if err := w.Line(line); err != nil {
			t.Fatal(err)
		}
		if n := out.Len(); n%(len(line)+1) != 0 {
			t.Fatalf("%d bytes are not whole lines", n)
		}
	}
	if out.Len() == 0 || out.Len() == 200*(len(line)+1) {
		t.Fatalf("%d bytes are out before Flush, want some", out.Len())
	}
	w.Discard()
	before := out.Len()
	if err := w.Flush(); err != nil || out.Len() != before {
		t.Errorf("what was dropped came: %d bytes more, %v", out.Len()-before, err)
	}
	if err := errors.Join(w.Line([]byte("1")), w.Flush()); err != nil || !strings.HasSuffix(out.String(), "\"\n1\n") {
		t.Errorf("it does not go on: %v", err)
	}
}

func TestAfterAFailureNothingIsWritten(t *testing.T) {
	for err, says := range map[error]string{
		syscall.EPIPE: "has ended", io.ErrClosedPipe: "has ended", os.ErrClosed: "has ended", syscall.ENOSPC: "no space", io.ErrShortWrite: "x: write the output: short",
	} {
		out := &broken{room: 3, err: err}
		w := NewWriter("x", out)
		if err := w.Line([]byte(`"12345"`)); err != nil {
			t.Fatal(err)
		}
		if got := w.Flush(); !errors.Is(got, err) || !strings.Contains(got.Error(), says) {
			t.Errorf("got %v, want one that says %s", got, says)
		}
		out.room = 100 // the reader is back, in the middle of a line
		for _, got := range []error{w.Line([]byte("1")), w.Flush()} {
			if !errors.Is(got, err) || !strings.Contains(got.Error(), "earlier") {
				t.Errorf("afterwards: %v", got)
			}
		}
		if out.String() != `"12` {
			t.Errorf("the output is %s", out.String())
		}
	}
}

func TestAFileIsOnDiskAfterFlush(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter("x", f)
	if w.sync == nil {
		t.Fatal("a file is not synced")
	}
	if err := errors.Join(w.Line([]byte("1")), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "sync") {
		t.Errorf("got %v, want that the sync failed", err)
	}
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), pipe.Close() }()
	if NewWriter("x", pipe).sync != nil {
		t.Error("a pipe cannot be synced")
	}
}

func TestRecordsHoldTheirKeys(t *testing.T) {
	for _, c := range []struct {
		info collect.StreamInfo
		keys []string
		data string
		want string
	}{
		{collect.StreamInfo{Name: "s", KeyField: "id"}, []string{"id"}, `{"b":1, "id":"<k>"}`, `{"b":1,"id":"<k>"}`},
		{collect.StreamInfo{Name: "s"}, []string{KeyProperty}, `{"id":1}`, `{"_headway_key":"k<","id":1}`},
		{collect.StreamInfo{Name: "s"}, []string{KeyProperty}, `{}`, `{"_headway_key":"k<"}`},
		{collect.StreamInfo{Name: "s"}, []string{KeyProperty}, " [1,\n2]", `{"_headway_key":"k<","_headway_value":[1,2]}`},
		{collect.StreamInfo{Name: "s", Parent: "p"}, []string{ParentProperty, KeyProperty}, `null`, `{"_headway_parent":"\"p","_headway_key":"k<","_headway_value":null}`},
		{collect.StreamInfo{Name: "s", Parent: "p", KeyField: "id"}, []string{ParentProperty, "id"}, "{\"id\":-1,\n\"x\":{ }}", `{"_headway_parent":"\"p","id":-1,"x":{}}`},
		{collect.StreamInfo{Name: "s", KeyField: KeyProperty}, []string{KeyProperty}, `{"_headway_key":"own"}`, `{"_headway_key":"own"}`},
	} {
		s := NewStream(c.info)
		if !slices.Equal(s.Keys, c.keys) {
			t.Errorf("%+v has the keys %q, want %q", c.info, s.Keys, c.keys)
		}
		got, err := s.Records([]collect.Record{{Key: "k<", Parent: `"p`, Data: json.RawMessage(c.data)}})
		if err != nil {
			t.Errorf("%+v: %v", c.info, err)
			continue
		}
		if object := string(AppendObject(nil, got[0])); object != c.want {
			t.Errorf("%s becomes %s, want %s", c.data, object, c.want)
		}
	}
}

// FuzzMembers: the object made of an object's members is that object.
func FuzzMembers(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"a":[1,{"b":null}],"":"\u0000","a":1e400}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) || len(b) == 0 || b[0] <= ' ' {
			return
		}
		members, ok := Members(b)
		if ok != (b[0] == '{') {
			t.Fatalf("%q is an object: %v", b, ok)
		}
		if !ok {
			return
		}
		object := AppendObject(nil, members)
		again, ok := Members(object)
		if !ok || !slices.EqualFunc(members, again, func(a, b Member) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }) {
			t.Errorf("%q becomes %q", b, object)
		}
	})
}
