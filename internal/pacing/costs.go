package pacing

// costs learns what attempts cost from what their callers estimated, since estimates may always be too
// high, or in another unit, or the same for all. An attempt is expected to cost as much more than it was
// estimated as the newest did, and the more the higher its estimate is, if that was so.
type costs struct {
	answers  float64 // whose cost is known, at most costMemory
	estimate float64 // the mean estimate of the newest answers
	off      float64 // how much more than that they cost
	spread   float64 // the variance of the estimate
	along    float64 // the covariance of the estimate and of how much more an attempt cost
}

const (
	// costMemory is how many answers the means are of.
	costMemory = 100
	// evenEstimates is the part of their mean by which estimates have to differ to show what their errors
	// depend on.
	evenEstimates = 0.1
	// minCost is the least that an attempt is expected to cost, as a part of the mean.
	minCost = 0.01
)

// learn takes in what an attempt cost.
func (c *costs) learn(estimate, cost float64) {
	c.answers = min(c.answers+1, costMemory)
	w := 1 / c.answers
	x, y := estimate-c.estimate, cost-estimate-c.off
	c.estimate += w * x
	c.off += w * y
	c.spread = (1 - w) * (c.spread + w*x*x)
	c.along = (1 - w) * (c.along + w*x*y)
}

// expect returns what an attempt will probably cost. If all estimates were right, it is the estimate.
func (c *costs) expect(estimate float64) float64 {
	if c.off == 0 && c.along == 0 {
		return estimate
	}
	even := evenEstimates * c.estimate
	slope := max(0, 1+c.along/(c.spread+even*even))
	mean := c.estimate + c.off
	return max(mean+slope*(estimate-c.estimate), minCost*mean)
}
