package quota

import "time"

// calendar knows the days of one time zone: which day it is, and when it ends.
// Days only go forward: a clock that is set back does not hand out a day twice.
type calendar struct {
	name  string
	zone  *time.Location
	day   int64 // days since 1970-01-01, as the zone counts
	start time.Duration
	end   time.Duration
}

// anchor reads the calendar anew. origin is the wall-clock instant of zero.
func (c *calendar) anchor(origin time.Time, now time.Duration) {
	day := civilDay(origin.Add(now), c.zone)
	if day > c.day {
		c.day = day
	}
	c.start = turnOf(c.day, c.zone).Sub(origin)
	c.end = turnOf(c.day+1, c.zone).Sub(origin)
	for c.end <= now { // a zone that leaves a day out
		c.day++
		c.end = turnOf(c.day+1, c.zone).Sub(origin)
	}
}

// civilDay is the day that a calendar on the wall shows.
func civilDay(at time.Time, zone *time.Location) int64 {
	y, m, d := at.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
}

// turnOf is the first second of a day in a zone. Midnight may be missing there,
// or come twice, so it is searched for and not computed.
func turnOf(day int64, zone *time.Location) time.Time {
	const reach = 27 * 3600 // zones lie within 14 hours of UTC; one left out a whole day
	before, from := day*86400-reach, day*86400+reach
	for from-before > 1 {
		middle := before + (from-before)/2
		if civilDay(time.Unix(middle, 0), zone) >= day {
			from = middle
		} else {
			before = middle
		}
	}
	return time.Unix(from, 0)
}

// dayName is a day as 2006-01-02.
func dayName(day int64) string { return time.Unix(day*86400, 0).UTC().Format(time.DateOnly) }

// dayNumber reads what dayName wrote.
func dayNumber(name string) (int64, error) {
	t, err := time.Parse(time.DateOnly, name)
	if err != nil {
		return 0, err
	}
	return t.Unix() / 86400, nil
}
