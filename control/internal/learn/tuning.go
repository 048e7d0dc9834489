package learn

import "time"

// The constants of the law that were tuned. They are the same for all providers. Where no unit
// is given, a number counts attempts, or is a part or a multiple of what its comment names.
const (
	// History.

	// maxCells bounds the history. Older periods are stored more coarsely: the length of a
	// cell is at most 1/cellsPerAge of its age.
	maxCells, cellsPerAge = 240, 24.0
	exactCells            = 64 // the newest cells, which are never merged
	// Attempts less than this apart share a cell, so that at high rates most attempts need
	// no merging. Which of them arrives first is unknown anyway.
	minCell = 100 * time.Microsecond

	// Ramp.

	// The pace doubles after this many responses and this time; four responses and a second
	// cost .004 of the goodput. With many attempts in flight it grows less, since all of
	// them may be refused together.
	rampAnswers, rampPause = 2, 500 * time.Millisecond
	// A refusal takes no longer than this, so slower answers need not be waited for: the pace was
	// not refused.
	rampTrip = time.Second
	// Below this many attempts a second it doubles after each response: few are refused then.
	slowRamp             = 8.0
	rampStep, rampFlying = 2.0, 12.0
	minRampStep          = 1.25

	// Rate.

	// An estimate uses about this many attempts; older ones decay.
	rateMemory = 300.0
	// The climb from low to high takes 2*price/ln(high/low) attempts, at least minStretch: a
	// refusal costs price attempts, and halves the bracket. It takes at most as many as low
	// allows in testWithin, from minTest to maxStretch, or 30 times the price if that is more.
	// The first refusals are worth more than they cost.
	firstPrice, fullPrice  = 12.0, 25.0
	minStretch, maxStretch = 30.0, 4000.0
	// Under a penalty, a climb with a known bracket takes this many times longer.
	punishedSlower = 3.0
	// A refusal costs at least the attempts of this time.
	refusalTime = 5 * time.Second
	// A pace that carried this many attempts is trusted, unless it was a burst.
	carrier = 100.0
	// A cycle with fewer attempts is no evidence alone and continues through the block.
	// Meanwhile the pace falls to the mean of the cycle, and by the factor shortCut at most if there is a burst.
	minCycle, shortCut = 10.0, 0.7
	// The pace before a refusal is at least the mean of this time and of as many intervals:
	// what was before may have been under another limit.
	paceSpan, paceIntervals = time.Minute, 100
	// Attempts that are sent within this time are one burst: no pace is taken over less.
	sameBurst = 50 * time.Millisecond
	// Attempts are counted by what they cost, until those before refusals cost this much less than
	// others, in mean deviations: then it is their number that is limited. If they cost as much more,
	// it is not.
	surelyDear = 0.2
	// One counts as this many at most, so that none delays the next ones for long.
	dearest = 100.0
	// A refusal before the part tooEarly of a climb comes too early, so the next climb starts
	// lower; one after the part confirms supports the bracket. The logarithm of the step down
	// is from minStep to maxStep.
	tooEarly, confirms = 0.25, 0.6
	minStep, maxStep   = 0.0125, 1.4
	// If the last refusals came at about the same pace, up to this part, the step depends
	// on the difference of the last two. Clients that share a limit differ more, and small
	// steps would never lead to equal shares.
	alikeTops              = 0.03
	alikeStep, alikeSpread = 0.02, 3.0
	// A pace counts as tested while attempts are less than this many times as far apart as
	// it requires.
	testedGap = 1.25
	// The attempt after one that was late goes sooner, so that the pace is kept: by up to 1/catchUp of the time
	// between two. Without a burst it is that time that is limited, and one that goes sooner is refused.
	catchUp, catchUpSpaced = 8, 64
	// If the pace has grown by more than this in a climb, more attempts are in flight
	// because of it, unless attempts are more than this many times as far apart as it allows.
	steepness, reachedGap = 1.05, 1.15
	// Beyond the bracket the pace grows as exp(beyond*y*y), with y in hundreds of attempts,
	// or in fewer if the bracket is based on few; it grows faster beyond the first bracket.
	beyond, firstBeyond, maxBeyond, minBeyond = 0.02, 0.04, 25.0, 30.0
	// If attempts are refused only at this many times the top of the bracket, the limit was
	// raised, and the mean of the climb is no evidence. Where attempts seem to be limited one by one that
	// counts once a rate has learned from more than two cycles: before, the bracket is a guess.
	raisedTop = 1.7
	// If the first attempt after a step of the ramp is refused, the rate lies between the two
	// paces. The next refusal replaces the lower one by the pace of this many attempts before,
	// at least this step below: a burst may have hidden that both are too fast.
	narrowedBy, guessedStep = 4.0, 0.1
	// After the first refusal the rate may be this many times slower than the pace was.
	firstBracket = 2.0
	// The same if other limits held the pace.
	pacedBracket = 1.3
	// A cycle of three whose rate differs this much from the mean replaces the mean.
	changedDown, changedUp = 0.75, 1.1
	// Uncertainty at either end of a cycle, in attempts.
	endDoubt = 1.0

	// Window.

	// A block is long, and so caused by a window or a penalty, if it exceeds both of these.
	longBlock, longIntervals = 3 * time.Second, 5.0
	// The use of a window is spread, also of an advertised one: its units may be used this many
	// times as fast as they return. A sliding one is used evenly once evenHits refusals were blamed on it.
	windowSpread = 1.25
	evenHits     = 2
	// The bracket of a length is settled if it is smaller than this part of the length.
	settledLength = 1.0 / 25
	// A canary goes 1/latestSlack of the length after an unsettled window ends at the latest: half
	// of the error with which a length is settled.
	latestSlack = 50
	// The size of a window may be known up to this part only.
	sizeError = 0.98
	// Attempts count for up to 1/maxSlack of its length longer, since some arrive late.
	maxSlack = 50
	// At most this part of a window is not used after refusals. If a penalty followed, the part grows by punishedMargin.
	maxMargin, punishedMargin = 0.15, 0.07
	// Windows start with the clock if it is less likely than this that blocks end so by chance.
	clockOdds = 0.1
	// An unsettled length is assumed shorter and shorter, over a time within these bounds.
	minFold, maxFold = 8 * time.Second, 2 * time.Minute
	// A limit is nearly full if at least this part of it is in use. Then a refusal is blamed
	// on it, and a window is what delays attempts, so that it is tested.
	nearlyFull = 0.85
	// It is, too, if as many attempts were sent as before the first block, up to this part.
	sameAgain = 0.05
	// A window that was fuller explains a refusal, and more evidence is needed against it.
	fullExplains = 0.92
	// The unit of a window changes if the error of another is smaller by this much.
	betterUnit = 0.015
	// Or if a block contradicts the length in one unit and not in another, whose error may be larger by
	// this much.
	doubtedUnit = 0.05
	// After a window is dropped, this part of its mean rate counts as admitted.
	wasWindow = 0.9
	// A window of fewer attempts than this is longer if it refuses after its end; a larger one is
	// smaller.
	fewAttempts = 25.0
	// A window that would have to be longer by more than this part for the refusals after its end is
	// dropped.
	longerThan = 0.1
	// If refusals come again and again when a length is assumed to be shortest, each narrows its
	// bracket by 1/narrowed.
	narrowed = 3
	// A window that explained this many refusals is not dropped in favour of another limit.
	sureHits = 4
	// One that was found to begin with the clock starts as if it had explained this many.
	foundHits = 5
	// A test of a limit starts after firstTest attempts without a refusal, after fewer if a
	// window is small. After each failure it starts testGrowth times later, twice as late for a
	// number in flight, and after maxTest at the latest. In it a window grows by windowRaise in
	// one length.
	firstTest, testGrowth, maxTest = 500.0, 2.5, 4000.0
	windowRaise                    = 0.15
	// A size that a test raised is trusted after this many times the attempts.
	lasting = 10.0
	// A test waits until this many lengths of the last block have passed; the first test of
	// a window waits for fewer.
	testAfterBlocks, firstTestAfterBlocks = 40.0, 8.0
	// A window is tested after this time, whatever failed before, but not before this many
	// attempts, nor soon after a block. Both bound the climb of a rate, too.
	testWithin, minTest = 15 * time.Minute, 1000.0

	// A window is counted in periods if at each refusal as much was in use, up to this error,
	// and at least this much: smaller ones agree by chance.
	countedError, minCounted = 2.0, 20.0
	// It has to explain as many blocks, up to maxCounted, as make it less likely than this
	// that they agree by chance, if that many lengths and beginnings are tried.
	countedOdds, countedTries, maxCounted = 0.05, 6.0, 3
	// Its first canary waits until this many units have returned: the refused attempt may
	// count.
	countedWait = 2.5
	// Attempts that are late by up to 1/countedLate of its length delay none after them.
	countedLate = 50
	// It is dropped after more refusals than this in a row, each sooner than a length of the
	// window after the block before, outside tests.
	maxEarly = 3

	// Strays.

	// So many refusals in a row may show strays: if the pace fell by the factor strayFall, and no more
	// than strayHelped times as many attempts were admitted between the newer half of them as between the older.
	// After each time that there were none, it has to fall by the same factor more.
	strayRefusals          = 6
	strayFall, strayHelped = 1.25, 2.0
	// A stray comes after so many attempts at least. What refuses more often is a limit.
	strayLeast = 20.0
	// Attempts are refused more often than before if a sum reaches strayMost: each refusal adds 1, and
	// as many attempts as usually lie between two strays take strayDrift off. So it is found out soon whether
	// refusals come four times as often: (4-1)/ln(4).
	strayDrift, strayMost = 2.16, 3.0
	// The mean is taken anew after so many strays. Once it is strayRare times as large, there are no strays any more,
	// and none if it is less than 1/strayMore of the first one.
	strayReview          = 16.0
	strayRare, strayMore = 4.0, 3.0
	// The pace climbs to so many times that of before.
	strayClimb = 1.25

	// Flight.

	// The evidence of a refusal is -ln(share of attempts sent with as many in flight) - 1,
	// at most maxEvidence. A flight is held from heldEvidence on.
	maxEvidence, heldEvidence = 2.0, 2.9
	// Two refusals suffice, each with as many in flight up to the part likeCrowd, if no more
	// attempts than fewBetween were admitted with as many between them: answers are late.
	likeCrowd, fewBetween = 0.1, 2
	// But not if this part of the attempts, or more, went with more in flight.
	usualCrowd = 0.25
	// A canary that is in flight for so many round trips of a refusal is taken for admitted, if it is
	// known what limit refused; else one that is for so many, and at least firstCanary.
	refusedWithin, surelyWithin = 3.0, 6.0
	// A limit in flight was counted while a part of the attempts was on its way to the provider or
	// back. After a release none is on its way back until answers come, so that as many fewer go,
	// for this many times the latency.
	refillTime = 2.0
	// A canary that is refused with at most this part of what was in flight before the block met
	// another limit.
	hardlyFlying = 0.25
	// How many are in flight is counted exactly below exactFlights, and beyond in flightSteps steps to each
	// doubling, so to a sixteenth; there are flightSpans doublings, and larger numbers, from 1,024 on, count as
	// the last step. After flightFade attempts, those before count half.
	exactFlights = 64
	flightSteps  = 16
	flightSpans  = 4
	flightCounts = exactFlights + flightSteps*flightSpans
	flightFade   = 400.0
	// So many of the newest attempts may be sent until a refusal is back, for it to be known how many were in
	// flight when it was sent.
	departuresKept = 60
	// A refusal is soon after the last one if fewer attempts were sent than soonRefused times
	// the number that may be in flight; then the size is also cut by the part soonCut. After
	// maxSoon in a row the flight is dropped. So it is once refusals have lowered its size by
	// the part maxFall and one more: they come at all sizes, as those of a small burst do.
	soonRefused, soonCut, maxSoon = 5.0, 0.1, 3
	maxFall                       = 0.2
	// A limit in flight is doubtful if fewer than so many times as many attempts had gone as were in flight:
	// when most of what went still is, as with long answers, any limit refuses when the most are in flight.
	stillFlying = 4.0
	// A doubtful one is tested after doubtfulTest attempts, or doubtfulSizes times its size if those are more,
	// and after a test that succeeded again after the part doubtfulAgain of its size. It is dropped once
	// refusals have lowered it by the part doubtfulFall and one more. Then a rate is held, from the mean of
	// doubtfulMean times as many attempts on, and no doubtful limit in flight any more.
	doubtfulTest, doubtfulSizes = 60.0, 8.0
	doubtfulAgain, doubtfulFall = 0.25, 0.05
	doubtfulMean                = 4.0

	// Block.

	// The first canary goes after this time, and after that in which so many of the attempts in
	// flight return. The next wait is canaryGrowth times the last one,
	// and canaryHurry times while that is at most hurryUntil, since each canary may double a
	// penalty.
	firstCanary, someReturned = time.Second, 3.0
	// The first one goes after half of that for each consecutive block that had ended by then, at
	// most this often, as long as the refusals of a rate come at about the same pace.
	maxBrief                  = 4
	canaryGrowth, canaryHurry = 1.5, 3.0
	hurryUntil                = 60 * time.Second
	// And starvedGrowth times for a client that was refused more often than admitted.
	// It is starvedLongest at most, and if an advertised limit explains the block no longer than penaltyLongest
	// or twice the last one.
	// Its canaries are delayed like those of a wait of at most starvedApart.
	starvedGrowth, starvedLongest, starvedApart = 5, time.Hour, 40 * time.Second
	// And always canaryHurry times if a window that had ended by now would allow fewer than
	// this many attempts a second: a ban is more likely, and each canary lengthens it. For
	// larger windows the wait would be too long.
	slowWindow = 5.0
	// After a refused canary the next one is delayed by up to this part of the wait.
	canaryApart = 0.25
	// A wait that is longer than any penalty, and does not end within usualEnd of an instant at which
	// a usual window ends, may be in milliseconds instead of seconds. The first time, a canary finds out.
	usualEnd, millisPerSecond = 5 * time.Second, 1000
	// After saneWaits other waits one is not doubted that is at most farLonger times as long.
	saneWaits, farLonger = 2, 60
	// If an advertised limit is used up whenever a canary arrives, others use it: the next
	// canary waits at most this long, or twice the time until all units have returned. After
	// every second refusal it waits twice as long, up to the maximum.
	minContended, maxContended = 10 * time.Second, 5 * time.Minute
	// It goes when a window ends that the owner configured a limit for, if that takes at most
	// this many times as long as it would wait otherwise.
	configuredWait = 5.0
	// In the first long block a canary goes when a window of a common length ends rather than
	// another one, unless that is sooner than 1/aimedSooner of the wait, and is delayed
	// by at most aimedApart to separate clients.
	aimedSooner = 5
	aimedApart  = time.Second
	minAimed    = 40.0 // after fewer attempts it may be a ban
	// The canary goes later by the part of the window that the refused attempts, and refusedMore
	// more, are of all, at most by the part maxCountedLate.
	refusedMore, maxCountedLate = 1.15, 0.1
	// For longer waits a common instant may be somewhat earlier.
	farAway = 5 * time.Minute
	// In a block that canaries do not lengthen, the next one waits an eighth of the block's
	// age after 64 times this many attempts, and at most half of it after four times as
	// many or fewer.
	canaryFew = 150.0
	// Blocks that canaries lengthen are hardly ever longer than this.
	penaltyLongest = 15 * time.Minute
	maxSilence     = 24 * time.Hour
	// A wait may be as long only if the block is no outage: it began within this time from the
	// first attempt, or so many long blocks have shown how the provider refuses.
	maxUnsure, usualStyle = time.Minute, 2
	// Advertised waits are too short for a penalty after so many canaries in a row were refused that
	// went at the end of one.
	shortWaits = 2
	// In an outage the wait doubles from the first to the longest; later it is a quarter of
	// the outage's age, if that is longer.
	outageFirst, outageLongest = time.Second, 30 * time.Second
	// The first refusal of a block may be an outage, and no limit, if at least this share of attempts
	// was sent with as many others in flight.
	ordinary = 0.1
	// A refusal that took longer is no evidence about the usual round trip.
	maxTrip = time.Minute

	// Penalty.

	// Under a penalty the pace is this part of the refused pace: penaltyLow at first, and more
	// after each block, up to penaltyHigh, which it is at once if two refusals came at the same pace.
	penaltyLow, penaltyHigh = 0.80, 0.93
	// The same after an early refusal that is dear, and after two in a row before so many attempts
	// were admitted.
	penaltyEarly, hardlyAny = 0.55, 3.0
	// Nor is it less than the mean of the cycles, in which those before fade by this with each.
	earnedFade = 0.8
	// A canary goes this much after the usual end of a penalty.
	penaltySlack = 1.1
	// The length is searched for while it is more than this many times a length that was
	// not enough.
	penaltyApart = 2.0
	// The first canary goes after this if an earlier block was not caused by a window.
	suspectedPenalty = 20 * time.Second

	// After this many outages without another between them, each of which ended at the first
	// canary or began within soonAgain lengths of the block before or of its own, this is how
	// the provider refuses.
	maxUnlikely, soonAgain = 3, 5

	// Advertised limits.

	// The error of a shape is at most maxShapeError. A shape is sure if the error of every other
	// one is at least surely. A response that a shape does not predict at all adds 1.
	maxShapeError, surely = 4.0, 1.0
	// An advertised limit is ignored while the best shape fails to predict more than about four
	// in ten responses: each failure adds up to 1, and fades by a tenth with each response.
	maxWrong = 4.0
	// A limit that explains this many consecutive refusals, each within this many attempts
	// of the last, is not the one that refuses.
	maxExplained, rareRefusal = 4, 20.0
	// The same if it is within this many times the refusals since then.
	rarePart = 10.0
	// Or within this many times the attempts that its blocks cost beyond what it explains.
	rareBlocks = 3.0
	// A refusal that an advertised limit explains increases the margin by this.
	grazed, maxGrazed = 0.01, 0.08
	// Others use the limit too if less than this part of it was our own use at the refusal.
	ownUse = 0.95
	// They use a fixed window if they would take more than this part of it at their pace.
	contendedPart = 0.25
	// Others take at most this part of a bucket, and while a client waits for it at most
	// that part.
	maxTaken, waitedTaken = 0.95, 0.7
	// While others use a sliding window, what is left of it would last for 1/slideSpread of its
	// length. One client alone then uses all but a thirteenth, several use more.
	slideSpread = 12.0
	// If two resets contradict each other by this factor, the limit may not be a bucket.
	doubtedRefill = 1.2
	// Under a penalty a bucket with this many units is not drained at once; with fewer, few
	// attempts can be in flight at a refusal.
	manyAtOnce  = 8.0
	maxPunished = 0.2 // the same if a penalty follows: doubled each time
	// An attempt takes longer on its way than another by 1/jitterOfLatency of the latency, or
	// by 1/jitterOfTrip of a refusal's round trip if that is known.
	jitterOfLatency, jitterOfTrip = 20.0, 8
	// After an attempt came too early, the next ones are delayed, less with each that does
	// not.
	slackMemory = 3000.0
	drainFade   = 0.98 // a response
	// The older variation of resets fades by this with each response: rounded to seconds, they
	// vary more by chance than by where they are counted from.
	resetFade = 0.99
	// Uncertain values of what others use have this weight in its mean.
	doubtedShare = 0.05
	// Others use a limit whose rest is rounded if it is more than so many steps below what
	// our own use leaves.
	ownGrains = 1.5
	// newestShare is the weight of the newest attempt in the mean of a share.
	newestShare = 0.1
	// A published window is assumed longer by 1/assumedSlack of its length.
	assumedSlack = 100
	// An advertised window is assumed longer by 1/lateness of its length, or by the variation
	// of the latency if that is more, but by that only up to 1/maxLateness of its length.
	lateness, maxLateness = 1000, 100
	coarse                = 0.005 // this part of a large window is not used
	// Some providers round remaining costs down to thousands.
	coarseUnits = 1000.0

	// As many limits are held at most, and as many advertised ones are known.
	maxLimits = 4
)

// doubtUnit is the assumed prediction error of each unit before any refusal.
var doubtUnit = amounts{attempts: 0.03, cost: 0.03, busy: 0.06}
