package population

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// Member is a provider with its clients.
type Member struct {
	// Number counts from 0.
	Number int
	Family Family
	// Seed is the seed for running the member.
	Seed     uint64
	Scenario *scenario.Scenario
}

// Bounds of what is drawn. Rates are those that the tightest limit sustains, in attempts a
// second. A window of a day is drawn only if it holds few enough attempts.
const (
	minRate, maxRate     = 0.1, 100
	minWindow, maxWindow = time.Second, 24 * time.Hour
	maxHeld              = 20_000 // attempts in a window
	maxKnee              = 30     // arrivals a second, in the slow-down family
	minLatency           = 5 * time.Millisecond
	maxLatency           = 2 * time.Second
	maxPlaces            = 60 // of a concurrency limit
	maxClients           = 10
	maxMembers           = 16  // of a fleet
	maxStrangers         = 0.6 // part of the limit
	minShared            = 10  // attempts that a limit shared with strangers holds
	aside                = 0.04
)

// The horizon: at least an hour, four of the longest window, and time for this many
// attempts. Pauses are added.
const (
	minHorizon   = time.Hour
	minWindows   = 4
	minAdmitted  = 3000
	blockOfHours = 40 // a fixed block is at most this part of the horizon (1/blockOfHours)
)

// Draw draws a member of a population: the same seed, number and family give the same
// scenario. Without a family, each mixed family is drawn once in every len(Mixed())
// members, in an order that depends on the seed.
func Draw(seed uint64, number int, family Family) (Member, error) {
	all := Mixed()
	if family == "" {
		order := dice{*rand.NewPCG(seed, 1<<40+uint64(number/len(all)))}
		family = shuffled(&order, slices.Clone(all))[number%len(all)]
	} else if !slices.Contains(Families(), family) {
		return Member{}, fmt.Errorf("population: unknown family %q", family)
	}
	g := &generator{dice: dice{*rand.NewPCG(seed, uint64(number))}, family: family}
	m := Member{Number: number, Family: family, Seed: g.rng.Uint64() >> 32}
	s := g.scenario()
	s.Name = fmt.Sprintf("%s-%d-%d", family, seed, number)
	s.Description = fmt.Sprintf("Member %d of the population drawn with seed %d, family %s.", number, seed, family)
	// A member is exactly what its file says.
	s, err := scenario.Parse(s.Name, scenario.Format(s))
	if err != nil {
		return Member{}, fmt.Errorf("population: seed %d, member %d: %w", seed, number, err)
	}
	m.Scenario = s
	return m, nil
}

// File returns the member as a scenario file, with the command that runs it in a comment.
func (m *Member) File() []byte {
	return append(fmt.Appendf(nil, "# headway sim run FILE --seed %d\n", m.Seed), scenario.Format(m.Scenario)...)
}

// generator draws one scenario.
type generator struct {
	dice
	family Family
	shared bool // with strangers
	s      *scenario.Scenario
	rate   float64 // the rate that the tightest limit sustains, in attempts a second
	active time.Duration
}

// has reports whether a member has the trouble of a family: always in that family,
// otherwise now and then.
func (g *generator) has(f Family) bool {
	drawn := g.chance(aside)
	return g.family == f || drawn
}

func (g *generator) scenario() *scenario.Scenario {
	g.s = &scenario.Scenario{Clients: 1}
	g.latency(minLatency)
	g.s.Workload.Cost = scenario.Cost{Mean: 1, Estimate: 1}
	if apart := g.has(ClientsApart); apart && g.family != Fleet {
		g.s.Clients = g.whole(2, maxClients)
	}
	if g.family == Fleet {
		g.s.Clients = g.whole(2, maxMembers)
	}
	// A limit of a few attempts cannot be shared with strangers: refusals would be chance
	// and say nothing about a law.
	strangers := g.has(Strangers)
	g.shared = strangers && g.family != BurstOne
	g.limits()
	g.active = g.horizon()
	g.s.Horizon = g.active
	g.penalty()
	g.throttle()
	g.strangers()
	g.changes()
	g.faults()
	g.demand()
	g.owner()
	g.link()
	return g.s
}

// latency draws the latency of attempts, with a median of at least least.
func (g *generator) latency(least time.Duration) {
	p50 := g.log(least.Seconds(), maxLatency.Seconds())
	uplink := p50 * g.log(0.02, 0.2)
	g.s.Provider.Latency = scenario.Latency{
		P50: span(p50), P99: span(p50 * g.log(1.2, 10)),
		UplinkP50: span(uplink), UplinkP99: span(uplink * g.log(1.2, 3)),
	}
}

// served returns the mean time that the provider is busy with an attempt.
func (g *generator) served() float64 {
	l := g.s.Provider.Latency
	return max(0.001, lognormal(l.P50, l.P99)-2*lognormal(l.UplinkP50, l.UplinkP99))
}

// lognormal returns the mean of a lognormal distribution, in seconds.
func lognormal(p50, p99 time.Duration) float64 {
	sigma := math.Log(float64(p99)/float64(p50)) / 2.3263478740408408
	return p50.Seconds() * math.Exp(sigma*sigma/2)
}

// horizon returns how long the clients are active.
func (g *generator) horizon() time.Duration {
	h := max(minHorizon, time.Duration(minAdmitted/g.rate*float64(time.Second)))
	for _, l := range g.s.Provider.EachLimit {
		h = max(h, minWindows*l.Window)
	}
	return (h + time.Minute - 1).Truncate(time.Minute)
}

// part returns a part of the active time.
func (g *generator) part(of float64) time.Duration { return span(of * g.active.Seconds()) }

func (g *generator) penalty() {
	p := &g.s.Provider
	fixed, ban := g.has(FixedBlock), g.has(Ban)
	switch {
	case g.family == Ban, ban && g.family != FixedBlock:
		base := g.log(2, 60)
		p.Penalty = &scenario.Penalty{
			Base: span(base), Factor: digits(g.between(1.5, 3), 2),
			Max: span(max(base, g.log(60, 900))), Forgive: span(g.log(60, 600)),
		}
		if g.chance(0.6) {
			p.Suspend = &scenario.Suspend{Throttles: g.whole(50, 300), Within: span(g.log(600, 3600))}
		}
	case fixed:
		base := span(g.log(5, min(600, g.active.Seconds()/blockOfHours)))
		p.Penalty = &scenario.Penalty{Base: base, Factor: 1, Max: base, Fixed: true}
	}
}

func (g *generator) throttle() {
	t := scenario.Throttle{
		Status: pick(&g.dice, odds[int]{0.75, 429}, odds[int]{0.15, 503}, odds[int]{0.1, 403}),
		RetryAfter: pick(&g.dice,
			odds[scenario.RetryAfter]{0.4, scenario.RetryNone}, odds[scenario.RetryAfter]{0.3, scenario.RetrySeconds},
			odds[scenario.RetryAfter]{0.1, scenario.RetryMillis}, odds[scenario.RetryAfter]{0.1, scenario.RetryDate},
			odds[scenario.RetryAfter]{0.1, scenario.RetryExact}),
		Headers:        g.headers(), // with pools, headers cannot name the pool
		CountsRejected: g.chance(0.2),
	}
	if wrong := g.chance(0.15); wrong && t.RetryAfter != scenario.RetryNone {
		switch style := t.RetryAfter; {
		case g.chance(0.4):
			t.RetryAfterConstant = span(g.log(1, 60))
		case style == scenario.RetrySeconds && g.chance(0.5):
			t.RetryAfterFactor = 1000 // milliseconds instead of seconds
		case style == scenario.RetryMillis && g.chance(0.5):
			t.RetryAfterFactor = 0.001 // and the other way round
		default:
			t.RetryAfterFactor = digits(g.log(0.2, 5), 2)
		}
	}
	if len(g.s.Provider.Pools) > 0 {
		t.Headers = scenario.HeadersNone
	}
	g.s.Provider.Throttle = t
}

// headers draws a dialect that can express the limits. All but one report the reset in
// whole seconds, which cannot express a bucket that fills in less.
func (g *generator) headers() scenario.Dialect {
	d := pick(&g.dice,
		odds[scenario.Dialect]{0.5, scenario.HeadersNone}, odds[scenario.Dialect]{0.12, scenario.HeadersGitHub},
		odds[scenario.Dialect]{0.14, scenario.HeadersOpenAI}, odds[scenario.Dialect]{0.12, scenario.HeadersAnthropic},
		odds[scenario.Dialect]{0.12, scenario.HeadersIETF})
	for _, l := range g.s.Provider.Limits {
		whole := l.Window
		if l.Kind == scenario.TokenBucket {
			whole = time.Duration(l.Burst) * l.Rate.Interval()
		}
		if whole > 0 && whole < 10*time.Second && d != scenario.HeadersNone {
			d = scenario.HeadersOpenAI
		}
	}
	return d
}

func (g *generator) strangers() {
	if !g.shared {
		return
	}
	share := g.between(0.05, maxStrangers)
	st := &scenario.Strangers{Rate: rate(share * g.rate)}
	if g.chance(0.5) {
		on := g.log(5, 300)
		// While on, strangers take at most nine tenths of the limit.
		off := on * g.between(0.1, max(0.1, min(4, 0.9/share-1)))
		st.On, st.Off = span(on), span(off)
	}
	g.s.Provider.Strangers = st
}

func (g *generator) changes() {
	if !g.has(Changes) {
		return
	}
	first, second := g.part(g.between(0.25, 0.45)), g.part(g.between(0.65, 0.8))
	down, up := digits(g.between(0.3, 0.7), 2), digits(g.between(1.4, 3), 2)
	over := g.part(g.between(0.05, 0.2))
	g.s.Provider.Changes = pick(&g.dice,
		odds[[]scenario.Change]{1, []scenario.Change{{At: first, Scale: down}}},
		odds[[]scenario.Change]{1, []scenario.Change{{At: first, Scale: up}}},
		odds[[]scenario.Change]{1, []scenario.Change{{At: first, Scale: down}, {At: second, Scale: up}}},
		odds[[]scenario.Change]{1, []scenario.Change{{At: first, Over: over, Scale: down}}},
		odds[[]scenario.Change]{1, []scenario.Change{{At: first, Over: over, Scale: up}}},
	)
}

func (g *generator) faults() {
	if !g.has(Outage) {
		return
	}
	for range g.whole(1, 2) {
		g.s.Provider.Faults = append(g.s.Provider.Faults, scenario.Fault{
			At: g.part(g.between(0.15, 0.85)), For: span(g.log(20, min(600, g.active.Seconds()/12))),
			Kind: pick(&g.dice, odds[scenario.FaultKind]{0.75, scenario.Outage}, odds[scenario.FaultKind]{0.25, scenario.Reset}),
		})
	}
}

// demand draws the workload. Arrivals are per client, and below the limit four times out of
// five.
func (g *generator) demand() {
	w := &g.s.Workload
	w.Kind = scenario.Backlog
	pauses := g.chance(aside)
	if g.family == OpenArrivals {
		w.Kind = scenario.Open
		share := g.between(0.3, 0.95)
		if g.chance(0.2) {
			share = g.between(1.05, 1.5)
		}
		if st := g.s.Provider.Strangers; st != nil {
			share *= 1 - st.Rate.PerSecond()/g.rate
		}
		w.Rate = rate(share * g.rate / float64(g.s.Clients))
		if g.chance(0.4) {
			w.Burst = int(g.log(2, 100))
		}
		pauses = g.chance(0.3)
	}
	if pauses && g.active <= 2*maxWindow {
		active, pause := g.log(3600, 6*3600), g.log(3600, 8*3600)
		w.Active, w.Pause = span(active), span(pause)
		g.s.Horizon += g.active / w.Active * w.Pause
	}
}

// owner draws the ceiling, which is above the provider's limit nine times in ten, and the
// maximum number of attempts in flight.
func (g *generator) owner() {
	s := g.s
	above := g.log(2, 20)
	if g.family == SlowDown {
		above = g.log(1.5, 3) // nothing else keeps a client from going that fast
	}
	if g.chance(0.1) {
		above = g.between(0.4, 0.9)
		if g.family != Fleet { // a fleet's ceiling is that of all members together
			above /= float64(s.Clients)
		}
	}
	s.Owner.Ceiling = span(1 / (above * g.rate))
	initial := 1.0
	if g.chance(0.2) {
		initial = g.log(0.2, 10)
	}
	s.Owner.Initial = max(s.Owner.Ceiling, span(initial))
	places := max(4, g.rate*s.Provider.Latency.P99.Seconds()) * g.log(1.5, 6)
	for _, l := range s.Provider.Limits {
		if l.Kind == scenario.Concurrency {
			places = max(places, 1.5*float64(l.Count))
		}
	}
	s.Workload.MaxInFlight = min(1000, int(math.Ceil(places)))
}

// link draws the link of a fleet to its server and, for every other member, a time in which
// all or some clients are cut off.
func (g *generator) link() {
	if g.family != Fleet {
		return
	}
	g.s.Fleet, g.s.Link = true, &scenario.Link{Trip: span(g.log(0.0001, 0.05))}
	if g.chance(0.5) {
		return
	}
	f := scenario.LinkFault{At: g.part(g.between(0.2, 0.7)), For: span(g.log(3, min(120, g.active.Seconds()/12))), Kind: scenario.Away}
	if g.chance(0.5) {
		f.Kind, f.Clients = scenario.Cut, g.whole(1, g.s.Clients-1)
	}
	g.s.Link.Faults = []scenario.LinkFault{f}
}

// dice draws the properties of a member.
type dice struct{ rng rand.PCG }

// uniform returns a number in [0, 1).
func (d *dice) uniform() float64 { return float64(d.rng.Uint64()>>11) / (1 << 53) }

func (d *dice) between(low, high float64) float64 { return low + (high-low)*d.uniform() }

// log returns a log-uniform number.
func (d *dice) log(low, high float64) float64 {
	return low * math.Pow(math.Max(1, high/low), d.uniform())
}

// whole returns a whole number from low to high, inclusive.
func (d *dice) whole(low, high int) int { return low + int(d.uniform()*float64(high-low+1)) }

func (d *dice) chance(p float64) bool { return d.uniform() < p }

// shuffled returns a permutation of all.
func shuffled[T any](d *dice, all []T) []T {
	for i := len(all) - 1; i > 0; i-- {
		j := d.whole(0, i)
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// odds is a value with its weight.
type odds[T any] struct {
	weight float64
	value  T
}

func pick[T any](d *dice, from ...odds[T]) T {
	sum := 0.0
	for _, o := range from {
		sum += o.weight
	}
	at := d.uniform() * sum
	for _, o := range from {
		if at -= o.weight; at < 0 {
			return o.value
		}
	}
	return from[len(from)-1].value
}

// span returns a duration of a number of seconds with three significant digits, at least a
// microsecond.
func span(seconds float64) time.Duration {
	return max(time.Microsecond, time.Duration(math.Round(digits(seconds*1e9, 3))))
}

// digits rounds to a number of significant digits, exactly as written.
func digits(x float64, n int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', n-1, 64), 64)
	if err != nil {
		panic(err) // it was written by FormatFloat
	}
	return rounded
}

// rate returns a rate per second with three digits, as in a file.
func rate(perSecond float64) scenario.Rate {
	unit, factor := "/s", 1.0
	if perSecond < 1 {
		unit, factor = "/min", 60
	}
	r, err := scenario.ParseRate(strconv.FormatFloat(digits(perSecond*factor, 3), 'f', -1, 64) + unit)
	if err != nil {
		panic(err) // drawn rates are between 1 an hour and some thousands a second
	}
	return r
}
