package main

import (
	"os"
	"strings"
	"testing"
)

// update changes every doc, so that a run writes all of them again.
func (s *site) update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}

func TestRotatedFilesAreFollowedByNewOnes(t *testing.T) {
	s := newSite(t)
	s.write(t, "", "", streamYAML{more: incremental})
	collects(t, exitOK)
	if err := os.Rename("out/docs.jsonl", "out/docs.jsonl.1"); err != nil {
		t.Fatal(err)
	}
	s.update()
	const says = "stream docs: its file was moved away or emptied since the last run"
	if all := collects(t, exitOK, says); strings.Count(all, says) != 2 {
		t.Errorf("want it at the start and in the summary:\n%s", all)
	}
	if n := rows(t, "docs"); n != siteDocs {
		t.Errorf("%d docs in the new file, want %d", n, siteDocs)
	}
	s.update()
	if all := collects(t, exitOK); strings.Contains(all, "moved away") || rows(t, "docs") != 2*siteDocs {
		t.Errorf("%d docs after the next run, which says\n%s", rows(t, "docs"), all)
	}
	// A file that was cut is no new one.
	if err := os.Truncate("out/docs.jsonl", 10); err != nil {
		t.Fatal(err)
	}
	collects(t, exitInternal, "has 10 bytes of the", "so it was cut", "move it away and run again")
	if err := os.Rename("out/docs.jsonl", "out/cut"); err != nil {
		t.Fatal(err)
	}
	collects(t, exitOK, "moved away")
}

func TestAnotherSinkIsNoticed(t *testing.T) {
	s := newSite(t)
	write := func(sink string) { s.write(t, "", "sink: {"+sink+"}", streamYAML{more: incremental}) }
	write("jsonl: {dir: ./out}")
	checks(t)
	collects(t, exitOK)
	write("jsonl: {dir: ./second}")
	checks(t, "it is jsonl in ./second and was jsonl in ./out", "collected from now on")
	collects(t, exitOK, "the sink changed: it is another one; it gets what is collected from now on", "it is jsonl in ./second and was jsonl in ./out")
	checks(t)
	s.update()
	if all := collects(t, exitOK); strings.Contains(all, "the sink") {
		t.Errorf("it is said twice:\n%s", all)
	}
	if b, err := os.ReadFile("second/docs.jsonl"); err != nil || strings.Count(string(b), "\n") != siteDocs || rows(t, "docs") != siteDocs {
		t.Errorf("the second has %q, %v", b, err)
	}
	write("parquet: {dir: ./out}")
	checks(t, "it is parquet in ./out and was jsonl in ./second")
	collects(t, exitOK, "it is parquet in ./out and was jsonl in ./second")
	write("sqlite: {}")
	checks(t, "it is sqlite in the state file and was parquet in ./out")
	collects(t, exitOK, "it is sqlite in the state file and was parquet in ./out")
	// Back to the first one, which goes on where it was.
	write("jsonl: {dir: ./out}")
	checks(t, "the sink changed back")
	s.update()
	collects(t, exitOK, "the sink changed back", "it goes on where it was")
	if n := rows(t, "docs"); n != 2*siteDocs {
		t.Errorf("%d docs in the first, want %d", n, 2*siteDocs)
	}
	// A folder that was renamed with what is in it.
	if err := os.Rename("out", "third"); err != nil {
		t.Fatal(err)
	}
	write("jsonl: {dir: ./third}")
	s.update()
	collects(t, exitOK, "the sink's files are at another place, and it goes on with them")
	if b, err := os.ReadFile("third/docs.jsonl"); err != nil || strings.Count(string(b), "\n") != 3*siteDocs {
		t.Errorf("the renamed one has %q, %v", b, err)
	}
}
