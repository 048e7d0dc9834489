package calls

import (
	"context"
	"database/sql"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-go/headway/internal/sqlitefile"
)

// Price is what the tokens of a model cost, for each million of them, as the owner says. A
// price that is nil is not known.
type Price struct {
	Input, Cached, Output *float64
}

// Prices are prices by model, or by globs of models as in path.Match; "*" stops at a slash.
type Prices map[string]Price

// Of returns the price of a model: that of its name, else that of the longest glob that fits.
func (p Prices) Of(model string) (Price, bool) {
	if one, ok := p[model]; ok {
		return one, true
	}
	best := ""
	for glob := range p {
		if ok, err := path.Match(glob, model); ok && err == nil && (len(glob) > len(best) || len(glob) == len(best) && glob < best) {
			best = glob
		}
	}
	return p[best], best != ""
}

// Cost is an amount of a currency.
type Cost struct {
	Currency string  `json:"currency"`
	Amount   float64 `json:"amount"`
}

// spent is what calls cost, in 1e-9 of a currency, and for how many tokens that is known.
type spent struct{ nano, tokens int64 }

// Bill says what the call costs, in a currency such as USD. Where a price that it takes is not
// known, its cost is not known either.
func (c *Call) Bill(currency string, p Price) {
	sum := 0.0
	for _, part := range [...]struct {
		tokens int64
		price  *float64
	}{{c.InputTokens - c.CachedTokens, p.Input}, {c.CachedTokens, p.Cached}, {c.OutputTokens, p.Output}} {
		switch {
		case part.tokens == 0:
		case part.price == nil:
			return
		default:
			sum += float64(part.tokens) * *part.price * 1e3 // 1e9 for each million
		}
	}
	if c.InputTokens+c.OutputTokens > 0 && sum < math.MaxInt64/2 {
		c.currency, c.nano = currency, int64(math.Round(sum))
	}
}

// bill adds what a call costs, if that is known.
func (t *Totals) bill(c *Call) {
	if c.currency != "" {
		t.owe(c.currency, spent{c.nano, c.InputTokens + c.OutputTokens})
	}
}

func (t *Totals) owe(currency string, s spent) {
	if t.spent == nil {
		t.spent = map[string]spent{}
	}
	have := t.spent[currency]
	t.spent[currency] = spent{have.nano + s.nano, have.tokens + s.tokens}
}

// price fills in what is shown of money.
func (t *Totals) price() {
	t.Cost, t.UnpricedTokens = nil, t.InputTokens+t.OutputTokens
	for currency, s := range t.spent {
		t.Cost = append(t.Cost, Cost{currency, float64(s.nano) / 1e9})
		t.UnpricedTokens -= s.tokens
	}
	slices.SortFunc(t.Cost, func(a, b Cost) int { return strings.Compare(a.Currency, b.Currency) })
}

// CostText says what the calls cost: "unknown" where no price is known, and "at least" where
// that of some tokens is not.
func (t *Totals) CostText() string {
	if len(t.Cost) == 0 {
		return "unknown"
	}
	parts := make([]string, len(t.Cost))
	for i, c := range t.Cost {
		digits := 2
		if c.Amount < 1 {
			digits = 6
		}
		parts[i] = strconv.FormatFloat(c.Amount, 'f', digits, 64) + " " + c.Currency
	}
	text := strings.Join(parts, " + ")
	if t.UnpricedTokens > 0 {
		text = "at least " + text
	}
	return text
}

const schema = `CREATE TABLE IF NOT EXISTS usage (day TEXT, provider TEXT, key TEXT, tenant TEXT, agent TEXT, model TEXT,
	calls INTEGER, refused INTEGER, failed INTEGER, attempts INTEGER, throttled INTEGER, input INTEGER, cached INTEGER,
	output INTEGER, reasoning INTEGER, estimated INTEGER,
	PRIMARY KEY (day, provider, key, tenant, agent, model)) WITHOUT ROWID`

const moneySchema = `CREATE TABLE IF NOT EXISTS usage_cost (day TEXT, provider TEXT, key TEXT, tenant TEXT, agent TEXT, model TEXT, currency TEXT,
	nano INTEGER, tokens INTEGER,
	PRIMARY KEY (day, provider, key, tenant, agent, model, currency)) WITHOUT ROWID`

// storeMoney adds what the calls of a group cost.
func storeMoney(ctx context.Context, conn *sql.Conn, g group, t *Totals) error {
	for currency, s := range t.spent {
		args := make([]any, 0, len(g)+3)
		for _, v := range g {
			args = append(args, v)
		}
		if _, err := conn.ExecContext(ctx, "INSERT INTO usage_cost VALUES (?"+strings.Repeat(", ?", len(g)+2)+
			") ON CONFLICT DO UPDATE SET nano = nano + excluded.nano, tokens = tokens + excluded.tokens", append(args, currency, s.nano, s.tokens)...); err != nil {
			return err
		}
	}
	return nil
}

// sumMoney fills in what the groups of a list cost. A file of before has no table of it.
func (l *Ledger) sumMoney(ctx context.Context, list []Usage, by []string, where string, args []any) error {
	var tables int
	if err := l.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'usage_cost'").Scan(&tables); err != nil {
		return err
	}
	at := map[string]*Usage{}
	for i := range list {
		at[list[i].group(by)] = &list[i]
	}
	if tables > 0 {
		names := strings.Join(append(slices.Clone(by), "currency"), ", ")
		type row struct {
			Usage
			currency string
			spent    spent
		}
		rows, err := sqlitefile.List(ctx, l.db, func(rows *sql.Rows) (r row, err error) {
			return r, rows.Scan(append(r.names(by), &r.currency, &r.spent.nano, &r.spent.tokens)...)
		}, "SELECT "+names+", sum(nano), sum(tokens) FROM usage_cost WHERE "+where+" GROUP BY "+names, args...)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if u := at[r.group(by)]; u != nil {
				u.owe(r.currency, r.spent)
			}
		}
	}
	for i := range list {
		list[i].price()
	}
	return nil
}

// names are where a row is scanned into.
func (u *Usage) names(by []string) (into []any) {
	at := map[string]**string{"day": &u.Day, "provider": &u.Provider, "key": &u.Key, "tenant": &u.Tenant, "agent": &u.Agent, "model": &u.Model}
	for _, name := range by {
		into = append(into, at[name])
	}
	return into
}

// group identifies a row.
func (u *Usage) group(by []string) string {
	var b strings.Builder
	for _, at := range u.names(by) {
		if p := *at.(**string); p != nil {
			b.WriteString(strconv.Quote(*p))
		}
	}
	return b.String()
}

// days are groups by day.
type days map[string]map[group]bool

// take returns g, or the group of the same day, provider and key for what is beyond the
// bound, and counts it.
func (d days) take(g group, most int) group {
	of := d[g[0]]
	if of == nil {
		of = map[group]bool{}
		d[g[0]] = of
	}
	if !of[g] && len(of) >= most {
		g[3], g[4], g[5] = Other, Other, Other
	}
	of[g] = true
	return g
}

// forget leaves out all days but those for which kept is true.
func (d days) forget(kept func(day string) bool) {
	maps.DeleteFunc(d, func(day string, _ map[group]bool) bool { return !kept(day) })
}

// recall has stored hold the groups of the days of due that are in the file, and no other day.
// It reports whether one of the days is new in the file.
func (l *Ledger) recall(ctx context.Context, conn *sql.Conn, due map[group]*Totals) (begun bool, err error) {
	now := map[string]bool{}
	for g := range due {
		now[g[0]] = true
	}
	if l.stored == nil {
		l.stored = days{}
	}
	l.stored.forget(func(day string) bool { return now[day] })
	for day := range now {
		if l.stored[day] != nil {
			continue
		}
		list, err := sqlitefile.List(ctx, conn, func(rows *sql.Rows) (g group, err error) {
			return g, rows.Scan(&g[0], &g[1], &g[2], &g[3], &g[4], &g[5])
		}, "SELECT "+strings.Join(By, ", ")+" FROM usage WHERE day = ?", day)
		if err != nil {
			return false, err
		}
		begun = begun || len(list) == 0
		l.stored[day] = make(map[group]bool, len(list))
		for _, g := range list {
			l.stored[day][g] = true
		}
	}
	return begun, nil
}

// prune deletes the days before the last KeptDays that have calls. It goes from day to day,
// not from row to row.
func prune(ctx context.Context, conn *sql.Conn) error {
	var first sql.NullString
	err := conn.QueryRowContext(ctx, `WITH RECURSIVE days (day) AS (SELECT max(day) FROM usage
		UNION ALL SELECT (SELECT max(day) FROM usage WHERE day < days.day) FROM days WHERE days.day IS NOT NULL LIMIT ?)
		SELECT min(day) FROM days`, KeptDays).Scan(&first)
	for _, table := range []string{"usage", "usage_cost"} {
		if err == nil {
			_, err = conn.ExecContext(ctx, "DELETE FROM "+table+" WHERE day < ?", first)
		}
	}
	return err
}
