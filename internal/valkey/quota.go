package valkey

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-go/headway/quota"
)

// Budgets are the shared budgets of one group of quotas, for one member.
type Budgets struct {
	client *Client
	group  string
	member string

	server string    // what the server said of itself, as in the script's answer; "" to ask
	asked  time.Time // when it said that
	dials  int64     // the connections that had been opened then
}

// askEvery is how often a server is asked whether it evicts records: its configuration may
// change.
const askEvery = 30 * time.Second

// Budgets returns the budgets of a group. The keys have hashes, so that the names of groups,
// tenants and models are not stored.
func (c *Client) Budgets(group, member string) *Budgets {
	sum := sha256.Sum256([]byte(group))
	return &Budgets{client: c, group: "q" + hex.EncodeToString(sum[:16]), member: "m:" + member}
}

// Exchange carries out an exchange in one script. It does not send it twice. Only the
// server's clock counts.
func (b *Budgets) Exchange(ctx context.Context, x *quota.Exchange) (*quota.Exchanged, error) {
	dials := b.client.dials.Load()
	if dials != b.dials || time.Since(b.asked) > askEvery {
		b.server = ""
	}
	keys, args := b.message(x)
	r, err := budgetScript.Exec(ctx, b.client.c, keys, args).AsStrSlice()
	if err != nil {
		return nil, plain(err)
	}
	a, server, err := answer(x, r)
	if err != nil {
		return nil, err
	}
	if b.server == "" {
		b.asked, b.dials = time.Now(), dials
	}
	if b.server = server; b.client.dials.Load() != dials {
		b.server = ""
		return nil, errReplaced
	}
	return a, nil
}

// errReplaced is the error of an exchange over a connection that was opened meanwhile: the server
// may be another one, with an older copy of the records.
var errReplaced = errors.New("the server was reconnected")

// forget is how long a bucket's record is kept after it would be full, and dayKept how long
// that of a day.
const (
	forget  = 2 * quota.FleetLease
	dayKept = 50 * time.Hour
)

// perBudget is the number of arguments for each budget.
const perBudget = 14

// message returns the keys and arguments of the script.
func (b *Budgets) message(x *quota.Exchange) (keys, args []string) {
	state := "here"
	switch {
	case x.Leave:
		state = "leaves"
	case x.Away:
		state = "away"
	}
	keys = append(make([]string, 0, 1+len(x.Budgets)), "headway:{"+b.group+"}:members")
	expect := ""
	if !x.Expect.IsZero() {
		expect = strconv.FormatInt(x.Expect.UnixMicro(), 10)
	}
	args = append(make([]string, 0, 9+perBudget*len(x.Budgets)+5*len(x.Claims)), b.member,
		micros(x.Lease), micros(x.Silence), state, expect, strconv.Itoa(x.Members), b.server)
	for i := range x.Budgets {
		s := &x.Budgets[i]
		keep := dayKept
		if s.Rate > 0 {
			keep = forget + time.Duration(min(float64(s.Cap)/s.Rate, dayKept.Seconds())*float64(time.Second))
		}
		keys = append(keys, b.key(s))
		args = append(args, whole(s.Cap), real(s.Rate), real(s.Known), s.Born, whole(s.Kept), whole(s.Had),
			whole(s.Delta), whole(s.Total), whole(s.Grown), whole(s.GrownTotal), whole(s.Pending), whole(s.Reserve), whole(s.Ahead), millis(keep))
	}
	args = append(args, strconv.Itoa(len(x.Claims)))
	for _, c := range x.Claims {
		args = append(args, strconv.Itoa(len(c.Budgets)))
		for i, at := range c.Budgets {
			args = append(args, strconv.Itoa(at+1), whole(c.Amounts[i]))
		}
	}
	return keys, args
}

// key returns the key of a budget.
func (b *Budgets) key(s *quota.SharedBudget) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", s.Scope.Tenant, s.Scope.Agent, s.Scope.Model, s.Name, s.Day))
	return "headway:{" + b.group + "}:" + hex.EncodeToString(sum[:16])
}

func whole(n int64) string          { return strconv.FormatInt(n, 10) }
func real(f float64) string         { return strconv.FormatFloat(f, 'g', -1, 64) }
func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
func number(s string) (n int64)     { n, _ = strconv.ParseInt(s, 10, 64); return n }
func decimal(s string) (f float64)  { f, _ = strconv.ParseFloat(s, 64); return f }

var errAnswer = errors.New("the server's answer is not that of the script")

// answer reads the answer of the script.
func answer(x *quota.Exchange, r []string) (a *quota.Exchanged, server string, err error) {
	const head, each = 6, 6
	if len(r) != head+each*len(x.Budgets) || len(r[4]) != len(x.Claims) {
		return nil, "", errAnswer
	}
	a = &quota.Exchanged{
		At: time.Unix(number(r[0]), number(r[1])*1000), Members: int(number(r[2])), Silent: int(number(r[3])),
		Evicts:  !strings.HasSuffix(r[5], " noeviction"),
		Granted: make([]bool, len(x.Claims)), Budgets: make([]quota.SharedUse, len(x.Budgets)),
	}
	for i := range a.Granted {
		a.Granted[i] = r[4][i] == '1'
	}
	for i := range a.Budgets {
		f := r[head+each*i:]
		a.Budgets[i] = quota.SharedUse{Use: decimal(f[0]), Pending: number(f[1]), Reserve: number(f[2]), Ahead: number(f[3]), Born: f[4], Kept: number(f[5])}
	}
	return a, r[5], nil
}

// budgetScript carries out an exchange. The members of a group are a sorted set. A member's
// score is the instant at which it was last heard, in microseconds; its last three digits are
// the number of members that it knows of, 1/n of which it uses while it is silent. A budget is
// a hash:
//
//	u  the use, which ebbs at the budget's rate; t the instant for which it holds
//	s  the reserves of all members, a what members may give back of the use
//	x  when the first reserve expires
//	b  the instant of the record's birth; r what the server was then
//	k  the use that a member knew of an earlier record, -1 if there was none; l the reserves
//	   that a member knew of it, o those of them whose members have not been heard since
//	m:MEMBER  its reserve, what it may give back, when its lease ends, and the sums of its
//	   changes and of its shares so far. The end is 0 if it has passed: the reserve counts as
//	   used then
//
// The share of a silent member does not ebb, since the member uses it, and what it reports of
// it later is counted already. It may also have saved it, up to its share of the budget: that
// much is kept for it. A member that has no entry any more, or a record that it does not know,
// cannot say what of it was counted: then only what it used is, and not what it gives back.
//
// A clock that is more than two seconds away from what a member expects was set. What was
// written before is then moved with it.
//
// A record that begins with a use was lost, and one of another server, such as a primary that was
// replaced by its replica, may be an older copy. It grants nothing until all members that can be heard have brought what they
// know. If no member was heard for a lease, or their set was lost, those that the first one knows
// of count as silent until they are heard.
var budgetScript = rueidis.NewLuaScript(budgetText)

const budgetText = `#!lua flags=allow-oom
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local me, lease, silence, expected = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local state, knew, server = ARGV[4], tonumber(ARGV[6]), ARGV[7]
if server == '' then
  local function info(section, name)
    local t = redis.pcall('INFO', section)
    return type(t) == 'string' and string.match(t, name .. ':([^\r\n]+)') or '?'
  end
  server = info('server', 'run_id') .. ' ' .. info('memory', 'maxmemory_policy')
end
local run, policy = string.match(server, '(%S+) (%S+)')
local evicts = policy ~= 'noeviction'
local group = KEYS[1]
local function text(n) return string.format('%.17g', n) end
local function floor(n) return math.max(0, math.floor(n)) end
local set = 0
if expected and math.abs(now - expected) > 2000000 then
  set = now - expected
  local m = redis.call('ZRANGE', group, 0, -1, 'WITHSCORES')
  for i = 1, #m, 2 do
    local n = m[i+1] % 1000
    local at = m[i+1] - n
    if set > 0 and at <= expected or at > now + 2000000 then
      at = math.min(at + set, now)
      redis.call('ZADD', group, text(at - at % 1000 + n), m[i])
    end
  end
end
local function members() return redis.call('ZCOUNT', group, text(now - lease), '+inf') end
local before = redis.call('ZSCORE', group, me)
local member = before and tonumber(before) >= now - lease
local others = members()
if others == 0 and knew > 1 then
  local at = now - silence
  for i = 1, knew - 1 do redis.call('ZADD', group, text(at - at % 1000 + math.min(knew, 999)), '?' .. i) end
elseif knew > 1 and not member then
  for i = 1, knew do
    if redis.call('ZREM', group, '?' .. i) == 1 then break end
  end
end
local away = {}
local m = redis.call('ZRANGEBYSCORE', group, '-inf', text(now - silence), 'WITHSCORES')
for i = 1, #m, 2 do
  local n = m[i+1] % 1000
  away[#away+1] = {from = m[i+1] - n + silence, till = m[i+1] - n + lease, n = math.max(1, n), me = m[i] == me}
end
local mine
if before then
  local n = before % 1000
  mine = {from = before - n + silence, till = before - n + lease, n = math.max(1, n)}
end
redis.call('ZREMRANGEBYSCORE', group, '-inf', text(now - 86400000000))
redis.call('ZREM', group, me)
local n, at = members() + 1, now
if knew > 0 then n = math.min(n, knew) end
if state == 'away' then at = now - silence end
local score = text(at - at % 1000 + math.min(n, 999))
if state == 'away' and member then score = before end
if state ~= 'leaves' then redis.call('ZADD', group, score, me) end
redis.call('PEXPIRE', group, 86400000)
local all, p = {}, 8
for i = 2, #KEYS do
  local key = KEYS[i]
  local b = {cap = tonumber(ARGV[p]), rate = tonumber(ARGV[p+1]) / 1000000}
  local kept, had = tonumber(ARGV[p+4]), tonumber(ARGV[p+5])
  local known, born = math.max(0, ARGV[p+2]), ARGV[p+3]
  local delta, total = tonumber(ARGV[p+6]), ARGV[p+7]
  local grown, sum = tonumber(ARGV[p+8]), ARGV[p+9]
  b.room, b.reserve, b.ahead, b.keep = tonumber(ARGV[p+10]), tonumber(ARGV[p+11]), tonumber(ARGV[p+12]), ARGV[p+13]
  b.total, b.sum = total, sum
  local v = redis.call('HMGET', key, 'u', 't', 's', 'a', 'x', 'b', 'r', 'k', 'l', 'o', me)
  local entry = v[11]
  if v[1] then
    b.u, b.t, b.s, b.a, b.x = tonumber(v[1]), tonumber(v[2]), tonumber(v[3]), tonumber(v[4]), tonumber(v[5])
    b.b, b.r, b.k, b.l, b.o = v[6], v[7], tonumber(v[8]), tonumber(v[9]), tonumber(v[10])
    if run ~= b.r then
      b.r = run
      b.b, b.k, b.l, b.t = text(now), b.u, b.s, math.max(b.t, now)
      local f = redis.call('HGETALL', key)
      for j = 1, #f, 2 do
        if string.sub(f[j], 1, 2) == 'm:' then
          f[j+1] = string.match(f[j+1], '%d+ %d+ %d+')
          redis.call('HSET', key, f[j], f[j+1])
          if f[j] == me then entry = f[j+1] end
        end
      end
    end
    if born ~= '' and born ~= b.b then
      if known > b.k then b.u, b.k = b.u + known - math.max(0, b.k), known end
      if kept > b.l then b.s, b.o, b.l = b.s + kept - b.l, b.o + kept - b.l, kept end
    end
  else
    b.u, b.t, b.s, b.a, b.x, b.b, b.r, b.k, b.l, b.o = known, now, kept, 0, 0, text(now), run, -1, kept, kept
    if born ~= '' or known > 0 or evicts or knew == 0 and others > 0 then b.k = known end
  end
  if set > 0 and b.t <= expected then b.t = b.t + set end
  if b.t > now + 2000000 then b.t = now end
  local ebbs, saved = now - b.t, 0
  for j = 1, #away do
    local o = away[j]
    ebbs = ebbs - math.max(0, math.min(now, o.till) - math.max(b.t, o.from)) / o.n
    if not o.me and o.till > now then saved = saved + math.min(b.cap, b.rate * (now - o.from)) / o.n end
  end
  if b.rate > 0 then b.u = math.max(saved, b.u - b.rate * math.max(0, ebbs)) end
  b.t = math.max(b.t, now)
  local birth = tonumber(b.b)
  local held = 0
  if entry then
    local r, a, till, was, share = string.match(entry, '(%d+) (%d+) (%d+) ?(-?%d*) ?(%d*)')
    if was ~= '' then
      delta, grown = total - was, sum - (tonumber(share) or sum)
    elseif state == 'away' then
      delta = math.max(0, delta)
    end
    held = tonumber(r)
    if till == '0' then b.u = math.max(0, b.u - r) else b.s, b.a = b.s - r, b.a - a end
  elseif state == 'away' then
    delta = math.max(0, delta)
  end
  if born ~= '' and born ~= b.b then
    local back = math.min(b.o, math.max(0, had - held))
    b.s, b.o = b.s - back, b.o - back
  end
  if mine then grown = grown - b.rate * math.max(0, math.min(now, mine.till) - math.max(mine.from, birth)) / mine.n end
  if grown > 0 then b.u = math.max(b.u, math.min(b.cap, b.u + grown)) end
  if b.x > 0 and now >= b.x then
    b.x = 0
    local f = redis.call('HGETALL', key)
    for j = 1, #f, 2 do
      if string.sub(f[j], 1, 2) == 'm:' and f[j] ~= me then
        local r, a, till, rest = string.match(f[j+1], '(%d+) (%d+) (%d+)(.*)')
        till = tonumber(till)
        if till == 0 then
        elseif till <= now then
          b.s, b.a, b.u = b.s - r, b.a - a, b.u + r
          if r == '0' then redis.call('HDEL', key, f[j]) else redis.call('HSET', key, f[j], r .. ' 0 0' .. rest) end
        elseif b.x == 0 or till < b.x then
          b.x = till
        end
      end
    end
  end
  b.u = math.max(0, b.u + delta)
  b.most = b.cap
  if b.k >= 0 and birth <= now and now < birth + silence then
    b.cap, b.reserve = 0, math.min(b.reserve, had)
  end
  b.slack = b.rate > 0 and 0.000001 or 0
  all[i-1] = b
  p = p + 14
end
local granted = {}
local claims = tonumber(ARGV[p])
p = p + 1
for c = 1, claims do
  local n, ok = tonumber(ARGV[p]), '1'
  for j = 1, n do
    local b = all[tonumber(ARGV[p+2*j-1])]
    if b.u + b.s + ARGV[p+2*j] > b.cap + b.slack then ok = '0' end
  end
  if ok == '1' then
    for j = 1, n do
      local b, amount = all[tonumber(ARGV[p+2*j-1])], tonumber(ARGV[p+2*j])
      b.u, b.room = b.u + amount, b.room + amount
    end
  end
  granted[c] = ok
  p = p + 1 + 2*n
end
local silent = redis.call('ZCOUNT', group, text(now - lease), text(now - silence))
local answer = {clock[1], clock[2], tostring(members()), tostring(silent), table.concat(granted), server}
for i = 1, #all do
  local b, key = all[i], KEYS[i+1]
  local take = floor(math.min(b.ahead, b.cap - b.s - b.u))
  b.u, b.room = b.u + take, b.room + take
  local reserve = floor(math.min(b.reserve, b.most - b.s - b.u))
  local pending = math.max(0, b.room)
  b.s = b.s + reserve
  answer[#answer+1] = text(b.u)
  answer[#answer+1] = string.format('%.0f', b.a)
  answer[#answer+1] = string.format('%.0f', reserve)
  answer[#answer+1] = string.format('%.0f', take)
  answer[#answer+1] = b.b
  answer[#answer+1] = string.format('%.0f', b.s)
  if state == 'leaves' and pending == 0 then
    redis.call('HDEL', key, me)
  else
    local till = now + lease
    if b.x == 0 or till < b.x then b.x = till end
    redis.call('HSET', key, me, string.format('%.0f %.0f %.0f ', reserve, pending, till) .. b.total .. ' ' .. b.sum)
  end
  redis.call('HSET', key, 'u', text(b.u), 't', text(b.t), 's', string.format('%.0f', b.s), 'a', string.format('%.0f', b.a + pending), 'x', string.format('%.0f', b.x), 'b', b.b, 'r', b.r, 'k', text(b.k), 'l', text(b.l), 'o', text(b.o))
  redis.call('PEXPIRE', key, b.keep)
end
return answer`
