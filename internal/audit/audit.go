// Package audit keeps what people changed while Headway was running: who, when, what, and
// how it was before and after. It is a file of JSON lines in the folder of state, to which
// is only added.
//
// A change has two lines. The first is on disk before the change is made, and without it
// nothing is changed; the second says how it ended. Where the second is missing, the
// process was killed in between, and the outcome is unknown.
//
// Several processes may use one file. A line that a crash cut off is passed over. The file
// is replaced when it has [MaxSize], and [Kept] former ones stay. A [Log] is safe for
// concurrent use.
package audit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/reason"
)

const (
	// FileName is the name of the file in a folder of state.
	FileName = "audit.jsonl"
	// MaxSize is the size at which a file is replaced, in bytes, and Kept how many former
	// ones stay, as audit.jsonl.1 to .9.
	MaxSize = 4 << 20
	Kept    = 9

	// maxText and maxValues bound what a line says, in bytes.
	maxText   = 1 << 10
	maxValues = 32 << 10
)

// Outcome says how a change ended.
type Outcome string

// The outcomes. Unknown is a change whose process was killed before it was over.
const (
	Done    Outcome = "done"
	Failed  Outcome = "failed"
	Unknown Outcome = "unknown"
)

// Entry is one change.
type Entry struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// Who is the id of a key with its role, or the user of this machine.
	Who string `json:"who"`
	// Action is what was done, such as gaps.retry or quota.override, and Target to what.
	Action string `json:"action"`
	Target string `json:"target"`
	// Before and After are the values that changed; absent where they are not known.
	Before map[string]any `json:"before,omitempty"`
	After  map[string]any `json:"after,omitempty"`
	// Outcome is how it ended, and Error why it failed.
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
}

// Log is an audit log. Make one with [New].
type Log struct {
	path string
	log  *slog.Logger
	disk disk.Disk
	mu   sync.Mutex
}

// New is the log in a folder, which is made for the first change; nothing is opened yet.
// The logger gets a line for each change whose end could not be written; nil logs nothing.
func New(folder string, log *slog.Logger) *Log {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Log{path: filepath.Join(folder, FileName), log: log, disk: disk.OS{}}
}

// Do makes a change and writes it down; ID, time and outcome of e are set here. The error
// is that of the change, or says that nothing was changed since the log cannot be written.
func (l *Log) Do(ctx context.Context, e Entry, change func(context.Context) (after map[string]any, err error)) error {
	e.ID, e.At, e.Outcome = rand.Text(), time.Now().UTC(), ""
	e.Who, e.Target, e.Before = clip(e.Who), clip(e.Target), bounded(e.Before)
	e.After = nil
	if err := l.add(ctx, e); err != nil {
		return fmt.Errorf("nothing was changed, since the audit log cannot be written: %w", err)
	}
	after, err := change(ctx)
	end := Entry{ID: e.ID, At: time.Now().UTC(), After: bounded(after), Outcome: Done}
	if err != nil {
		end.Outcome, end.Error = Failed, clip(err.Error())
	}
	if unwritten := l.add(context.WithoutCancel(ctx), end); unwritten != nil {
		l.log.Error("the audit log lacks how a change ended", slog.String("action", e.Action), slog.String("who", e.Who), slog.Any("error", unwritten))
	}
	return err
}

// secret matches a Headway key, which somebody may take for its id.
var secret = regexp.MustCompile(`hw_[A-Za-z0-9_-]{16,}`)

func clip(text string) string {
	text = secret.ReplaceAllString(text, "hw_…")
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// bounded leaves out values that are too long for a line.
func bounded(values map[string]any) map[string]any {
	if b, err := json.Marshal(values); err != nil || len(b) > maxValues {
		return map[string]any{"omitted_bytes": len(b)}
	}
	return values
}

// add appends a line and waits until it is on disk.
func (l *Log) add(ctx context.Context, e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := disk.MkdirAll(l.disk, filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	return lockfile.With(ctx, l.path+".lock", func(context.Context) error { return l.write(append(line, '\n')) })
}

// write appends with the lock held. A line that is not whole is taken back.
func (l *Log) write(line []byte) (err error) {
	info, err := os.Stat(l.path)
	made := errors.Is(err, fs.ErrNotExist)
	if err == nil && info.Size()+int64(len(line)) > MaxSize {
		if err = l.rotate(); err != nil {
			return err
		}
		made = true
	} else if err != nil && !made {
		return err
	}
	f, err := l.disk.OpenFile(l.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err = f.Stat(); err != nil {
		return err
	}
	size := info.Size()
	if size > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' { // a crash cut the line off
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.WriteAt(line, size); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if made {
		return l.disk.SyncDir(filepath.Dir(l.path))
	}
	return nil
}

func (l *Log) former(n int) string { return l.path + "." + strconv.Itoa(n) }

// rotate moves the files on by one. The oldest one is replaced.
func (l *Log) rotate() error {
	for n := Kept - 1; n >= 1; n-- {
		if err := l.disk.Rename(l.former(n), l.former(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.disk.Rename(l.path, l.former(1))
}

// Read returns the changes since an instant, the newest first, without the first skip of
// them, and at most limit; 0 is all. Unread counts lines that cannot be read. Without a
// file there are no changes.
func (l *Log) Read(since time.Time, skip, limit int) (list []Entry, unread int, err error) {
	// The newest file comes first: what is renamed meanwhile is read twice rather than not
	// at all.
	var files [][]byte
	for n := range Kept + 1 {
		path := l.path
		if n > 0 {
			path = l.former(n)
		}
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, 0, fmt.Errorf("audit log: %w", err)
		}
		files = append(files, b)
	}
	at := map[string]int{}
	for _, b := range slices.Backward(files) {
		for line := range bytes.Lines(b) {
			var e Entry
			switch err := json.Unmarshal(line, &e); {
			case len(bytes.TrimSpace(line)) == 0:
			case err != nil || e.ID == "":
				unread++
			default:
				i, known := at[e.ID]
				switch {
				case known && e.Action == "":
					list[i].After, list[i].Outcome, list[i].Error = e.After, e.Outcome, e.Error
				case !known && e.Action != "":
					e.Outcome = Unknown
					at[e.ID] = len(list)
					list = append(list, e)
				}
			}
		}
	}
	list = slices.DeleteFunc(list, func(e Entry) bool { return e.At.Before(since) })
	slices.SortStableFunc(list, func(a, b Entry) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(a.ID, b.ID)) })
	list = list[min(skip, len(list)):]
	if limit > 0 {
		list = list[:min(limit, len(list))]
	}
	return list, unread, nil
}

// GapAct changes gaps, as a collect.Store does.
type GapAct func(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (int64, error)

// ActOnGaps changes the gaps of a filter, or those with the ids, and writes down how many
// were owed and quarantined before and after. It returns how many gaps were changed.
func (l *Log) ActOnGaps(ctx context.Context, who string, r collect.Reader, act GapAct, a collect.GapAction, f collect.GapFilter, ids []int64) (n int64, err error) {
	before, err := owed(ctx, r, f.Connection)
	if err != nil {
		return 0, err
	}
	e := Entry{Who: who, Action: "gaps." + string(a), Target: targetOf(f, ids), Before: before}
	err = l.Do(ctx, e, func(ctx context.Context) (_ map[string]any, err error) {
		if n, err = act(ctx, a, f, ids); err != nil {
			return nil, err
		}
		after, err := owed(ctx, r, f.Connection)
		if err != nil {
			after = map[string]any{} // the change is made all the same
		}
		after["changed"] = n
		return after, nil
	})
	return n, err
}

// owed counts the gaps of a connection, or of all.
func owed(ctx context.Context, r collect.Reader, connection string) (map[string]any, error) {
	all, err := r.Connections(ctx)
	if err != nil {
		return nil, err
	}
	var pending, quarantined int64
	for _, c := range all {
		if connection != "" && c.Name != connection {
			continue
		}
		for _, n := range c.Owed {
			pending += n
		}
		quarantined += c.Quarantined
	}
	return map[string]any{"owed": pending, "quarantined": quarantined}, nil
}

// targetOf says which gaps are meant.
func targetOf(f collect.GapFilter, ids []int64) string {
	if len(ids) > 0 {
		text := make([]string, len(ids))
		for i, id := range ids {
			text[i] = strconv.FormatInt(id, 10)
		}
		return "gaps " + strings.Join(text, ", ")
	}
	var by []string
	for _, part := range [...]struct{ name, value string }{{"connection", f.Connection}, {"stream", f.Stream}} {
		if part.value != "" {
			by = append(by, part.name+" "+part.value)
		}
	}
	if f.Reason != reason.None {
		by = append(by, "reason "+f.Reason.String())
	}
	if len(by) == 0 {
		return "all gaps"
	}
	return "gaps of " + strings.Join(by, ", ")
}
