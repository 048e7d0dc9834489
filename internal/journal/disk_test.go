//go:build linux

package journal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/fulldisk"
	"github.com/headway-go/headway/internal/journal"
)

func TestAFullDisk(t *testing.T) {
	for _, way := range fulldisk.Ways(t, fulldisk.Room{Disk: 256 << 10, Left: 2 << 10, File: 8 << 10}) {
		t.Run(way.Name, func(t *testing.T) {
			dir, fill, free := way.Prepare(t)
			j, _, err := journal.Open(dir, options())
			if err != nil {
				t.Fatal(err)
			}
			fill()
			settled := int64(0)
			line := bytes.Repeat([]byte("x"), 99)
			line = append(line, '\n')
			for ; err == nil && settled < 10_000; settled++ {
				err = j.Write(journal.Entry{Rejected: rows(settled, settled), Rejects: line})
			}
			if err == nil {
				t.Fatal("the disk is not full")
			}
			if again := j.Write(journal.Entry{End: true, Rows: 1 << 40}); again == nil {
				t.Error("it goes on after an error")
			}
			free()
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j, s, err := journal.Open(dir, options())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			if n := s.Counts.Rejected; n < settled-1 || n > settled || int64(strings.Count(content(t, dir, journal.RejectsFile), "xxx\n")) != n {
				t.Errorf("%d rows settled after %d were made durable", n, settled-1)
			}
			write(t, j, journal.Entry{Acknowledged: rows(50_000, 50_009)})
		})
	}
}
