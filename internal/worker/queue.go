package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/headway-go/headway/internal/pgsql"
	"github.com/headway-go/headway/internal/schedule"
)

// offer puts a job into the queue for each connection that has none. One whose file was
// edited since its last run is due at once.
func (w *Worker) offer(ctx context.Context) error {
	for t, f := range w.known() {
		inserted, err := w.insert(ctx, t)
		if err != nil {
			return err
		}
		if was, ok := outcomeOf(inserted.Job); inserted.UniqueSkippedAsDuplicate && ok && was.Digest != f.Digest && inserted.Job.State == rivertype.JobStateScheduled {
			if _, err := w.client.JobRetry(ctx, inserted.Job.ID); err != nil {
				return fmt.Errorf("worker: %w", err)
			}
		}
	}
	return nil
}

// insert puts a job into the queue, unless the queue has it.
func (w *Worker) insert(ctx context.Context, t task) (*rivertype.JobInsertResult, error) {
	inserted, err := w.client.Insert(ctx, t, &river.InsertOpts{
		Queue: queue, MaxAttempts: 1000,
		UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateRetryable, rivertype.JobStateScheduled,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return inserted, nil
}

// known returns the connections, which nobody changes.
func (w *Worker) known() map[task]schedule.Connection {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.files
}

// reload reads the folder again and puts a job into the queue for each connection that has
// none: its file is new, or a worker took the job that does not have the file yet. Edited
// files are not due at once: while a new version is rolled out, two workers may have
// different ones.
func (w *Worker) reload(ctx context.Context) error {
	files, faults := tasks(w.c)
	if faults != nil {
		w.d.Log.Warn("some connections cannot be read", slog.Any("error", faults))
	}
	if files != nil {
		w.mu.Lock()
		w.files = files
		w.mu.Unlock()
	}
	rows, err := w.pool.Query(ctx, `SELECT args FROM river_job WHERE `+queued)
	if err != nil {
		return err
	}
	has := map[task]bool{}
	var args []byte
	if _, err := pgx.ForEachRow(rows, []any{&args}, func() error {
		var t task
		err := json.Unmarshal(args, &t)
		has[t] = true
		return err
	}); err != nil {
		return err
	}
	for t := range w.known() {
		if has[t] {
			continue
		}
		if _, err := w.insert(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// queued selects the jobs of connections that are in the queue.
const queued = `kind = 'headway_collect' AND state IN ('available', 'pending', 'running', 'retryable', 'scheduled')`

// abandoned are jobs whose worker has no session any more. A server that has just started
// has forgotten all locks: their holders take them again first.
const abandoned = `UPDATE river_job j SET state = 'available', scheduled_at = now(), attempt = greatest(attempt - 1, 0)
	WHERE state = 'running' AND kind = 'headway_collect' AND attempted_at < now() - interval '2 seconds'
	AND pg_postmaster_start_time() < now() - interval '10 seconds'
	AND NOT EXISTS (SELECT 1 FROM pg_locks l, (SELECT hashtextextended('headway worker ' || j.attempted_by[array_upper(j.attempted_by, 1)], 0) AS key) k
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND l.classid::bigint = (k.key >> 32) & 4294967295 AND l.objid::bigint = k.key & 4294967295)`

// due makes those available whose instant has come, as River's leader does every few
// seconds, and not at all while one that was killed is not replaced yet.
const due = `UPDATE river_job SET state = 'available' WHERE state = 'scheduled' AND kind = 'headway_collect' AND scheduled_at <= now()`

// tend keeps the lock and sees to the jobs of workers that are gone. It gives up after a
// minute, and waits for a lock that was lost only until the worker stops.
func (w *Worker) tend(ctx, until context.Context) error {
	ctx, done := context.WithTimeout(ctx, pgsql.MaxWait)
	defer done()
	if w.alive.IsClosed() || w.alive.Ping(ctx) != nil {
		_ = w.alive.Close(context.WithoutCancel(ctx))
		if err := w.live(until); err != nil {
			return err
		}
	}
	tag, err := w.alive.Exec(ctx, abandoned)
	if err != nil {
		return err
	}
	if n := tag.RowsAffected(); n > 0 {
		w.d.Log.Warn("taking over runs of a worker that is gone", slog.Int64("runs", n))
	}
	_, err = w.alive.Exec(ctx, due)
	return err
}

// outcomeOf is what a job kept of its last run.
func outcomeOf(job *rivertype.JobRow) (out outcome, ok bool) {
	raw := job.Output()
	return out, len(raw) > 0 && json.Unmarshal(raw, &out) == nil
}

// Jobs are the connections that are in the queue of a database, by name. A database
// without a queue has none.
func Jobs(ctx context.Context, at string) ([]schedule.Status, error) {
	pool, err := connect(ctx, at)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	list, there := []schedule.Status{}, false
	if err := pool.QueryRow(ctx, `SELECT to_regclass('river_job') IS NOT NULL`).Scan(&there); err != nil || !there {
		return list, err
	}
	rows, err := pool.Query(ctx, `SELECT args, state::text, scheduled_at, metadata -> 'output' FROM river_job
		WHERE `+queued+` ORDER BY args ->> 'connection', args ->> 'stream'`)
	if err != nil {
		return nil, err
	}
	var args, output []byte
	var state string
	var next time.Time
	_, err = pgx.ForEachRow(rows, []any{&args, &state, &next, &output}, func() error {
		var t task
		var out outcome
		err := json.Unmarshal(args, &t)
		if len(output) > 0 {
			err = errors.Join(err, json.Unmarshal(output, &out))
		}
		s := schedule.Status{Connection: t.name(), File: out.File, Failures: out.Failures, Error: out.Error, Running: state == string(rivertype.JobStateRunning)}
		if !s.Running {
			s.Next, s.CatchupNext = next, out.Catchup
		}
		list = append(list, s)
		return err
	})
	return list, err
}
