package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/pgsql"
	"github.com/headway-go/headway/sink/internal/pending"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// Database writes records into another database than the state's. Make one with
// [NewDatabase]. It is not safe for concurrent use.
//
// Its tables are as those of [Sink]. A slice is written in two steps, since its records and
// the state's cursor are in different databases:
//
//	stateDiagram-v2
//	    [*] --> staged: Sync stages the slice's records, durably, with its number
//	    staged --> applied: Committed, the next Write or Sync, or an Open whose position has the number
//	    staged --> [*]: an Open whose position does not: the slice is collected again
//
// So the tables never have a record whose cursor is not committed. If a process is killed
// after the commit, its last slice stays staged until the next Open applies it.
//
// The session has an advisory lock for the connection, so that only one process writes. Calls
// wait up to a minute for a server that restarts. Each step is one transaction that can be
// repeated.
type Database struct {
	gather

	at string
	// session is the connection to the database, nil if there is none.
	session *pgx.Conn
	// staged is the slice whose position is not known to be committed; may be nil.
	staged  *change
	noticed []collect.Change
}

var (
	_ collect.Informed   = (*Database)(nil)
	_ collect.Asider     = (*Database)(nil)
	_ collect.Marker     = (*Database)(nil)
	_ collect.Namer      = (*Database)(nil)
	_ collect.Noticer    = (*Database)(nil)
	_ collect.Restorer   = (*Database)(nil)
	_ collect.Recognizer = (*Database)(nil)
)

// NewDatabase returns a sink for one connection's records in the database at a URL. The tables
// are in the schema, which Open creates if it does not exist; empty means the one of the
// URL's search_path. Several connections may share a schema.
func NewDatabase(at, schema, connection string) *Database {
	return &Database{gather: newGather(connection, schema), at: at}
}

// Location returns the database, without user and password.
func (s *Database) Location() collect.Location {
	return collect.Location{Kind: "postgres", Path: place(s.at, s.schema)}
}

// Open applies or discards a staged slice, according to the committed position. See
// [collect.Sink]. It is an error if the database lacks committed slices, or has records of the
// connection that were collected with another state; then nothing is changed.
func (s *Database) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := s.begin(ctx, committed, streams); err != nil {
		return err
	}
	s.staged, s.noticed = nil, nil
	fresh := len(committed) == 0 || string(committed) == "null"
	start := s.mark
	err := s.do(ctx, func(conn *pgx.Conn) error {
		s.mark, s.noticed = start, nil
		return s.reconcile(ctx, conn, fresh)
	})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// reconcile brings the tables to the committed mark.
func (s *Database) reconcile(ctx context.Context, conn *pgx.Conn, fresh bool) error {
	schema, err := home(ctx, conn, s.schema)
	if err != nil {
		return err
	}
	table := pgx.Identifier{schema, "headway_slices"}.Sanitize()
	var was mark
	var number int64
	var slice *string
	err = conn.QueryRow(ctx, `SELECT id, begun, applied, staged, slice FROM `+table+` WHERE connection = $1 FOR UPDATE`, s.slice.Connection).
		Scan(&was.ID, &was.Begun, &was.Slice, &number, &slice)
	there := err == nil
	c := &change{connection: s.slice.Connection, schema: schema, mark: s.mark, streams: s.slice.Streams}
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return err
	case !there && s.mark.Slice > 0:
		return fmt.Errorf("the schema %s has none of the %d slices that were committed for this connection; nothing was changed: "+
			"restore it, or start over with `headway collect --fresh`", schema, s.mark.Slice)
	case !there, fresh && (s.mark.Begun != was.Begun || was.Slice == 0 && slice == nil):
		_, err = conn.Exec(ctx, `INSERT INTO `+table+` (connection, id, begun, applied) VALUES ($1, $2, $3, 0)
			ON CONFLICT (connection) DO UPDATE SET id = excluded.id, begun = excluded.begun, applied = 0, staged = 0, slice = NULL`,
			s.slice.Connection, s.mark.ID, s.mark.Begun)
		return err
	case was.ID != s.mark.ID:
		return c.otherState()
	case was.Slice+1 == s.mark.Slice && slice != nil && number == s.mark.Slice:
		if err := json.Unmarshal([]byte(*slice), &c.records); err != nil {
			return errors.New("the slice that was committed last cannot be read")
		}
		_, err = c.apply(ctx, conn, true)
		return err
	case was.Slice < s.mark.Slice:
		return fmt.Errorf("the schema %s has %d slices of the %d that were committed, so it is an older copy; nothing was changed: "+
			"restore the newest one, or start over with `headway collect --fresh`", schema, was.Slice, s.mark.Slice)
	case was.Slice > s.mark.Slice:
		s.noticed = append(s.noticed, collect.Change{Kind: collect.SinkAhead})
		s.mark.Slice = was.Slice
	}
	// A slice that was staged and not committed is collected again.
	_, err = conn.Exec(ctx, `UPDATE `+table+` SET staged = 0, slice = NULL WHERE connection = $1 AND slice IS NOT NULL`, s.slice.Connection)
	return err
}

// Write buffers records for the commit. See [collect.Sink]. It is an error if a record is not
// JSON in UTF-8 or has no key, or if the slice exceeds 256 MiB; then no record of the call is
// kept.
func (s *Database) Write(ctx context.Context, stream string, records []collect.Record) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Write(ctx, stream, records)
}

// Remain marks the rows of a detail that are not among keys. See [collect.Marker].
func (s *Database) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Remain(ctx, stream, parent, keys, at)
}

// Restore buffers records for the commit that do not replace rows in the tables. See
// [collect.Restorer].
func (s *Database) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Restore(ctx, stream, kept)
}

// Sync stages the slice durably and returns the position to commit. See [collect.Sink].
func (s *Database) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := s.prove(ctx); err != nil {
		return nil, err
	}
	before := s.mark
	if c := s.take(); c != nil {
		text, err := pending.Encode(c.records)
		if err != nil {
			return nil, err
		}
		fault.Point(fault.FileStaging)
		if err := s.do(ctx, func(conn *pgx.Conn) error {
			schema, err := home(ctx, conn, s.schema)
			if err != nil {
				return err
			}
			tag, err := conn.Exec(ctx, `UPDATE `+pgx.Identifier{schema, "headway_slices"}.Sanitize()+` SET staged = $4, slice = $5
				WHERE connection = $1 AND id = $2 AND applied = $3`, s.slice.Connection, before.ID, before.Slice, c.mark.Slice, text)
			if err == nil && tag.RowsAffected() == 0 {
				err = errors.New("another process has written into the sink of this connection: run again, which continues from there")
			}
			return err
		}); err != nil {
			return nil, err
		}
		fault.Point(fault.FileStaged)
		s.staged, s.mark = c, c.mark
	}
	return json.Marshal(position{&s.mark})
}

// Committed applies the slice whose position was committed. See [collect.Informed].
func (s *Database) Committed(ctx context.Context, _ json.RawMessage) error { return s.prove(ctx) }

// prove applies the staged slice. It is called once its position is committed.
func (s *Database) prove(ctx context.Context) error {
	if err := sinkstate.MayWrite(ctx, name, s.slice.Open); err != nil || s.staged == nil {
		return err
	}
	fault.Point(fault.FileApplying)
	if err := s.do(ctx, func(conn *pgx.Conn) error {
		_, err := s.staged.apply(ctx, conn, true)
		return err
	}); err != nil {
		return err
	}
	fault.Point(fault.FileApplied)
	s.staged = nil
	return nil
}

// Ping reports why the database cannot be used, for a check before the first run. It
// creates nothing.
func (s *Database) Ping(ctx context.Context) error {
	conn, err := dial(ctx, s.at)
	if err == nil {
		err = conn.Close(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", place(s.at, s.schema), explain("", err))
	}
	return nil
}

// Noticed reports that the database has more slices than were committed. See [collect.Noticer].
func (s *Database) Noticed() []collect.Change { return s.noticed }

// Recognizes reports whether a position belongs to the database. See
// [collect.Recognizer].
func (s *Database) Recognizes(ctx context.Context, committed json.RawMessage) bool {
	return recognizes(ctx, s.at, s.schema, s.slice.Connection, committed)
}

func recognizes(ctx context.Context, at, schema, connection string, committed json.RawMessage) bool {
	var p position
	if json.Unmarshal(committed, &p) != nil || p.Postgres == nil {
		return false
	}
	conn, err := dial(ctx, at)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var id string
	table := quote("headway_slices")
	if schema != "" {
		table = pgx.Identifier{schema, "headway_slices"}.Sanitize()
	}
	err = conn.QueryRow(ctx, `SELECT id FROM `+table+` WHERE connection = $1`, connection).Scan(&id)
	return err == nil && id == p.Postgres.ID
}

// Close closes the session. See [collect.Sink]. Records that were not committed are lost; a
// staged slice is applied or discarded by the next Open.
func (s *Database) Close() error {
	s.end()
	s.staged = nil
	if s.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := s.session.Close(ctx)
	s.session = nil
	if err != nil && !pgsql.Lost(err) {
		return explain("", err)
	}
	return nil
}

// do runs f in a transaction, and again if the server was away.
func (s *Database) do(ctx context.Context, f func(*pgx.Conn) error) error {
	var until time.Time
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := s.once(ctx, f)
		if err == nil || !pgsql.Lost(err) && !pgsql.Contended(err) || ctx.Err() != nil {
			return explained(err)
		}
		if until.IsZero() {
			until = time.Now().Add(pgsql.MaxWait)
		}
		if time.Now().After(until) {
			return explained(err)
		}
		select {
		case <-ctx.Done():
			return explained(errors.Join(ctx.Err(), err))
		case <-time.After(wait):
		}
	}
}

// explained is explain for an error that may already be explained.
func explained(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), name) {
		return err
	}
	return explain("", err)
}

func (s *Database) once(ctx context.Context, f func(*pgx.Conn) error) error {
	if s.session != nil && s.session.IsClosed() {
		s.session = nil
	}
	if s.session == nil {
		conn, err := s.connect(ctx)
		if err != nil {
			return err
		}
		s.session = conn
	}
	conn := s.session
	_, err := conn.Exec(ctx, "BEGIN")
	if err == nil {
		err = f(conn)
	}
	if err == nil {
		tag, failed := conn.Exec(ctx, "COMMIT")
		if err = failed; err == nil && tag.String() != "COMMIT" {
			err = errors.New("the server rolled the transaction back")
		}
	}
	if err == nil {
		return nil
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	if _, failed := conn.Exec(after, "ROLLBACK"); failed != nil || pgsql.Lost(err) {
		_ = conn.Close(after) // the next try opens another
		s.session = nil
	}
	return err
}

// rollbackTime bounds the end of a transaction that failed. A session whose server does not
// answer by then is given up: the server ends the transaction.
const rollbackTime = 5 * time.Second

// connect opens a session and waits for the lock of the connection's sink.
func (s *Database) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := dial(ctx, s.at)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = '%dms'", pgsql.MaxWait.Milliseconds()))
	if err == nil {
		_, err = conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('headway sink ' || coalesce(nullif($1::text, ''), current_schema()) || ' ' || $2::text, 0))`, s.schema, s.slice.Connection)
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == "55P03" || e.Code == "57014") {
			err = fmt.Errorf("%s: another process writes the records of this connection and did not end in time: "+
				"wait for it or stop it, then run again: %w", name, err)
		}
	}
	if err == nil {
		_, err = conn.Exec(ctx, "COMMIT")
	}
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// dial opens a session whose locks the server frees within half a minute of its loss.
func dial(ctx context.Context, at string) (*pgx.Conn, error) {
	config, _, err := pgsql.Parse(at, 2)
	if err != nil {
		return nil, err
	}
	pgsql.Watch(config)
	return pgx.ConnectConfig(ctx, config)
}
