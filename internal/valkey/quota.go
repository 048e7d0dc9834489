package valkey

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-go/headway/quota"
)

// Budgets are the shared budgets of one group of quotas, for one member.
type Budgets struct {
	client *Client
	group  string
	member string
}

// Budgets returns the budgets of a group. The keys have hashes, so that the names of groups,
// tenants and models are not stored.
func (c *Client) Budgets(group, member string) *Budgets {
	sum := sha256.Sum256([]byte(group))
	return &Budgets{client: c, group: "q" + hex.EncodeToString(sum[:16]), member: "m:" + member}
}

// Exchange carries out an exchange in one script. It does not send it twice. Only the
// server's clock counts.
func (b *Budgets) Exchange(ctx context.Context, x *quota.Exchange) (*quota.Exchanged, error) {
	keys, args := b.message(x)
	r, err := budgetScript.Exec(ctx, b.client.c, keys, args).AsStrSlice()
	if err != nil {
		return nil, plain(err)
	}
	return answer(x, r)
}

// forget is how long a bucket's record is kept after it would be full, and dayKept how long
// that of a day.
const (
	forget  = 2 * quota.FleetLease
	dayKept = 50 * time.Hour
)

// message returns the keys and arguments of the script.
func (b *Budgets) message(x *quota.Exchange) (keys, args []string) {
	leave := "0"
	if x.Leave {
		leave = "1"
	}
	keys = append(make([]string, 0, 1+len(x.Budgets)), "headway:{"+b.group+"}:members")
	expect := ""
	if !x.Expect.IsZero() {
		expect = strconv.FormatInt(x.Expect.UnixMicro(), 10)
	}
	args = append(make([]string, 0, 7+10*len(x.Budgets)+5*len(x.Claims)), b.member,
		micros(x.Lease), micros(x.Silence), leave, expect)
	for i := range x.Budgets {
		s := &x.Budgets[i]
		keep := dayKept
		if s.Rate > 0 {
			keep = forget + time.Duration(min(float64(s.Cap)/s.Rate, dayKept.Seconds())*float64(time.Second))
		}
		keys = append(keys, b.key(s))
		args = append(args, whole(s.Cap), real(s.Rate), real(s.Known), s.Born, whole(s.Delta), whole(s.Total), whole(s.Pending), whole(s.Reserve), whole(s.Ahead), millis(keep))
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
func answer(x *quota.Exchange, r []string) (*quota.Exchanged, error) {
	const head, each = 5, 5
	if len(r) != head+each*len(x.Budgets) || len(r[4]) != len(x.Claims) {
		return nil, errAnswer
	}
	a := &quota.Exchanged{
		At: time.Unix(number(r[0]), number(r[1])*1000), Members: int(number(r[2])), Silent: int(number(r[3])),
		Granted: make([]bool, len(x.Claims)), Budgets: make([]quota.SharedUse, len(x.Budgets)),
	}
	for i := range a.Granted {
		a.Granted[i] = r[4][i] == '1'
	}
	for i := range a.Budgets {
		f := r[head+each*i:]
		a.Budgets[i] = quota.SharedUse{Use: decimal(f[0]), Pending: number(f[1]), Reserve: number(f[2]), Ahead: number(f[3]), Born: f[4]}
	}
	return a, nil
}

// budgetScript carries out an exchange. A budget is a hash:
//
//	u  the use, which ebbs at the budget's rate; t the instant for which it holds
//	s  the reserves of all members, a what members may give back of the use
//	x  when the first reserve expires
//	b  the instant of the record's birth; k the use that a member knew of an earlier record
//	m:MEMBER  its reserve, what it may give back, when its lease ends, and the sum of its
//	   changes so far. The end is 0 if it has passed: the reserve counts as used then
//
// A clock that is more than two seconds away from what a member expects was set. A record that
// was written before is then moved with it.
//
// A record that begins with a use was lost: it grants nothing until all members that can be
// heard have brought what they know.
var budgetScript = rueidis.NewLuaScript(budgetText)

const budgetText = `#!lua flags=allow-oom
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local me, lease, silence = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local group = KEYS[1]
redis.call('ZREMRANGEBYSCORE', group, '-inf', now - lease)
if ARGV[4] == '1' then redis.call('ZREM', group, me) else redis.call('ZADD', group, now, me) end
redis.call('PEXPIRE', group, math.floor(lease / 500))
local members = redis.call('ZCARD', group)
local silent = redis.call('ZCOUNT', group, '-inf', now - silence)
local heard = 1
if members > 0 then heard = (members - silent) / members end
local function text(n) return string.format('%.17g', n) end
local all, p = {}, 6
local expected = tonumber(ARGV[5]) or now
local set = 0
if math.abs(now - expected) > 2000000 then set = now - expected end
for i = 2, #KEYS do
  local b = {cap = tonumber(ARGV[p]), rate = tonumber(ARGV[p+1]), room = tonumber(ARGV[p+6])}
  local known, born = tonumber(ARGV[p+2]), ARGV[p+3]
  local v = redis.call('HMGET', KEYS[i], 'u', 't', 's', 'a', 'x', 'b', 'k', me)
  if v[1] then
    b.u, b.t, b.s, b.a, b.x, b.b, b.k = tonumber(v[1]), tonumber(v[2]), tonumber(v[3]), tonumber(v[4]), tonumber(v[5]), v[6], tonumber(v[7])
    if born ~= '' and born ~= b.b and known > b.k then
      b.u, b.k = b.u + known - b.k, known
    end
  else
    b.u, b.t, b.s, b.a, b.x, b.b, b.k = known, now, 0, 0, 0, text(now), known
  end
  if set > 0 and b.t <= expected then b.t = b.t + set end
  if b.t > now + 2000000 then b.t = now end
  if b.rate > 0 and now > b.t then b.u = math.max(0, b.u - b.rate * heard * (now - b.t) / 1000000) end
  b.t = math.max(b.t, now)
  local delta = tonumber(ARGV[p+4])
  if v[8] then
    local r, a, till, total = string.match(v[8], '(%d+) (%d+) (%d+) ?(-?%d*)')
    if born ~= '' and total ~= '' then delta = tonumber(ARGV[p+5]) - total end
    if till == '0' then b.u = math.max(0, b.u - r) else b.s, b.a = b.s - r, b.a - a end
  end
  if b.x > 0 and now >= b.x then
    b.x = 0
    local f = redis.call('HGETALL', KEYS[i])
    for j = 1, #f, 2 do
      if string.sub(f[j], 1, 2) == 'm:' and f[j] ~= me then
        local r, a, till, total = string.match(f[j+1], '(%d+) (%d+) (%d+) ?(-?%d*)')
        till = tonumber(till)
        if till == 0 then
        elseif till <= now then
          b.s, b.a, b.u = b.s - r, b.a - a, b.u + r
          if r == '0' then redis.call('HDEL', KEYS[i], f[j]) else redis.call('HSET', KEYS[i], f[j], r .. ' 0 0 ' .. total) end
        elseif b.x == 0 or till < b.x then
          b.x = till
        end
      end
    end
  end
  b.u = math.max(0, b.u + delta)
  local birth = tonumber(b.b)
  if b.k > 0 and birth <= now and now < birth + silence then b.cap = 0 end
  b.slack = b.rate > 0 and 0.000001 or 0
  b.total, b.reserve, b.ahead, b.keep = ARGV[p+5], tonumber(ARGV[p+7]), tonumber(ARGV[p+8]), ARGV[p+9]
  all[i-1] = b
  p = p + 10
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
local answer = {clock[1], clock[2], tostring(members), tostring(silent), table.concat(granted)}
for i = 1, #all do
  local b, key = all[i], KEYS[i+1]
  local take = math.max(0, math.floor(math.min(b.ahead, b.cap - b.s - b.u)))
  b.u, b.room = b.u + take, b.room + take
  local mine = math.max(0, math.floor(math.min(b.reserve, b.cap - b.s - b.u)))
  local pending = math.max(0, b.room)
  answer[#answer+1] = text(b.u)
  answer[#answer+1] = string.format('%.0f', b.a)
  answer[#answer+1] = string.format('%.0f', mine)
  answer[#answer+1] = string.format('%.0f', take)
  answer[#answer+1] = b.b
  if ARGV[4] == '1' and pending == 0 then
    redis.call('HDEL', key, me)
  else
    local till = now + lease
    if b.x == 0 or till < b.x then b.x = till end
    redis.call('HSET', key, me, string.format('%.0f %.0f %.0f ', mine, pending, till) .. b.total)
  end
  redis.call('HSET', key, 'u', text(b.u), 't', text(b.t), 's', string.format('%.0f', b.s + mine), 'a', string.format('%.0f', b.a + pending), 'x', string.format('%.0f', b.x), 'b', b.b, 'k', text(b.k))
  redis.call('PEXPIRE', key, b.keep)
end
return answer`
