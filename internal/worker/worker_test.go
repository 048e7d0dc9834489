//go:build linux

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/internal/schedule"
	store "github.com/headway-go/headway/store/postgres"
)

// childEnv makes the test binary a worker: folder, database, timetable, a line each. With the
// address of a fleet it has the streams of connection c as jobs, and one run at a time.
const childEnv = "HEADWAY_WORKER_TEST_CHILD"

func TestMain(m *testing.M) {
	pgserver.Main(m, os.Getenv(childEnv), func(args []string) error {
		c, d := config(args[0], args[1], args[2]), Deps{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
		if len(args) > 3 {
			f, err := fleet.Open(context.Background(), args[3])
			if err != nil {
				return err
			}
			c.Split, c.Folder.Running, d.Fleet = []string{"c"}, 1, f
		}
		return work(context.Background(), nil, c, d)
	})
}

func config(dir, at, timetable string) Config {
	return Config{Folder: schedule.Config{Dir: dir, Timetable: timetable, Database: at, Running: 8, Lookup: os.LookupEnv}}
}

// work runs a worker on a store of its own until stop is closed.
func work(ctx context.Context, stop <-chan struct{}, c Config, d Deps) error {
	s, err := store.Open(ctx, c.Folder.Database)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	d.Store = s
	w, err := Open(ctx, c, d)
	if err != nil {
		return err
	}
	return w.Run(ctx, stop)
}

// start runs a worker in this process, and gives what ends it.
func start(t *testing.T, c Config, d Deps) (end func()) {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := work(t.Context(), stop, c, d); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return sync.OnceFunc(func() { close(stop); wg.Wait() })
}

// spawn runs a worker in a process of its own.
func spawn(t *testing.T, c Config, address ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+c.Folder.Dir+"\n"+strings.Join(append([]string{c.Folder.Database, c.Folder.Timetable}, address...), "\n"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("a worker said:\n%.4000s", log.String())
		}
	})
	return cmd
}

// provider serves /NAME/items?cursor=N.
type provider struct {
	at    string
	pages int
	size  int           // items a page
	takes time.Duration // for each page

	mu      sync.Mutex
	first   time.Time // when it was asked first, and last
	last    time.Time
	asked   map[string]int  // pages, by path
	busy    map[string]bool // a request is under way
	twice   []string        // paths that two requests were under way for
	hold    map[string]chan struct{}
	held    chan string
	refuse  map[string]time.Time // answered with 429 once, and when
	came    map[string]time.Time // when it was asked for again after that
	seconds int
}

func serve(t *testing.T, pages int) *provider {
	t.Helper()
	p := &provider{
		pages: pages, size: 10, asked: map[string]int{}, busy: map[string]bool{}, hold: map[string]chan struct{}{}, held: make(chan string, 100),
		refuse: map[string]time.Time{}, came: map[string]time.Time{},
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.at = s.URL
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var page int
	_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &page)
	p.mu.Lock()
	if p.busy[r.URL.Path] {
		p.twice = append(p.twice, r.URL.Path)
	}
	if p.last = time.Now(); p.first.IsZero() {
		p.first = p.last
	}
	p.busy[r.URL.Path] = true
	p.asked[r.URL.Path]++
	hold := p.hold[fmt.Sprintf("%s?%d", r.URL.Path, page)]
	refused, refuse := p.refuse[r.URL.Path]
	if refuse && refused.IsZero() {
		p.refuse[r.URL.Path] = time.Now()
	} else if _, again := p.came[r.URL.Path]; refuse && !again {
		p.came[r.URL.Path] = time.Now()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.busy[r.URL.Path] = false
		p.mu.Unlock()
	}()
	time.Sleep(p.takes)
	if hold != nil {
		p.held <- r.URL.Path
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	if refuse && refused.IsZero() {
		w.Header().Set("Retry-After", fmt.Sprint(p.seconds))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	type item struct {
		ID   int `json:"id"`
		Page int `json:"page"`
	}
	body := map[string]any{}
	var items []item
	for i := range p.size {
		items = append(items, item{page*p.size + i, page})
	}
	if body["items"] = items; page+1 < p.pages {
		body["next"] = fmt.Sprint(page + 1)
	}
	_ = json.NewEncoder(w).Encode(body)
}

// holds waits until the provider holds a request.
func (p *provider) holds(t *testing.T) {
	t.Helper()
	select {
	case <-p.held:
	case <-time.After(maxWait):
		t.Fatalf("after %v no worker asks for the page that is held", maxWait)
	}
}

// connection writes a connection file whose streams have these names.
func (p *provider) connection(t *testing.T, dir, name string, streams ...string) {
	t.Helper()
	text := fmt.Sprintf(`connection: %s
provider:
  base_url: %s
  ceiling: 1ms
  pacing: {initial: 1ms, law: aimd, step: 1ms, max_retry_after: 1s}
sink: {postgres: {}}
streams:
`, name, p.at)
	for _, s := range streams {
		text += fmt.Sprintf("  - {name: %[1]s, list: {path: /%[1]s/items}, records: .items, key: .id, paginate: {cursor: .next, param: cursor}}\n", s)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// maxWait is how long a test waits for what has to come, before it fails.
const maxWait = 5 * time.Minute

// until waits for a query to give true.
func until(t *testing.T, at, query string) {
	t.Helper()
	db := pgserver.Open(t, at)
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(maxWait); ; <-tick.C {
		var yes bool
		// A table may not be there yet.
		if err := db.QueryRowContext(t.Context(), query).Scan(&yes); err == nil && yes {
			return
		} else if time.Now().After(deadline) || t.Context().Err() != nil {
			t.Fatalf("not after %v: %s: %v, %v", maxWait, query, yes, err)
		}
	}
}

// ended counts the runs that drained.
const ended = `(SELECT count(*) FROM headway_runs WHERE state = 'drained')`

// TestWorkersShareAFolder: each connection runs again and again, on one worker at a time, and
// the schedule shows it. A file that comes is collected, and workers that are stopped leave
// their runs to others.
func TestWorkersShareAFolder(t *testing.T) {
	at, dir, p := pgserver.Shared(t).Database(t), t.TempDir(), serve(t, 3)
	for i := range 6 {
		p.connection(t, dir, fmt.Sprintf("c%d", i), fmt.Sprintf("docs%d", i))
	}
	c := config(dir, at, "@every 1s")
	one, two := start(t, c, Deps{}), start(t, c, Deps{})
	until(t, at, `SELECT count(*) = 6 AND min(n) >= 2 FROM (SELECT count(*) AS n FROM headway_runs WHERE state = 'drained' GROUP BY connection) x`)
	one()
	until(t, at, `SELECT count(*) = 6 AND min(n) >= 4 FROM (SELECT count(*) AS n FROM headway_runs WHERE state = 'drained' GROUP BY connection) x`)
	jobs, err := Jobs(t.Context(), at)
	if err != nil || len(jobs) != 6 || jobs[0].Connection != "c0" || jobs[0].File != filepath.Join(dir, "c0.yaml") || jobs[0].Running == !jobs[0].Next.IsZero() {
		t.Errorf("the jobs are %+v, %v", jobs, err)
	}
	two()
	for i := range 6 {
		until(t, at, fmt.Sprintf(`SELECT count(*) = 30 FROM docs%d`, i))
	}
	if len(p.twice) > 0 {
		t.Errorf("two workers at once: %v", p.twice)
	}
}

// TestAWorkerThatIsKilled: another takes its run over and goes on where it was, while the
// lease has a day to go.
func TestAWorkerThatIsKilled(t *testing.T) {
	server := pgserver.Shared(t)
	at, dir, p := server.Database(t), t.TempDir(), serve(t, 5)
	p.connection(t, dir, "c", "docs")
	held := make(chan struct{})
	p.mu.Lock()
	p.hold["/docs/items?3"] = held
	p.mu.Unlock()
	c := config(dir, at, "@every 1h")
	first := spawn(t, c)
	p.holds(t)
	until(t, at, `SELECT count(*) = 30 FROM docs`)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, at, `UPDATE headway_connections SET expires = now() + interval '1 day'`)
	end := start(t, c, Deps{})
	defer end()
	p.holds(t)
	close(held)
	until(t, at, `SELECT count(*) = 50 AND `+ended+` = 1 FROM docs`)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.asked["/docs/items"]; n != 6 {
		t.Errorf("%d pages were asked for, want 6: the one under way again, and none that was committed", n)
	}
}

// opened opens a worker that does not run, on a store of its own.
func opened(t *testing.T, c Config) *Worker {
	t.Helper()
	s, err := store.Open(t.Context(), c.Folder.Database)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Open(t.Context(), c, Deps{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.pool.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestAFileThatHasNoJobGetsOne: a worker with an older version of the folder completes the
// job of a file that it does not have, and a new file comes while the database does not
// answer. The next look at the folder offers both.
func TestAFileThatHasNoJobGetsOne(t *testing.T) {
	server := pgserver.Shared(t)
	at, dir, p := server.Database(t), t.TempDir(), serve(t, 1)
	p.connection(t, dir, "a", "docs")
	p.connection(t, dir, "b", "talks")
	w := opened(t, config(dir, at, "@every 1h"))
	if err := w.offer(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, at, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE args ->> 'connection' = 'b'`)
	p.connection(t, dir, "c", "people")
	server.Exec(t, at, `ALTER TABLE river_job RENAME TO away`)
	if err := w.reload(t.Context()); err == nil {
		t.Error("a queue that is not there is no error")
	}
	server.Exec(t, at, `ALTER TABLE away RENAME TO river_job`)
	if err := w.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobs, err := Jobs(t.Context(), at)
	var names []string
	for _, j := range jobs {
		names = append(names, j.Connection)
	}
	if err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("jobs of %v: %v", names, err)
	}
}

// TestAnEditIsNotDueAtOnceWhileWorkersRun: while a folder is rolled out two workers may have
// different versions of a file, and only a start makes an edited one due.
func TestAnEditIsNotDueAtOnceWhileWorkersRun(t *testing.T) {
	at, dir, p := pgserver.Shared(t).Database(t), t.TempDir(), serve(t, 1)
	p.connection(t, dir, "a", "docs")
	c := config(dir, at, "@every 1h")
	end := start(t, c, Deps{})
	until(t, at, `SELECT state = 'scheduled' AND metadata ? 'output' FROM river_job`)
	end()
	p.connection(t, dir, "a", "docs", "talks")
	p.connection(t, dir, "b", "people")
	w := opened(t, c)
	if err := w.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, at, `SELECT bool_and(state = CASE args ->> 'connection' WHEN 'a' THEN 'scheduled' ELSE 'available' END::river_job_state) FROM river_job`)
	if err := w.offer(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, at, `SELECT bool_and(state = 'available') FROM river_job`)
}

// TestAWorkerStopsWhileItWaitsForItsLock: its session is gone, and the server does not know
// it yet.
func TestAWorkerStopsWhileItWaitsForItsLock(t *testing.T) {
	at, dir, p := pgserver.Shared(t).Database(t), t.TempDir(), serve(t, 1)
	p.connection(t, dir, "a", "docs")
	w := opened(t, config(dir, at+"&statement_timeout=0", "@every 1h"))
	stop, ran := make(chan struct{}), make(chan error, 1)
	go func() { ran <- w.Run(t.Context(), stop) }()
	const waits = `EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`
	until(t, at, `SELECT state = 'scheduled' FROM river_job`)
	db := pgserver.Open(t, at)
	holder, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locked := make(chan error, 1)
	key := `hashtextextended('headway worker ' || '` + w.client.ID() + `', 0)`
	go func() {
		_, err := holder.ExecContext(t.Context(), `SELECT pg_advisory_lock(`+key+`)`)
		locked <- err
	}()
	until(t, at, `SELECT `+waits)
	if _, err := db.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted`); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	until(t, at, `SELECT `+waits)
	close(stop)
	select {
	case err := <-ran:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(maxWait):
		t.Errorf("it does not stop within %v", maxWait)
	}
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
}

// TestADeferredRunComesBack: the job is put off to the instant at which the run can go on,
// and runs then.
func TestADeferredRunComesBack(t *testing.T) {
	at, dir, p := pgserver.Shared(t).Database(t), t.TempDir(), serve(t, 1)
	p.connection(t, dir, "c", "docs")
	p.mu.Lock()
	p.refuse["/docs/items"], p.seconds = time.Time{}, 60
	p.mu.Unlock()
	end := start(t, config(dir, at, "@every 1h"), Deps{})
	defer end()
	until(t, at, `SELECT j.state = 'scheduled' AND abs(extract(epoch FROM j.scheduled_at - r.retry_at)) < 1
		FROM river_job j, headway_runs r WHERE r.state = 'deferred' AND r.retry_at > r.ended`)
	// Nobody waits for it here: the instant is moved.
	var due time.Time
	if err := pgserver.Open(t, at).QueryRowContext(t.Context(), `UPDATE river_job SET scheduled_at = now() + interval '2 seconds' RETURNING scheduled_at`).Scan(&due); err != nil {
		t.Fatal(err)
	}
	until(t, at, `SELECT `+ended+` = 1`)
	p.mu.Lock()
	defer p.mu.Unlock()
	late := p.came["/docs/items"].Sub(due)
	t.Logf("it came back %v after the instant", late)
	if late < -50*time.Millisecond || longtest.Long() && late > 2*time.Second { // two clocks of one machine, which may be busy
		t.Errorf("it came back %v after the instant", late)
	}
}

// TestAConnectionInParts: each stream is a job and a connection of its own, and the parts
// need a fleet to share the pace.
func TestAConnectionInParts(t *testing.T) {
	at, dir, p := pgserver.Shared(t).Database(t), t.TempDir(), serve(t, 2)
	p.connection(t, dir, "c", "docs", "talks", "people")
	c := config(dir, at, "@every 1h")
	c.Split = []string{"c"}
	if _, err := Check(c, false); err == nil || !strings.Contains(err.Error(), "name a fleet") {
		t.Errorf("parts without a fleet: %v", err)
	}
	if jobs, err := Check(c, true); err != nil || len(jobs) != 3 || jobs[0] != (Job{Connection: "c.docs", Schedule: "@every 1h", File: filepath.Join(dir, "c.yaml")}) {
		t.Errorf("the jobs of a folder: %+v, %v", jobs, err)
	}
	if _, err := Check(Config{Folder: c.Folder, Split: []string{"d"}}, true); err == nil || !strings.Contains(err.Error(), `no connection "d"`) {
		t.Errorf("a connection that is not there: %v", err)
	}
	hub := fleet.NewServer()
	defer hub.Close()
	shared := hub.Fleet()
	end := start(t, c, Deps{Fleet: shared})
	until(t, at, `SELECT `+ended+` = 3 AND (SELECT string_agg(name, ' ' ORDER BY name) FROM headway_connections) = 'c.docs c.people c.talks'`)
	end()
	for _, stream := range []string{"docs", "talks", "people"} {
		until(t, at, `SELECT count(*) = 20 FROM `+stream)
	}
}

// TestFourWorkersShareAConnection: its streams are collected at once, each on one worker. In a
// long run, of 100,000 items, four workers need at most 0.3 of the time of one.
func TestFourWorkersShareAConnection(t *testing.T) {
	streams := []string{"docs", "talks", "people", "rooms"}
	took := map[int]time.Duration{}
	for _, workers := range []int{1, 4}[longtest.Size(1, 0):] {
		at, dir, p := pgserver.Shared(t).Database(t), t.TempDir(), serve(t, longtest.Size(10, 250))
		p.size, p.takes = 100, 60*time.Millisecond
		p.connection(t, dir, "c", streams...)
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, fleet.Socket))
		if err != nil {
			t.Fatal(err)
		}
		hub := fleet.NewServer()
		go hub.Serve(l)
		var all []*exec.Cmd
		for range workers {
			all = append(all, spawn(t, config(dir, at, "@every 1h"), "unix://"+l.Addr().String()))
		}
		until(t, at, `SELECT `+ended+` = 4`)
		for _, w := range all {
			_ = w.Process.Kill()
			_ = w.Wait()
		}
		_ = l.Close()
		hub.Close()
		p.mu.Lock()
		took[workers] = p.last.Sub(p.first)
		p.mu.Unlock()
		t.Logf("%d workers: %d items in %v", workers, len(streams)*p.pages*p.size, took[workers])
		for _, stream := range streams {
			until(t, at, fmt.Sprintf(`SELECT count(*) = %d FROM %s`, p.pages*p.size, stream))
		}
	}
	if longtest.Long() && took[4] > 3*took[1]/10 {
		t.Errorf("four workers took %v, and one %v", took[4], took[1])
	}
}

// TestWorkersThatAreKilled: eight workers, many connections, kills at random, and now and
// then the server. Every run is on one worker at a time, and nothing is lost. A long run takes
// ten minutes.
func TestWorkersThatAreKilled(t *testing.T) {
	at, dir, p := pgserver.Shared(t).Database(t), t.TempDir(), serve(t, 4)
	connections, kills := longtest.Size(8, 200), longtest.Size(3, 60)
	for i := range connections {
		p.connection(t, dir, fmt.Sprintf("c%d", i), fmt.Sprintf("docs%d", i))
	}
	c := config(dir, at, map[bool]string{false: "@every 1s", true: "@every 20s"}[connections > 8])
	workers := make([]*exec.Cmd, longtest.Size(2, 8))
	for i := range workers {
		workers[i] = spawn(t, c)
	}
	db, begun, n := pgserver.Open(t, at), time.Now(), 0
	for ; n < kills || longtest.Long() && time.Since(begun) < 10*time.Minute; n++ {
		// A kill comes after so many more runs, so that it hits all kinds of instants.
		var was int
		_ = db.QueryRowContext(t.Context(), `SELECT count(*) FROM headway_runs`).Scan(&was) // 0 without the table
		until(t, at, fmt.Sprintf(`SELECT count(*) > %d FROM headway_runs`, was+rand.IntN(min(connections, 24))))
		i := rand.IntN(len(workers))
		_ = workers[i].Process.Kill()
		_ = workers[i].Wait()
		workers[i] = spawn(t, c)
		if n%20 == 19 {
			t.Logf("%d kills, %d runs", n+1, was)
		}
	}
	var was int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM headway_runs`).Scan(&was); err != nil {
		t.Fatal(err)
	}
	until(t, at, fmt.Sprintf(`SELECT count(DISTINCT connection) = %d FROM headway_runs WHERE state = 'drained' AND n > %d`, connections, was))
	for _, w := range workers {
		_ = w.Process.Kill()
		_ = w.Wait()
	}
	for i := range connections {
		var rows, keys int
		if err := db.QueryRowContext(t.Context(), fmt.Sprintf(`SELECT count(*), count(DISTINCT id) FROM docs%d`, i)).Scan(&rows, &keys); err != nil || rows != 40 || keys != 40 {
			t.Errorf("connection %d has %d rows of %d keys, want 40: %v", i, rows, keys, err)
		}
	}
	var overlaps, jobs int
	if err := db.QueryRowContext(t.Context(), `SELECT
		(SELECT count(*) FROM headway_runs a JOIN headway_runs b ON a.connection = b.connection AND a.n < b.n AND a.state <> 'abandoned' AND b.started < a.ended),
		(SELECT count(*) FROM river_job WHERE state <> 'completed')`).Scan(&overlaps, &jobs); err != nil || overlaps > 0 || jobs != connections {
		t.Errorf("%d runs overlap, and there are %d jobs for %d connections: %v", overlaps, jobs, connections, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.twice) > n*len(workers) {
		// What a killed worker asked for may still be under way when another asks again.
		t.Errorf("two requests were under way %d times with %d kills", len(p.twice), n)
	}
}
