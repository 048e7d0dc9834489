package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
)

// Commit makes one slice durable in one transaction. See [collect.Store].
//
// Recovered gaps are closed before Opened ones are written, so a gap in both is owed. An
// opened gap is pending unless it has another status. A gap that exists gets the new
// reason, error, times and status, and the new locator and parent if they are not empty.
// Its attempts are added; they may be negative, but the sum is at least 0. A gap that was
// recovered and is opened again starts with new attempts and a new FirstSeen.
func (s *Store) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if err := c.Check("store " + s.path); err != nil {
		return err
	}
	return s.holding(ctx, "commit", l, func(t *tx, h held) error {
		for _, r := range c.Reshaped {
			if err := t.reshaped(h, r); err != nil {
				return err
			}
		}
		if err := t.lane(h, c.Lane); err != nil {
			return err
		}
		if err := t.items(h, c.Stream, c.Items); err != nil {
			return err
		}
		for _, key := range c.Recovered {
			if err := t.recovered(h, key, c.At); err != nil {
				return err
			}
		}
		for _, key := range c.Returned {
			if err := t.returned(h, key); err != nil {
				return err
			}
		}
		for _, g := range c.Opened {
			if err := t.opened(h, g, c.At); err != nil {
				return err
			}
		}
		if err := t.sink(h, &c); err != nil {
			return err
		}
		if err := t.progress(h, c.Progress); err != nil {
			return err
		}
		if err := t.events(h, c.Events); err != nil {
			return err
		}
		if err := t.pacing(h, c.Pacing); err != nil || c.Within == nil {
			return err
		}
		return c.Within(t.ctx, t.w.conn)
	})
}

func (t *tx) lane(h held, lane *collect.Lane) error {
	if lane == nil {
		return nil
	}
	_, err := t.exec(`INSERT INTO lanes (connection, stream, kind, cursor, walking, done, since, high, start, watermark,
			pages, trail_anchor, trail_steps, trail_limit) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (connection, stream, kind) DO UPDATE SET cursor = excluded.cursor, walking = excluded.walking,
			done = excluded.done, since = excluded.since, high = excluded.high, start = excluded.start,
			watermark = excluded.watermark, pages = excluded.pages, trail_anchor = excluded.trail_anchor,
			trail_steps = excluded.trail_steps, trail_limit = excluded.trail_limit`,
		h.connection, lane.Stream, string(lane.Kind), lane.Cursor, lane.Walking, lane.Done, lane.Since, lane.High,
		instant(lane.Start), lane.Watermark, lane.Pages,
		int64(lane.Trail.Anchor), int64(lane.Trail.Steps), int64(lane.Trail.Limit))
	return err
}

// rows is the number of items that one statement writes.
const rows = 50

// inserting returns a statement for n rows of items. Its first parameter is the stream.
func inserting(row string, n int) string {
	return `INSERT INTO items (stream, key, fingerprint, children, owed) VALUES ` + strings.Repeat(row+", ", n-1) + row +
		` ON CONFLICT (stream, key) DO NOTHING`
}

// Items that are not owed and have no children, such as all items of a stream without
// details, have statements without these columns: binding parameters is much of the cost
// of an insert.
const (
	wholeRow = `(?1, ?, ?, ?, ?)`
	plainRow = `(?1, ?, ?, NULL, 0)`
)

var (
	insertWhole, insertWholes = inserting(wholeRow, 1), inserting(wholeRow, rows)
	insertPlain, insertPlains = inserting(plainRow, 1), inserting(plainRow, rows)
)

// insert writes items with one statement and returns how many are new.
func (t *tx) insert(stream int64, items []collect.KnownItem, plain bool, query string) (int64, error) {
	args := make([]any, 0, 1+4*len(items))
	args = append(args, stream)
	for i := range items {
		it := &items[i]
		args = append(args, it.Key, it.Fingerprint)
		if !plain {
			args = append(args, it.Children, it.Owed)
		}
	}
	added, err := t.exec(query, args...)
	if err != nil || added == int64(len(items)) {
		return added, err
	}
	for i := range items {
		it := &items[i]
		// Most known items are unchanged; nothing is written for them.
		if _, err := t.exec(`UPDATE items SET fingerprint = ?3, children = ?4, owed = ?5 WHERE stream = ?1 AND key = ?2
			AND (fingerprint IS NOT ?3 OR children IS NOT ?4 OR owed IS NOT ?5)`, stream, it.Key, it.Fingerprint, it.Children, it.Owed); err != nil {
			return added, err
		}
	}
	return added, nil
}

// items writes items and updates the number of items of the stream.
func (t *tx) items(h held, stream string, items []collect.KnownItem) error {
	if len(items) == 0 {
		return nil
	}
	var id int64
	err := t.row(`SELECT id FROM streams WHERE connection = ? AND name = ?`, []any{h.connection, stream}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.row(`INSERT INTO streams (connection, name) VALUES (?, ?) RETURNING id`, []any{h.connection, stream}, &id)
	}
	if err != nil {
		return err
	}
	one, many := insertWhole, insertWholes
	plain := !slices.ContainsFunc(items, func(it collect.KnownItem) bool { return it.Children != nil || it.Owed })
	if plain {
		one, many = insertPlain, insertPlains
	}
	var added int64
	for len(items) > 0 {
		// The rest is written one by one, so that there is no statement for each
		// number of rows.
		query, n := one, 1
		if len(items) >= rows {
			query, n = many, rows
		}
		fresh, err := t.insert(id, items[:n], plain, query)
		if err != nil {
			return err
		}
		added, items = added+fresh, items[n:]
	}
	if added > 0 {
		_, err = t.exec(`UPDATE streams SET items = items + ? WHERE id = ?`, added, id)
	}
	return err
}

// recovered closes a gap and removes its locator, which is content and no longer needed.
func (t *tx) recovered(h held, key collect.GapKey, at time.Time) error {
	_, err := t.exec(`UPDATE gaps SET status = ?, locator = NULL, retry_at = '', last_seen = ?, leased = 0, cursor = ''
		WHERE connection = ? AND stream = ? AND key = ?`,
		string(collect.GapRecovered), instant(at), h.connection, key.Stream, key.Key)
	return err
}

func (t *tx) opened(h held, g collect.Gap, at time.Time) error {
	g, tried, rank := g.Opening(at)
	_, err := t.exec(`INSERT INTO gaps (connection, stream, key, parent, locator, reason, status, attempts,
			first_seen, last_seen, retry_at, last_error, tried, rank, backlog, since, cursor)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, max(0, ?8), ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
		ON CONFLICT (connection, stream, key) DO UPDATE SET
			parent = CASE ?4 WHEN '' THEN parent ELSE ?4 END, locator = coalesce(?5, locator), reason = ?6,
			attempts = max(0, ?8 + CASE status WHEN 'recovered' THEN 0 ELSE attempts END),
			first_seen = CASE status WHEN 'recovered' THEN ?9 ELSE first_seen END,
			last_seen = ?10, retry_at = ?11, last_error = ?12, status = ?7, leased = 0,
			tried = CASE ?13 WHEN '' THEN tried ELSE ?13 END,
			rank = CASE WHEN status = 'recovered' OR ?8 > 0 THEN ?14 ELSE rank END,
			backlog = ?15, since = ?16, cursor = ?17`,
		h.connection, g.Stream, g.Key, g.Parent, g.Locator, g.Reason.String(), string(g.Status), g.Attempts,
		instant(g.FirstSeen), instant(g.LastSeen), instant(g.RetryAt), g.LastError, instant(tried), instant(rank), g.Backlog, g.Since, g.Cursor)
	return err
}

func (t *tx) progress(h held, p collect.Progress) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = t.exec(`UPDATE runs SET progress = ? WHERE n = ?`, string(b), h.run)
	return err
}

// events appends events to the run's trace and numbers them.
func (t *tx) events(h held, events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	var seq int64
	if err := t.row(`SELECT coalesce(max(seq), 0) FROM events WHERE run = ?`, []any{h.run}, &seq); err != nil {
		return err
	}
	list, err := collect.EncodeEvents(seq, events)
	if err != nil {
		return err
	}
	for i, b := range list {
		if _, err := t.exec(`INSERT INTO events (run, seq, event) VALUES (?, ?, ?)`, h.run, seq+int64(i)+1, string(b)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) pacing(h held, p *collect.Pacing) error {
	if p == nil {
		return nil
	}
	_, err := t.exec(`UPDATE connections SET pacing_version = ?, pacing_law = ?, pacing_interval_ms = ?,
			pacing_recorded_at = ?, pacing_state = ? WHERE id = ?`,
		p.Version, p.Law, p.IntervalMS, instant(p.RecordedAt), []byte(p.State), h.connection)
	if parts := p.Parts(); err == nil && parts != nil {
		_, err = t.exec(`UPDATE connections SET pacing_parts = ? WHERE id = ?`, parts, h.connection)
	}
	return err
}
