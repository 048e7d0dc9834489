// Package quotafile reads the configuration of a quota governor from a YAML file
// and from the environment. It answers what limits an owner wrote down and, if
// they make no sense, where: file, line, field, value and bound.
//
//	day_zone: America/Los_Angeles
//	global: {calls_per_minute: 600, burst: 60}
//	models:
//	  small:
//	    calls_per_minute: 60
//	    tokens_per_minute: 90000
//	    soft_token_window: 1m
//	    soft_token_budget: 60000
//	    max_daily_tokens: 2000000
//	    charge: openai
//	tenants:
//	  research: {weight: 3, agents: {planner: {calls_per_minute: 10}}}
//	tenant_default: {max_daily_tokens: 100000}
//	permit_ttl: 10m
//
// The keys are those of [quota.Config] in lower case with underscores, lengths
// of time are written as 250ms, 1m or 24h, and two switches are said positively:
// adaptive_scaling and forecast, both true by default. A limit that is left out
// means no limit. A limit of 0 is refused: whoever writes it may mean "nothing".
//
// To change a governor that runs, use a patch ([quota.Governor.UpdateConfig])
// instead. The package keeps no state and reads no file, clock or environment:
// the caller passes bytes and a getenv. All functions are safe for concurrent
// use. They know time zones by time.LoadLocation.
package quotafile
