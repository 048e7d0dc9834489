package arch

import "slices"

// A Law is what the source of one module has to keep.
type Law struct {
	// Map says, for every package, what it may import. The first row that
	// covers a package counts.
	Map []Row
	// Pure are patterns of the packages that only compute: no clock, no
	// goroutine, no I/O, no log.
	Pure []string
	// Virtual are patterns of further packages whose only time is virtual.
	Virtual []string
	// Allowed are the exceptions to purity.
	Allowed []Exception
	// Edge are patterns of the packages that may read the environment. (Fault
	// does so only under a build tag that no shipped binary has, and only tests
	// import fulldisk.)
	Edge []string
}

// A Row is one row of the package map. Imports of tests are exempt, except that
// nothing may import a command, and that what tests share is only for them.
type Row struct {
	Covers    []string // Patterns of the packages that the row is about.
	Imports   []string // Patterns of the packages of this module that they may import.
	Libraries []string // Import path prefixes outside the standard library, or "*".
	Why       string   // Why not more.
}

// An Exception lets pure packages use a few names of an import that is
// otherwise forbidden to them.
type Exception struct {
	Packages string   // A pattern.
	Import   string   // The import path.
	Names    []string // Exported names; a trailing * stands for any ending.
	Why      string
}

const (
	// commands is where programs live; nothing imports them.
	commands = "cmd/..."
	// cli is all that a command does; only a command imports it.
	cli = "internal/cli"
	// harness is what the end-to-end tests share; nothing else imports it, not
	// even another test.
	harness = "e2e/internal/harness"
	// debian, fleetTest, fullDisk, goldens, leakTest, longTest, pgServer, pipeNet, powerCut,
	// sinkTest and valkeySrv are for tests; nothing else imports them.
	debian    = "internal/debian"
	fleetTest = "internal/fleettest"
	fullDisk  = "internal/fulldisk"
	goldens   = "internal/golden"
	leakTest  = "internal/leaktest"
	longTest  = "internal/longtest"
	pgServer  = "internal/pgserver"
	pipeNet   = "internal/pipenet"
	powerCut  = "internal/powercut"
	sinkTest  = "sink/internal/sinktest"
	valkeySrv = "internal/valkeyserver"
)

var (
	pure = []string{"reason", "internal/pace", "control", "breaker", "retry", "quota", "signal"}
	// core is what a shell may always build on.
	core   = slices.Concat([]string{".", "event"}, pure)
	shells = []string{"transport", "collect/...", "bulk/...", "egress/..."}
)

// Headway is the law of this module. docs/adr/0001 draws the map.
var Headway = Law{
	Map: []Row{
		{
			Covers: []string{"reason"},
			Why:    "reason is the vocabulary that every package shares, so whatever it imports, everyone imports",
		},
		{
			Covers:    []string{"signal"},
			Imports:   []string{"reason"},
			Libraries: []string{"github.com/dunglas/httpsfv"},
			Why:       "a pure package imports only the standard library and reason; signal alone may add the grammar of structured header fields (docs/adr/0002)",
		},
		{
			Covers: []string{"internal/fairqueue"},
			Why:    "it only orders those who wait, whatever they wait for",
		},
		{
			Covers:  []string{"quota"},
			Imports: []string{"reason", "internal/fairqueue"},
			Why:     "quota is pure as the others are; the order of those who wait, which fairqueue decides, is pure too",
		},
		{
			Covers: []string{"control/internal/learn"},
			Why:    "it is what a law learns with, and knows neither laws nor how attempts end: control adapts it",
		},
		{
			Covers:  []string{"control"},
			Imports: []string{"reason", "control/internal/learn"},
			Why:     "control is pure as the others are; what the law cycle learns with is pure too, and nobody else's",
		},
		{
			Covers:  pure,
			Imports: []string{"reason"},
			Why:     "a pure package imports only the standard library and reason, never another pure package: the root composes them, so each can be understood and tested alone",
		},
		{
			Covers:  []string{"internal/pacing"},
			Imports: []string{"reason", "breaker", "control", "signal", "internal/pace"},
			Why:     "it composes the pure packages into a connection's state machine, for the facade and for the simulator",
		},
		{
			Covers:  []string{"event"},
			Imports: []string{"reason"},
			Why:     "every layer emits events, so the event package knows none of them",
		},
		{
			Covers:  []string{"."},
			Imports: slices.Concat([]string{"event", "internal/fairqueue", "internal/pacing"}, pure),
			Why:     "the facade only composes the pure packages, so that a program that wraps an http.Client links no store, no server and no third-party code but the header grammar",
		},
		{
			Covers:  []string{"connector"},
			Imports: []string{"reason", "internal/figure"},
			Why:     "people write connectors by hand in Go: the interface must cost them no dependency",
		},
		{
			Covers:    []string{"connector/..."},
			Imports:   slices.Concat([]string{"connector/...", "internal/profile", "internal/figure", "internal/configfile", "internal/httpauth", "internal/jq", "internal/rawjson", "internal/disk"}, pure),
			Libraries: []string{"*"},
			Why:       "a connector describes requests and reads answers, and keeps a credential that the provider replaced; who paces, stores or runs it is not its business",
		},
		{
			Covers:  []string{"quota/governor"},
			Imports: []string{"quota", "reason", "internal/atomicfile", "internal/disk", "internal/lockfile"},
			Why:     "the shell of quota goes into other people's programs: it adds clock, lock and file to the pure machine, and knows neither who configures it nor who serves it",
		},
		{
			Covers:  []string{"internal/quotafile"},
			Imports: []string{"quota", "reason", "internal/configfile", "internal/figure"},
			Why:     "it only reads bytes and keys into quota's own configuration, so that a program that configures in Go links no YAML",
		},
		{
			Covers:  []string{"agent", "llm"},
			Imports: []string{"quota", "reason"},
			Why:     "they go into other people's programs beside any client: they know quota's values and interfaces of their own, never who keeps the governor, stores or serves",
		},
		{
			Covers: []string{"internal/wire"},
			Why:    "it is what senders of HTTP requests share below the level of a call, and knows of nothing that is sent",
		},
		{
			Covers:  []string{"transport"},
			Imports: slices.Concat([]string{"internal/wire"}, core),
			Why:     "transport goes into other people's programs: it knows the facade, never who collects, stores or serves",
		},
		{
			Covers:    []string{"collect/..."},
			Imports:   slices.Concat([]string{"collect/...", "connector", "transport", "internal/fault"}, core),
			Libraries: []string{"*"},
			Why:       "imports point inward: collect declares the store and sink it needs and is handed one, so that a new store changes nothing here",
		},
		{
			Covers: []string{"internal/ledger"},
			Why:    "it only keeps sets of row numbers",
		},
		{
			Covers:  []string{"internal/dispatch"},
			Imports: []string{"reason", "control", "breaker", "retry", "internal/ledger"},
			Why:     "the decisions of a load are composed of the pure packages and are pure themselves, so that the simulator runs them in virtual time",
		},
		{
			Covers:  []string{"internal/journal"},
			Imports: []string{"internal/ledger", "reason", "internal/atomicfile", "internal/disk", "internal/lockfile"},
			Why:     "the journal keeps what became of rows; who sends them, and how fast, is not its business",
		},
		{
			Covers:    []string{"bulk/..."},
			Imports:   slices.Concat([]string{"bulk/...", "internal/dispatch", "internal/journal", "internal/ledger", "collect", "connector", "transport", "internal/configfile", "internal/httpauth", "internal/jq", "internal/figure"}, core),
			Libraries: []string{"*"},
			Why:       "imports point inward: bulk declares the source and target it needs and is handed one",
		},
		{
			Covers:    []string{"internal/estimate", "internal/usage"},
			Imports:   []string{"quota", "internal/rawjson"},
			Libraries: []string{"*"},
			Why:       "they count tokens, before a call and in its answer; who is asked for leave is not their business",
		},
		{
			Covers:    []string{"internal/keys"},
			Imports:   []string{"reason"},
			Libraries: []string{"*"},
			Why:       "it only identifies who presents a key, and limits who presents invalid ones",
		},
		{
			Covers:    []string{"egress/..."},
			Imports:   slices.Concat([]string{"egress/...", "internal/estimate", "internal/keys", "internal/profile", "internal/rawjson", "internal/usage", "internal/wire", "transport"}, core),
			Libraries: []string{"*"},
			Why:       "imports point inward: egress forwards calls and asks interfaces of its own for limits, so that it never waits on a particular store or server",
		},
		{
			Covers:  []string{"internal/memory"},
			Imports: []string{"collect", "event", "reason"},
			Why:     "a store in memory is what others are compared with: it needs the interface that it implements, and no database, file or network",
		},
		{
			Covers:  []string{"internal/fleet"},
			Imports: []string{"reason", "control", "internal/fairqueue", "internal/pacing"},
			Why:     "it decides which member of a fleet may send next, by the same pure pacing as a single process: sockets belong to the shell",
		},
		{
			Covers: []string{"internal/relay"},
			Why:    "it elects a leader through any broker and carries bytes to it: it knows neither the meaning of the bytes nor the kind of broker",
		},
		{
			Covers:    []string{"internal/valkey"},
			Imports:   []string{"internal/relay", "quota"},
			Libraries: []string{"github.com/redis/rueidis"},
			Why:       "it is the only client of Valkey, with keys and scripts only",
		},
		{
			Covers:  []string{"fleet"},
			Imports: []string{".", "control", "internal/fleet", "internal/relay", "internal/lockfile", "internal/pacing", "internal/valkey", "quota"},
			Why:     "it carries messages between governors and a server: it does not know what members use their pace for, and clients of databases are in packages of their own",
		},
		{
			Covers:  []string{fleetTest},
			Imports: []string{".", "event", "fleet"},
			Why:     "it is the contract of every kind of fleet, for tests",
		},
		{
			Covers:  []string{valkeySrv},
			Imports: []string{debian},
			Why:     "it only starts and stops a Valkey for the test that asks for it; what is in it is the test's business",
		},
		{
			Covers:    []string{"internal/pgsql"},
			Libraries: []string{"github.com/jackc/pgx"},
			Why:       "it only says how a database is addressed and what its errors mean, whatever is in it",
		},
		{
			Covers:    []string{"store/...", "fleet/..."},
			Imports:   slices.Concat([]string{"store/...", "fleet/...", "connector", "internal/memory", "internal/lockfile", "internal/fault", "internal/pgsql", "internal/sqlitefile"}, shells, core),
			Libraries: []string{"*"},
			Why:       "a store implements interfaces that its consumers declare; it knows neither the daemon nor the sinks beside it",
		},
		{
			Covers:    []string{sinkTest},
			Imports:   []string{"collect/...", leakTest},
			Libraries: []string{"*"},
			Why:       "it writes to a sink and kills it, as every test of a sink does",
		},
		{
			Covers:    []string{"sink/..."},
			Imports:   []string{"sink/...", "collect/...", "connector", "event", "reason", "internal/disk", "internal/lockfile", "internal/fault", "internal/rawjson", "internal/pgsql", "internal/sqlitefile"},
			Libraries: []string{"*"},
			Why:       "a sink is handed records and writes them; it neither paces nor owns the state of a run",
		},
		{
			Covers:  []string{"internal/sim/fit"},
			Imports: []string{"internal/sim/scenario", "internal/configfile"},
			Why:     "it finds limits in a recorded trace: nothing is run, and who recorded it is not its business",
		},
		{
			Covers:    []string{"internal/sim/..."},
			Imports:   slices.Concat([]string{"internal/sim/...", "internal/profile", "internal/figure", "internal/dispatch", "internal/fleet", "internal/pacing", "internal/configfile"}, core),
			Libraries: []string{"*"},
			Why:       "the simulator runs the pure packages in virtual time; a collector, store, sink or command would bring in real time and real state",
		},
		{
			Covers:  []string{"internal/audit"},
			Imports: []string{"collect", "reason", "internal/disk", "internal/lockfile"},
			Why:     "it writes down what people change, for the command line and the API alike; who may change what is theirs to say",
		},
		{
			Covers:  []string{"internal/events"},
			Imports: []string{"event", "quota"},
			Why:     "it only joins what is emitted and hands it on: of who emits and who reads it knows nothing",
		},
		{
			Covers:    []string{"internal/calls"},
			Imports:   []string{"egress", "internal/sqlitefile"},
			Libraries: []string{"modernc.org/sqlite"},
			Why:       "it keeps calls that are over: what they may, and who asks, is not its business",
		},
		{
			Covers: []string{"internal/samples"},
			Why:    "it only keeps numbers by time: who looks at connections, where the file is and who draws is not its business",
		},
		{
			Covers:    []string{"internal/schedule"},
			Imports:   []string{".", "fleet", "collect", "connector/rest", "event", "reason", "sink/jsonl", "sink/parquet", "sink/postgres", "sink/sqlite"},
			Libraries: []string{"github.com/robfig/cron/v3"},
			Why:       "it says when a collection is due and starts it; budgets, proxied calls and who asks over HTTP are not its business",
		},
		{
			Covers:    []string{"internal/worker"},
			Imports:   []string{"collect", "connector/rest", "fleet", "reason", "internal/pgsql", "internal/schedule"},
			Libraries: []string{"github.com/jackc/pgx", "github.com/riverqueue/river"},
			Why:       "it takes runs from a queue; when one is due, and what it is made of, is decided where a daemon decides it",
		},
		{
			Covers:    []string{"internal/metrics"},
			Imports:   []string{".", "collect", "egress", "event", "fleet", "quota", "quota/governor", "reason"},
			Libraries: []string{"github.com/prometheus/client_golang"},
			Why:       "it only shows what the layers below count: it steers nothing and knows no daemon",
		},
		{
			Covers:    []string{"internal/telemetry"},
			Imports:   []string{".", "egress", "quota", "reason"},
			Libraries: []string{"github.com/prometheus/client_golang", "go.opentelemetry.io"},
			Why:       "it only sends away what calls did: it steers nothing and knows no daemon",
		},
		{
			Covers:  []string{"internal/api"},
			Imports: []string{".", "collect", "egress", "event", "fleet", "internal/audit", "internal/calls", "internal/events", "internal/samples", "internal/schedule", "quota", "quota/governor", "reason"},
			Why:     "it shows and steers the layers below over HTTP, by the standard library alone; it knows neither the daemon nor its file, nor who stores",
		},
		{
			Covers:    []string{"internal/ratelimit"},
			Imports:   []string{"internal/api", "quota"},
			Libraries: []string{"github.com/envoyproxy/go-control-plane/envoy", "google.golang.org/grpc", "google.golang.org/protobuf"},
			Why:       "it only translates gateways' questions: what is approved, the API decides",
		},
		{
			Covers:  []string{"internal/client"},
			Imports: []string{"collect", "fleet", "internal/api", "internal/audit", "internal/calls", "internal/events", "internal/samples", "internal/schedule", "quota", "quota/governor"},
			Why:     "it decodes what the API answers into the same types, and knows neither the daemon nor who asks",
		},
		{
			Covers:  []string{"internal/story"},
			Imports: []string{"collect", "control", "event", "reason", "internal/figure"},
			Why:     "it only puts what happened into words, the same for the terminal and the browser",
		},
		{
			Covers:  []string{"internal/console"},
			Imports: []string{"internal/client", "collect", "event", "quota", "reason", "internal/figure", "internal/profile", "internal/story"},
			Why:     "it shows what the API answers, as a client of it: with another source it would compute figures in a second way",
		},
		{
			Covers:    []string{"daemon/..."},
			Imports:   slices.Concat([]string{"daemon/...", "internal/profile", "internal/forward", "internal/api", "internal/audit", "internal/calls", "internal/console", "internal/events", "internal/metrics", "internal/ratelimit", "internal/samples", "internal/schedule", "internal/telemetry", "internal/estimate", "internal/keys", "connector/...", "store/...", "fleet/...", "sink/...", "quota/governor", "internal/quotafile", "internal/atomicfile", "internal/disk", "internal/lockfile", "internal/configfile"}, shells, core),
			Libraries: []string{"*"},
			Why:       "the daemon is embeddable: it wires the layers below it and knows no command and no simulator",
		},
		{
			Covers:    []string{commands, cli},
			Imports:   []string{"..."},
			Libraries: []string{"*"},
			Why:       "a command may use everything",
		},
		{
			Covers:  []string{harness},
			Imports: []string{"collect", "internal/sim/scenario", "internal/sim/serve"},
			Why:     "the end-to-end tests share how to run the binary and what a simulated provider has; they look at the binary from the outside, so none of what it is made of comes in here but the shape of what it prints",
		},
		{
			Covers: []string{"e2e/..."},
			Why:    "an end-to-end test uses everything from the outside, in test files: what anything else could import does not belong there",
		},
		{
			Covers:    []string{"internal/jq"},
			Imports:   []string{"internal/configfile"},
			Libraries: []string{"github.com/itchyny/gojq"},
			Why:       "it runs expressions; where they stand, and what their values are for, is its callers' business",
		},
		{
			Covers:    []string{"internal/httpauth"},
			Imports:   []string{"internal/configfile", "internal/atomicfile", "internal/disk", "internal/lockfile"},
			Libraries: []string{"golang.org/x/oauth2"},
			Why:       "it gets and keeps tokens; on which request they go, and what an error means to a load or a collection, is its callers' business",
		},
		{
			Covers:    []string{"internal/configfile"},
			Imports:   []string{"internal/figure"},
			Libraries: []string{"github.com/goccy/go-yaml"},
			Why:       "it reads what a person wrote and says what is wrong with it; what the keys mean is its callers' business",
		},
		{
			Covers:  []string{"internal/profile"},
			Imports: []string{"reason", "signal", "control", "internal/configfile", "internal/figure"},
			Why:     "it is what providers publish, as data, and says which attempt is of which pool: who sends and who waits is not its business",
		},
		{
			Covers:  []string{"internal/ca"},
			Imports: []string{"internal/atomicfile", "internal/disk", "internal/lockfile"},
			Why:     "it keeps one key and signs with it; which hosts are decrypted, and what is said to them, is its callers' business",
		},
		{
			Covers:  []string{"internal/forward"},
			Imports: slices.Concat([]string{"internal/ca", "internal/profile", "internal/wire", "internal/atomicfile", "internal/disk", "internal/lockfile", "fleet", "transport"}, core),
			Why:     "it forwards what one user's programs send, by transport, where permits are settled; which program runs, and who may, is the command's business",
		},
		{
			Covers: []string{"internal/disk"},
			Why:    "it only passes on what is done to files, so that a test can stand in between",
		},
		{
			Covers:  []string{"internal/atomicfile"},
			Imports: []string{"internal/disk"},
			Why:     "it replaces one file in the order that survives a power cut; what is in it, and who may write it, is its callers' business",
		},
		{
			Covers:  []string{powerCut},
			Imports: []string{"internal/disk"},
			Why:     "it only forgets, for the test that asks for it, what was not synced",
		},
		{
			Covers:    []string{"internal/lockfile"},
			Libraries: []string{"golang.org/x/sys"},
			Why:       "a lock is a call of the operating system, and a table of those this process has",
		},
		{
			Covers:  []string{"internal/sqlitefile"},
			Imports: []string{"internal/disk"},
			Why:     "it only creates, opens and writes a SQLite file, whatever is in it",
		},
		{
			Covers: []string{"internal/fault"},
			Why:    "it only names steps and, in the build for the crash tests, kills the process; who commits must be able to import it",
		},
		{
			Covers: []string{pipeNet},
			Why:    "it only joins a client and a server of a test",
		},
		{
			Covers:    []string{goldens},
			Libraries: []string{"github.com/google/go-cmp"},
			Why:       "it only compares what a test got with a file",
		},
		{
			Covers:  []string{debian},
			Imports: []string{"internal/lockfile"},
			Why:     "it only finds and installs the programs that tests run, one process at a time",
		},
		{
			Covers: []string{longTest},
			Why:    "it only reads a flag of tests",
		},
		{
			Covers:    []string{leakTest},
			Libraries: []string{"go.uber.org/goleak"},
			Why:       "it only looks for goroutines that a package's tests have left",
		},
		{
			Covers:    []string{pgServer},
			Imports:   []string{debian, leakTest},
			Libraries: []string{"github.com/jackc/pgx"},
			Why:       "it only starts and stops a database server for the test that asks for it; what is in it is the test's business",
		},
		{
			Covers: []string{fullDisk},
			Why:    "it only takes space away from the test that asks for it",
		},
		{
			Covers: []string{"internal/rawjson"},
			Why:    "it only looks at bytes, for packages that pass JSON on without decoding it",
		},
		{
			Covers: []string{"internal/figure"},
			Why:    "it only writes a number or a duration, the same way wherever people read one, so that pure and virtual code can use it",
		},
		{
			Covers: []string{"internal/arch"},
			Why:    "the check of the laws must not depend on what it checks",
		},
	},
	Pure:    slices.Concat(pure, []string{"internal/ledger", "internal/dispatch", "internal/fairqueue", "internal/fleet", "internal/pacing", "internal/sim/fit"}),
	Virtual: []string{"internal/sim/scenario", "internal/sim/provider", "internal/sim/replay"},
	Allowed: []Exception{
		{
			Packages: "signal",
			Import:   "net/http",
			Names:    []string{"Header", "Status*", "ParseTime", "CanonicalHeaderKey"},
			Why:      "a response reaches signal as an http.Header; the type, the status numbers and the date grammar do no I/O",
		},
		{
			Packages: "signal",
			Import:   "net/textproto",
			Names:    []string{"TrimString", "CanonicalMIMEHeaderKey"},
			Why:      "the white space of a header value is defined there; trimming it does no I/O",
		},
		{
			Packages: "...",
			Import:   "io",
			Names:    []string{"EOF", "ErrUnexpectedEOF"},
			Why:      "parsers compare against the sentinel errors, which do no I/O",
		},
	},
	Edge: []string{commands, cli, "daemon/...", "internal/fault", fullDisk},
}
