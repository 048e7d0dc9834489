package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/collect"
)

// talks are the streams of a connection whose file's name is not its stream's.
var talks = []collect.StreamInfo{{Name: "t a"}, {Name: "other"}}

func TestAFileThatWasMovedAwayIsFollowedByANewOne(t *testing.T) {
	for name, rotate := range map[string]func(path string) error{
		"moved": func(path string) error { return os.Rename(path, path+".1") },
		"moved and made new": func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
		},
		"copied and emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := opened(t, dir, nil)
			put(t, s, "t a", `1`, `2`)
			put(t, s, "other", `1`)
			p := synced(t, s)
			closed(t, s)
			if err := rotate(filepath.Join(dir, "t_a.jsonl")); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a run that dies before its first commit changes nothing
				s = New(dir)
				if err := s.Open(t.Context(), p, talks); err != nil {
					t.Fatal(err)
				}
				is(t, "noticed", s.Noticed(), []collect.Change{{Kind: collect.SinkFileGone, Stream: "t a"}})
				die(s)
			}
			s = opened(t, dir, p)
			p = synced(t, s)
			is(t, "position", lengths(t, p), "map[other.jsonl:2]")
			put(t, s, "t a", `3`)
			p = synced(t, s)
			closed(t, s)
			s = opened(t, dir, p)
			is(t, "noticed", s.Noticed(), []collect.Change(nil))
			is(t, "the new file", content(t, dir, "t_a.jsonl"), "3\n")
			is(t, "the other", content(t, dir, "other.jsonl"), "1\n")
		})
	}
}

// TestDeathAtEachStepAfterARotation: what the first run wrote is moved away, the
// second dies at each step, and the third one ends.
func TestDeathAtEachStepAfterARotation(t *testing.T) {
	deaths := 0
	for step, dead := 0, true; dead; step++ {
		dir := t.TempDir()
		p, _, _ := collectUntil(t, dir, nil, []slice{{"a": {`1`}, "b": {`1`}}}, -1)
		if err := os.Rename(filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "a.jsonl.1")); err != nil {
			t.Fatal(err)
		}
		// The runtime commits the position that Open came to before anything is written.
		work := []slice{{}, {"a": {`2`}}, {"a": {`3`}, "b": {`3`}}}
		var done int
		p, done, dead = collectUntil(t, dir, p, work, step)
		if _, _, never := collectUntil(t, dir, p, work[done:], -1); never {
			t.Fatal("the last run died")
		}
		deaths++
		for name, want := range map[string]string{"a.jsonl.1": "1\n", "a.jsonl": "2\n3\n", "b.jsonl": "1\n3\n"} {
			if got := content(t, dir, name); got != want {
				t.Fatalf("death at %d: %s is %q, want %q", step, name, got, want)
			}
		}
	}
	if deaths < 10 {
		t.Errorf("%d deaths: the steps are not counted", deaths)
	}
}

func TestFilesThatWereMovedAlongAreRecognized(t *testing.T) {
	old, dir := t.TempDir(), filepath.Join(t.TempDir(), "new")
	s := opened(t, old, nil)
	put(t, s, "x", `1`)
	p := synced(t, s)
	closed(t, s)
	if New(dir).Recognizes(t.Context(), p) {
		t.Error("nothing is there, and it is recognized")
	}
	if err := os.Rename(old, dir); err != nil {
		t.Fatal(err)
	}
	if !New(dir).Recognizes(t.Context(), p) {
		t.Error("the files are not recognized")
	}
	plant(t, dir, "x.jsonl", "2\n3\n")
	if New(dir).Recognizes(t.Context(), p) {
		t.Error("another file is recognized")
	}
	if New(dir).Recognizes(t.Context(), json.RawMessage(`{"streams":{}}`)) {
		t.Error("another sink's position is recognized")
	}
}

// TestTheTailIsTheEndOfTheFile: however lines are written, the tail is what the
// file ends with.
func TestTheTailIsTheEndOfTheFile(t *testing.T) {
	var file []byte
	var end tail
	for i := range 200 {
		line := []byte(strings.Repeat(fmt.Sprint(i%10), i*7%150))
		file = append(append(file, line...), '\n')
		end = end.after(line)
		if want := file[max(0, len(file)-tailSize):]; !bytes.Equal(end, want) {
			t.Fatalf("after line %d the tail is %q, want %q", i, end, want)
		}
	}
}
