package learn

import "time"

// Every constant of the law. They are the same for all providers; what differs is
// learned.
const (
	// History.

	// maxCells bounds the history. The older a stretch, the coarser it is kept: a
	// cell is at most this part of its age long.
	maxCells, cellsPerAge = 240, 24.0
	exactCells            = 64 // of these the newest, which are never merged
	// Attempts less than that apart share a cell, so that at high rates most attempts cost
	// no merging. Which of them arrives first is not known anyway.
	minCell = 100 * time.Microsecond

	// Ramp.

	// The pace doubles after so many answers and so long; four answers and a second cost
	// .004 of the goodput. Where many attempts are under way it grows by less, since all of
	// those may be refused together.
	rampAnswers, rampPause = 2, 500 * time.Millisecond
	rampStep, rampFlying   = 2.0, 12.0
	minRampStep            = 1.25

	// Rate.

	// An estimate stands on so many attempts; older ones fade.
	rateMemory = 300.0
	// From low to high in clamp(2*price/ln(high/low), minStretch, maxStretch)
	// attempts: a refusal costs as much as the price in attempts, and halves the
	// bracket. The first ones are worth more than they cost.
	firstPrice, fullPrice  = 12.0, 25.0
	minStretch, maxStretch = 30.0, 4000.0
	// Under a penalty a climb whose bracket is known takes so many times longer.
	punishedSlower = 3.0
	// Neither does a refusal cost less than what goes in this time.
	refusalTime = 5 * time.Second
	// A pace that carried so many attempts is believed, unless it was a burst's.
	carrier = 100.0
	// A cycle of fewer attempts says nothing alone: it goes on through the block.
	// Until then the pace is cut by this part.
	minCycle, shortCut = 10.0, 0.7
	// A refusal in the first part of a climb comes too early, so that the next climb
	// starts lower; one in the last confirms the bracket. As a logarithm the step
	// down is within these.
	tooEarly, confirms = 0.25, 0.6
	minStep, maxStep   = 0.0125, 1.4
	// Where the last refusals came at about the same pace, but for this part, the step is so
	// much and so many times what lies between the last two. Clients that share a limit differ
	// by more, and would never come to even shares by small steps.
	alikeTops              = 0.03
	alikeStep, alikeSpread = 0.02, 3.0
	// A pace is tested while attempts are not so many times as far apart as it has them.
	tested = 1.25
	// When the pace has grown by more than this in a climb, more are under
	// way because of that.
	steepness = 1.05
	// Beyond the bracket the pace grows as exp(beyond*y*y), y in hundreds of attempts,
	// in fewer where the bracket stands on few; faster beyond the first bracket.
	beyond, firstBeyond, maxBeyond, minBeyond = 0.02, 0.04, 25.0, 30.0
	// What was refused only when the pace was so many times the bracket's top has been
	// raised: the mean of a climb that began below says nothing of it.
	raised = 1.7
	// After the first refusal the rate may be so many times slower than the pace was.
	firstBracket = 2.0
	// The same where the pace was held by other limits.
	paced = 1.3
	// A cycle of three whose rate is so far from the mean replaces it.
	changedDown, changedUp = 0.75, 1.1
	// An attempt of jitter at either end of a cycle.
	endDoubt = 1.0

	// Window.

	// A block is long, and thus a window's or a penalty's, beyond both of these.
	longBlock, longIntervals = 3 * time.Second, 5.0
	// A window's use is spread: it may be used up this many times as fast as it
	// comes back.
	windowSpread = 1.25
	// The bracket of a length is settled below this part of the length.
	settledLength = 1.0 / 25
	// Windows begin anew with the clock, or after a period, when their blocks would be
	// as unlikely otherwise. The period is part of the time between two releases.
	clockOdds, periodOdds = 0.2, 0.05
	maxPeriods            = 8
	// An unsettled length is taken as shorter and shorter, within these.
	minFold, maxFold = 8 * time.Second, 2 * time.Minute
	// A refusal is a limit's when at least so much of it was in use.
	nearlyFull = 0.85
	// Another unit explains a window when its error is less by this much.
	betterUnit = 0.015
	// What a window that was given up carried on average was let through at this part.
	wasWindow = 0.9
	// A window that explained so many refusals is not given up for something else.
	sureHits = 4
	// A test of a limit starts after so many attempts without a refusal, later each
	// time that it fails, and grows by so much in one length of the window.
	firstTest, testGrowth, maxTest = 500.0, 2.5, 4000.0
	windowClimb                    = 0.15
	// What a test has raised is believed after so many times as many.
	lasting = 10.0
	// A test waits until so many lengths of the last block have passed, the first one of a
	// window until fewer have.
	testAfterBlocks, firstTestAfterBlocks = 40.0, 8.0
	// A window is tested after so long, whatever failed, if so many attempts went meanwhile.
	testWithin, minTest = 15 * time.Minute, 1000.0

	// A window is found in so many blocks when they disagree with a rate by this part
	// at least, and with the window by that part at most. Lengths are tried in steps.
	minEpisodes            = 5
	minFitted              = 10.0 // attempts: fewer agree by chance
	unlikeRate, likeWindow = 0.06, 0.012
	lengthStep             = 1.2

	// Flight.

	// The evidence of a refusal is -ln(share of attempts sent with as many under
	// way) - 1, at most maxEvidence; flights are held from heldEvidence on.
	maxEvidence, heldEvidence = 2.0, 2.9
	// So many refusals at about the same pace, each with as many under way, are enough.
	alikeCrowds = 3
	// The same where blocks are short.
	shortEvidence = 3.9
	maxFlights    = 64
	flightFade    = 400.0
	// A refusal is soon after the last one when fewer attempts went than so many times what
	// may be under way; then so much of that goes. After so many in a row it is no limit on
	// attempts under way, and it takes so much more evidence to hold one again.
	soonRefused, soonCut, maxSoon = 5.0, 0.1, 3
	doubtedEvidence               = 4.0

	// Block.

	// The first canary goes after this, the next one half as much later again; 3 times later
	// while the block is short, since penalties may double at each.
	firstCanary = time.Second
	// It goes after half of that for each block in a row that was over by then, as long as
	// the refusals of a rate come at about the same pace, at most so often.
	maxBrief                  = 4
	canaryGrowth, canaryHurry = 1.5, 3.0
	hurryUntil                = 60 * time.Second
	// And 3 times all along where a window that had ended by now would be one of fewer than
	// so many a second: it is more likely a ban, which each canary lengthens. For windows of
	// many it would mean to wait too long.
	slowWindow = 5.0
	// Where one was refused the next goes later by up to this part of the wait.
	canaryApart = 0.25
	// A longer wait than this may be named in milliseconds where seconds belong. The first
	// time, one canary finds out. No shorter one is doubted: daily quotas name them.
	unbelievable, otherUnit = 24 * time.Hour, 1000
	saneWaits               = 2 // after so many shorter ones it is not doubted
	// Where an advertised limit is used up each time that a canary comes, others use it: the
	// next one waits no longer than this, or than twice the time until all of it is back.
	contended = 10 * time.Second
	// For longer waits than this a usual instant may come somewhat sooner.
	farAway = 5 * time.Minute
	// In a block that no canary lengthens the next one waits an eighth of its age after
	// 64 times so many attempts, at most half of it after four times as many or fewer.
	canaryFew = 64.0
	// What canaries lengthen is hardly ever longer than this.
	penaltyLongest             = 15 * time.Minute
	maxSilence                 = 24 * time.Hour
	maxUnsure                  = time.Minute // where it may be an outage
	outageFirst, outageLongest = time.Second, 30 * time.Second
	// An outage is no limit's when at least so many attempts went with as many others
	// under way.
	ordinary = 0.1
	// A refusal that took longer than this says nothing of the usual round trip.
	maxTrip = time.Minute

	// Penalty.

	// Under a penalty the pace is this part of the refused one, and it is not tested
	// until so many lengths of the penalty have passed.
	penaltyLow, penaltyHigh = 0.80, 0.93
	// The same when it was refused again early.
	penaltyEarly = 0.55
	// A canary goes so much after the usual end of a penalty.
	penaltySlack = 1.1
	// Its length is searched for while it is more than so many times what was not enough.
	penaltyApart = 2.0
	// The first canary goes after this once a block was found to be no window's.
	suspectedPenalty = 20 * time.Second

	// So many outages that were over at the first canary are how a limit is refused.
	maxBlips = 3

	// Advertised limits.

	// A shape is believed wrong at most by so much: so many answers turn it.
	maxShapeError, surely = 4.0, 1.0
	// An advertised limit is left out while no shape foretells a third of it.
	maxWrong = 4.0
	// A limit that explains so many refusals in a row, each within so many attempts
	// of the last, is not what refuses.
	maxExplained, rareRefusal = 4, 20.0
	// A refusal that an advertised limit explains leaves so much more of it alone.
	grazed, maxGrazed = 0.01, 0.08
	// Others use it too when less than this part of it was one's own at the refusal.
	ownUse = 0.95
	// Others take no more of a bucket than this part, and in the time that one waits for it
	// than that.
	maxTaken, waitedTaken = 0.95, 0.7
	// Under a penalty a bucket of that many units is not drained at once; of a smaller one
	// few can be under way at a refusal.
	manyAtOnce  = 8.0
	maxPunished = 0.2 // the same where a penalty follows: twice as much each time
	// How much longer than another an attempt takes on its way, as a part of the
	// latency, and of a refusal's round trip once that is known.
	jitterOfLatency, jitterOfTrip = 20.0, 8
	// What comes too early is sent later, by less and less with each that does not.
	slackMemory = 3000.0
	drainFade   = 0.98 // an answer
	// newestShare is the part that the newest attempt has in what is thought of a share.
	newestShare = 0.1
	// assumedSlack is the part of its length for which a published window is left longer.
	assumedSlack = 100
	// A window is left for so much of its length longer than it is, and for as much as
	// the latency differs, but not for more than so much.
	lateness, maxLateness = 1000, 100
	coarse                = 0.005 // and so much of it is left alone where it holds many
	// Some round what is left of costs down to thousands.
	coarseUnits = 1000.0

	maxLimits = 4
)

// doubtUnit is how much each unit is thought to foretell wrongly before it did.
var doubtUnit = amounts{attempts: 0.03, cost: 0.03, busy: 0.06}
