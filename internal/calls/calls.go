// Package calls keeps what is known of proxied calls when they are over: the latest ones,
// a line each in an access log, and totals a day. Nothing of a call's content is kept.
//
// Totals are for reports and are no budget: those are the quotas' own. They are stored
// every few seconds, so that a process that is killed loses the calls since then.
//
// All types are safe for concurrent use. The package reads no clock.
package calls

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/sqlitefile"
)

// Call is one call that is over. Model, tenant and agent are the client's words.
type Call struct {
	Began    time.Time `json:"began"`
	Provider string    `json:"provider"`
	Model    string    `json:"model"`
	// Key is the id of the Headway key; empty without keys.
	Key      string `json:"key"`
	Tenant   string `json:"tenant"`
	Agent    string `json:"agent"`
	Priority int    `json:"priority"`
	// Status is what the client was answered; Ending is how that came to its end, such as
	// complete, refused or client_gone.
	Status int    `json:"status"`
	Ending string `json:"ending"`
	// Reason and Code say why it was refused or failed; none and empty when it was not.
	Reason string `json:"reason"`
	Code   string `json:"code"`
	// Attempts is what was sent upstream, Throttled how many of them the provider refused
	// for rate or load.
	Attempts  int `json:"attempts"`
	Throttled int `json:"throttled"`
	// WaitMS is the time spent waiting for quota and pacing, HeaderMS that to the head of
	// the last attempt's answer (0 without one), WholeMS everything.
	WaitMS   float64 `json:"wait_ms"`
	HeaderMS float64 `json:"header_ms"`
	WholeMS  float64 `json:"whole_ms"`
	// The tokens that it was charged for; Reported says that the provider said so, and
	// that they are no estimate.
	InputTokens     int64 `json:"input_tokens"`
	CachedTokens    int64 `json:"cached_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens"`
	Reported        bool  `json:"reported"`

	budget   string // the model's name in the quota
	currency string // of nano; empty where the cost is not known
	nano     int64
}

// Of is what is kept of a call.
func Of(c *egress.CallLog) Call {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return Call{
		Began: c.Began, Provider: c.Provider, Model: c.Model, Key: c.KeyID, Tenant: c.Tenant, Agent: c.Agent, Priority: c.Priority,
		Status: c.Status, Ending: string(c.Ending), Reason: c.Reason.String(), Code: c.Code, Attempts: c.Attempts, Throttled: c.Throttled,
		WaitMS: ms(c.Wait), HeaderMS: ms(c.Header), WholeMS: ms(c.Whole), InputTokens: c.Used.Input, CachedTokens: c.Used.Cached,
		OutputTokens: c.Used.Output, ReasoningTokens: c.Used.Reasoning, Reported: c.Reported, budget: c.Budget,
	}
}

// Log is an access log: a line for each call.
type Log struct {
	line *slog.Logger
	file *os.File // nil for one that is not ours to close
}

// OpenLog appends to a file, which is made for its owner only, or writes to stdout or
// stderr where that is the path. JSON lines, else logfmt.
func OpenLog(path string, json bool) (*Log, error) {
	l := &Log{}
	var to io.Writer
	switch path {
	case "stdout":
		to = os.Stdout
	case "stderr":
		to = os.Stderr
	default:
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("access log: %w", err)
		}
		to, l.file = f, f
	}
	o := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}}
	if json {
		l.line = slog.New(slog.NewJSONHandler(to, o))
	} else {
		l.line = slog.New(slog.NewTextHandler(to, o))
	}
	return l, nil
}

// Write adds a line. The error says that it is not there.
func (l *Log) Write(c Call) error {
	r := slog.NewRecord(c.Began, slog.LevelInfo, "", 0)
	r.AddAttrs(
		slog.String("provider", c.Provider), slog.String("model", c.Model), slog.String("key", c.Key), slog.String("tenant", c.Tenant), slog.String("agent", c.Agent),
		slog.Int("status", c.Status), slog.String("ending", c.Ending), slog.String("reason", c.Reason), slog.String("code", c.Code),
		slog.Int("attempts", c.Attempts), slog.Int("throttled", c.Throttled),
		slog.Float64("wait_ms", c.WaitMS), slog.Float64("header_ms", c.HeaderMS), slog.Float64("whole_ms", c.WholeMS),
		slog.Int64("input_tokens", c.InputTokens), slog.Int64("cached_tokens", c.CachedTokens),
		slog.Int64("output_tokens", c.OutputTokens), slog.Int64("reasoning_tokens", c.ReasoningTokens), slog.Bool("reported", c.Reported),
	)
	return l.line.Handler().Handle(context.Background(), r)
}

// Close closes the file. What is written afterwards fails.
func (l *Log) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close()
}

// MaxRecent is how many calls [Recent] keeps.
const MaxRecent = 1000

// Recent are the latest calls. The zero value is ready.
type Recent struct {
	mu    sync.Mutex
	calls []Call // a ring once it is full
	next  int
}

// Add takes a call that is over.
func (r *Recent) Add(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) < MaxRecent {
		r.calls = append(r.calls, c)
		return
	}
	r.calls[r.next] = c
	r.next = (r.next + 1) % MaxRecent
}

// Latest are at most limit calls of which keep is true, the newest first. No lock is held
// while keep looks at a copy of them.
func (r *Recent) Latest(limit int, keep func(*Call) bool) []Call {
	r.mu.Lock()
	kept, next := slices.Clone(r.calls), r.next
	r.mu.Unlock()
	all := []Call{}
	for i := len(kept) - 1; i >= 0 && len(all) < limit; i-- {
		if c := &kept[(next+i)%len(kept)]; keep(c) {
			all = append(all, *c)
		}
	}
	return all
}

// By are what totals can be grouped by.
var By = []string{"day", "provider", "key", "tenant", "agent", "model"}

// Other stands for tenants, agents and models beyond the bound of a day.
const Other = "(other)"

// Usage is what the calls of a group used. What it is not grouped by is missing.
type Usage struct {
	Day      *string `json:"day,omitempty"` // in UTC, such as 2026-11-23
	Provider *string `json:"provider,omitempty"`
	Key      *string `json:"key,omitempty"`
	Tenant   *string `json:"tenant,omitempty"`
	Agent    *string `json:"agent,omitempty"`
	Model    *string `json:"model,omitempty"`
	Totals
}

// Totals are sums over calls that are over.
type Totals struct {
	Calls int64 `json:"calls"`
	// Refused are those that the proxy refused itself, Failed those that did not end with
	// an answer of 2xx or 3xx for another reason.
	Refused   int64 `json:"refused"`
	Failed    int64 `json:"failed"`
	Attempts  int64 `json:"attempts"`
	Throttled int64 `json:"throttled"`
	// The tokens that calls were charged for.
	InputTokens     int64 `json:"input_tokens"`
	CachedTokens    int64 `json:"cached_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens"`
	// Estimated counts the calls whose tokens the provider did not report.
	Estimated int64 `json:"estimated"`
	// Cost is what the tokens cost by the owner's prices when they were used; empty where no
	// price is known. UnpricedTokens are those whose price is not known.
	Cost           []Cost `json:"cost"`
	UnpricedTokens int64  `json:"unpriced_tokens"`

	spent map[string]spent // by currency
}

func (t *Totals) columns() []any {
	return []any{&t.Calls, &t.Refused, &t.Failed, &t.Attempts, &t.Throttled, &t.InputTokens, &t.CachedTokens, &t.OutputTokens, &t.ReasoningTokens, &t.Estimated}
}

var sums = []string{"calls", "refused", "failed", "attempts", "throttled", "input", "cached", "output", "reasoning", "estimated"}

func (t *Totals) add(c *Call) {
	t.Calls++
	switch {
	case c.Ending == string(egress.Refused):
		t.Refused++
	case c.Ending != string(egress.Complete) || c.Status >= 400:
		t.Failed++
	}
	t.Attempts += int64(c.Attempts)
	t.Throttled += int64(c.Throttled)
	t.InputTokens += c.InputTokens
	t.CachedTokens += c.CachedTokens
	t.OutputTokens += c.OutputTokens
	t.ReasoningTokens += c.ReasoningTokens
	if !c.Reported && c.InputTokens+c.OutputTokens > 0 {
		t.Estimated++
	}
	t.bill(c)
}

const (
	// FileName is the name of the ledger in a folder of state.
	FileName = "usage.db"
	// KeptDays is of how many days with calls totals are kept, so that a call that a wrong
	// clock dates far in the future pushes out one day at most.
	KeptDays = 400
	// maxGroups bounds the groups of a day in a file; further ones count as [Other].
	maxGroups = 20_000
	dayForm   = "2006-01-02"
)

// group is what a row of the ledger is about, in the order of By.
type group [6]string

// Ledger keeps totals in a SQLite file, which is made for the first call. Make one with
// [NewLedger].
type Ledger struct {
	path string
	most int // groups of a day

	mu     sync.Mutex
	due    map[group]*Totals // not stored yet
	day    string            // of the call that was added last
	groups days              // those of the last two days that calls were added to

	file   sync.Mutex // one use of the file at a time; before mu
	db     *sql.DB    // nil until something is stored or read
	adds   bool       // it was opened to write
	stored days       // groups in the file, of the days that were stored last
}

// NewLedger is one in the file of the path; nothing is opened yet. Only one process may
// add to a file.
func NewLedger(path string) *Ledger {
	return &Ledger{path: path, most: maxGroups, due: map[group]*Totals{}, groups: days{}}
}

// Add counts a call in memory.
func (l *Ledger) Add(c *Call) {
	g := group{c.Began.UTC().Format(dayForm), c.Provider, c.Key, c.Tenant, c.Agent, c.Model}
	if c.Attempts == 0 {
		g[5] = c.budget // a model that was refused may be anything
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if g[0] != l.day { // around midnight calls of two days come by turns
		l.groups.forget(func(day string) bool { return day == l.day || day == g[0] })
		l.day = g[0]
	}
	g = l.groups.take(g, l.most)
	t := l.due[g]
	if t == nil {
		t = &Totals{}
		l.due[g] = t
	}
	t.add(c)
}

// open opens the file, with file held; one that is not there only to write.
func (l *Ledger) open(ctx context.Context, write bool) (err error) {
	if l.db != nil && (l.adds || !write) {
		return nil
	}
	if l.db != nil {
		if err := l.db.Close(); err != nil {
			return err
		}
		l.db = nil
	}
	path, err := filepath.Abs(l.path)
	if err != nil {
		return err
	}
	mode := "rw"
	if write {
		err = sqlitefile.Create(path)
	} else if _, err = os.Stat(path); err == nil {
		mode = "ro"
	}
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", sqlitefile.DSN(path, mode))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if write {
		for _, do := range []string{"PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", schema, moneySchema} {
			if _, err = db.ExecContext(ctx, do); err != nil {
				return errors.Join(err, db.Close())
			}
		}
	}
	l.db, l.adds = db, write
	return nil
}

// Flush stores what was added. After an error it is tried again with what comes.
func (l *Ledger) Flush(ctx context.Context) error {
	l.file.Lock()
	defer l.file.Unlock()
	l.mu.Lock()
	due := l.due
	l.due = map[group]*Totals{}
	l.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	err := l.store(ctx, due)
	if err == nil {
		return nil
	}
	l.stored = nil // not all of it is stored
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, t := range due {
		if have := l.due[g]; have != nil {
			for i, n := range t.columns() {
				*have.columns()[i].(*int64) += *n.(*int64)
			}
			for currency, s := range t.spent {
				have.owe(currency, s)
			}
		} else if len(l.due) < 2*maxGroups {
			l.due[g] = t
		}
	}
	return fmt.Errorf("usage %s: %w", l.path, err)
}

func (l *Ledger) store(ctx context.Context, due map[group]*Totals) error {
	if err := l.open(ctx, true); err != nil {
		return err
	}
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	set := make([]string, len(sums))
	for i, s := range sums {
		set[i] = s + " = " + s + " + excluded." + s
	}
	insert := "INSERT INTO usage (" + strings.Join(slices.Concat(By, sums), ", ") + ") VALUES (?" + strings.Repeat(", ?", len(By)+len(sums)-1) +
		") ON CONFLICT DO UPDATE SET " + strings.Join(set, ", ")
	return sqlitefile.Write(ctx, conn, func() error {
		begun, err := l.recall(ctx, conn, due)
		if err != nil {
			return err
		}
		for g, t := range due {
			g = l.stored.take(g, l.most)
			args := make([]any, 0, len(By)+len(sums))
			for _, v := range g {
				args = append(args, v)
			}
			for _, n := range t.columns() {
				args = append(args, *n.(*int64))
			}
			if _, err := conn.ExecContext(ctx, insert, args...); err != nil {
				return err
			}
			if err := storeMoney(ctx, conn, g, t); err != nil {
				return err
			}
		}
		if begun {
			return prune(ctx, conn)
		}
		return nil
	})
}

// Ask says which totals are wanted.
type Ask struct {
	From, To string   // the first and the last day, such as 2026-11-23; empty is all
	By       []string // of By; empty is one total
	// Is are the values that rows must have, by names of By.
	Is           map[string]string
	After, Limit int // rows to leave out, and at most so many; a limit of 0 is all
}

// ErrAsk is what the error of an ask that makes no sense matches.
var ErrAsk = errors.New("invalid question")

// Check says what of the ask makes no sense; the error matches [ErrAsk].
func (a *Ask) Check() error {
	for field, day := range map[string]string{"from": a.From, "to": a.To} {
		if _, err := time.Parse(dayForm, day); day != "" && err != nil {
			return fmt.Errorf("%w: %s is %q, must be a day such as 2026-11-23", ErrAsk, field, day)
		}
	}
	for i, by := range a.By {
		if !slices.Contains(By, by) || slices.Contains(a.By[:i], by) {
			return fmt.Errorf("%w: by has %q, must have each of %s once at most", ErrAsk, by, strings.Join(By, ", "))
		}
	}
	return nil
}

// Sum gives totals in the order of what they are grouped by, with those not stored yet.
// Where nothing was ever counted there are none.
func (l *Ledger) Sum(ctx context.Context, a Ask) (list []Usage, err error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	if err := l.Flush(ctx); err != nil {
		return nil, err
	}
	l.file.Lock()
	defer l.file.Unlock()
	if err := l.open(ctx, false); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("usage %s: %w", l.path, err)
	}
	where, args := []string{"day >= ?", "(? = '' OR day <= ?)"}, []any{a.From, a.To, a.To}
	for _, by := range By {
		if v, ok := a.Is[by]; ok {
			where, args = append(where, by+" = ?"), append(args, v)
		}
	}
	selected := slices.Clone(a.By)
	for _, s := range sums {
		selected = append(selected, "coalesce(sum("+s+"), 0)")
	}
	query := "SELECT " + strings.Join(selected, ", ") + " FROM usage WHERE " + strings.Join(where, " AND ")
	if len(a.By) > 0 {
		query += " GROUP BY " + strings.Join(a.By, ", ") + " ORDER BY " + strings.Join(a.By, ", ")
	}
	if a.Limit == 0 {
		a.Limit = -1
	}
	list, err = sqlitefile.List(ctx, l.db, func(rows *sql.Rows) (u Usage, err error) {
		return u, rows.Scan(append(u.names(a.By), u.columns()...)...)
	}, query+" LIMIT ? OFFSET ?", append(slices.Clone(args), a.Limit, a.After)...)
	if err == nil {
		err = l.sumMoney(ctx, list, a.By, strings.Join(where, " AND "), args)
	}
	if err != nil {
		return nil, fmt.Errorf("usage %s: %w", l.path, err)
	}
	return list, nil
}

// Close stores what was added and closes the file.
func (l *Ledger) Close(ctx context.Context) error {
	err := l.Flush(ctx)
	l.file.Lock()
	defer l.file.Unlock()
	if l.db != nil {
		err = errors.Join(err, l.db.Close())
		l.db = nil
	}
	return err
}
