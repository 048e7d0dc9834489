package keys_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/reason"
)

func ring(t *testing.T, all ...keys.Key) *keys.Ring {
	t.Helper()
	r, err := keys.New(all)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFindKnowsItsOwnKeysAndNoOther(t *testing.T) {
	var all []keys.Key
	var secrets []string
	for _, id := range []string{"a", "b", "c"} {
		secret, hash := keys.Generate()
		secrets = append(secrets, secret)
		all = append(all, keys.Key{ID: id, Hash: hash})
	}
	r := ring(t, all...)
	for i, secret := range secrets {
		k, ok := r.Find(secret)
		if !ok || k.ID != all[i].ID {
			t.Errorf("key %d is found as %q, %v", i, k.ID, ok)
		}
		if k.Hash != "" {
			t.Error("a found key carries its hash")
		}
	}
	unknown, _ := keys.Generate()
	for _, presented := range []string{
		"", unknown, all[0].Hash, secrets[0] + "x", secrets[0][:len(secrets[0])-1], strings.ToUpper(secrets[0]),
		" " + secrets[0], strings.Repeat("x", 1<<16),
	} {
		if k, ok := r.Find(presented); ok || k.ID != "" {
			t.Errorf("%.20q is found as %q", presented, k.ID)
		}
	}
	if _, ok := (*keys.Ring)(nil).Find(secrets[0]); ok {
		t.Error("no ring knows a key")
	}
}

func TestGenerateMakesKeysOf256Bits(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		secret, hash := keys.Generate()
		if !strings.HasPrefix(secret, keys.Prefix) || len(secret) != len(keys.Prefix)+43 {
			t.Fatalf("a key has %d bytes", len(secret))
		}
		if hash != keys.Hash(secret) || seen[secret] || seen[hash] {
			t.Fatal("a key is not the one of its hash, or comes twice")
		}
		seen[secret], seen[hash] = true, true
	}
}

func TestAdmitRefusesExpiredKeys(t *testing.T) {
	secret, hash := keys.Generate()
	end := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	r := ring(t, keys.Key{ID: "k", Hash: hash, Expires: end})
	if _, err := r.Admit(secret, end.Add(-1)); err != nil {
		t.Errorf("before its end: %v", err)
	}
	for presented, want := range map[string]string{secret: "expired on 2026-05-06T07:08:09Z", "": "no key", "hw_x": "unknown"} {
		k, err := r.Admit(presented, end)
		if !errors.Is(err, &reason.Refusal{Reason: reason.Unauthorized}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.3q: %v, want one with %q", presented, err, want)
		}
		if k.ID != "" {
			t.Error("a refused key is given all the same")
		}
		if err != nil && presented != "" && strings.Contains(err.Error(), presented) {
			t.Error("the error holds what was presented")
		}
	}
	forever := ring(t, keys.Key{ID: "k", Hash: hash})
	if _, err := forever.Admit(secret, end.AddDate(1000, 0, 0)); err != nil {
		t.Errorf("a key without an end: %v", err)
	}
}

func TestScopes(t *testing.T) {
	k := keys.Key{ID: "team", Models: []string{"gpt-*", "meta/llama-?"}, Providers: []string{"openai"}}
	for _, c := range []struct {
		key             keys.Key
		provider, model string
		ok              bool
	}{
		{k, "openai", "gpt-4o", true},
		{k, "openai", "meta/llama-3", true},
		{k, "openai", "claude", false},
		{k, "openai", "xgpt-4o", false},
		{k, "openai", "gpt-4o/x", false},
		{k, "openai", "", false},
		{k, "anthropic", "gpt-4o", false},
		{k, "", "gpt-4o", false},
		{keys.Key{}, "any", "thing", true},
		{keys.Key{}, "any", "", true},
		{keys.Key{Models: []string{"*"}}, "any", "with/a/slash", true},
		{keys.Key{Models: []string{"*"}}, "any", "", false},
	} {
		err := c.key.Permit(c.provider, c.model)
		if (err == nil) != c.ok {
			t.Errorf("%v %v at %q, %q: %v", c.key.Providers, c.key.Models, c.provider, c.model, err)
		}
		if err != nil && !errors.Is(err, &reason.Refusal{Reason: reason.Forbidden}) {
			t.Errorf("%v is not forbidden", err)
		}
	}
}

func TestBindKeepsTheKeysOwnTenant(t *testing.T) {
	bound, free := keys.Key{ID: "k", Tenant: "a", Agent: "x"}, keys.Key{ID: "k"}
	for _, c := range []struct {
		key           keys.Key
		tenant, agent string
		want          [2]string
		ok            bool
	}{
		{bound, "", "", [2]string{"a", "x"}, true},
		{bound, "a", "x", [2]string{"a", "x"}, true},
		{bound, "b", "", [2]string{}, false},
		{bound, "a", "y", [2]string{}, false},
		{free, "b", "y", [2]string{"b", "y"}, true},
	} {
		tenant, agent, err := c.key.Bind(c.tenant, c.agent)
		if (err == nil) != c.ok || [2]string{tenant, agent} != c.want {
			t.Errorf("%q, %q: %q, %q, %v", c.tenant, c.agent, tenant, agent, err)
		}
	}
}

func TestRankIsBoundedAbove(t *testing.T) {
	for _, c := range []struct{ own, most, asked, want int }{
		{0, 0, 5, 0}, {0, 0, -5, -5}, {2, 0, 9, 2}, {2, 7, 9, 7}, {2, 7, 4, 4}, {-3, 0, 0, -3}, {-3, -1, 0, -1}, {-3, 2, 1, 1},
	} {
		secret, hash := keys.Generate()
		k, ok := ring(t, keys.Key{ID: "k", Hash: hash, Priority: c.own, PriorityMax: c.most}).Find(secret)
		if !ok || k.Priority != c.own {
			t.Fatalf("the key is %+v, %v", k, ok)
		}
		if got := k.Rank(c.asked); got != c.want {
			t.Errorf("own %d, most %d: %d asks and gets %d, want %d", c.own, c.most, c.asked, got, c.want)
		}
	}
}

func TestNewSaysWhatIsWrongAndKeepsSecrets(t *testing.T) {
	const canary = "hw_CanaryCanaryCanaryCanaryCanaryCanaryCana"
	_, good := keys.Generate()
	_, other := keys.Generate()
	long := strings.Repeat("x", 129)
	for name, c := range map[string]struct {
		all  []keys.Key
		want string
	}{
		"no id":          {[]keys.Key{{Hash: good}}, `keys[0] "": id is missing`},
		"long id":        {[]keys.Key{{ID: long, Hash: good}}, "id has 129 bytes"},
		"control":        {[]keys.Key{{ID: "a\nb", Hash: good}}, "control character"},
		"no hash":        {[]keys.Key{{ID: "k"}}, "hash is missing"},
		"a key itself":   {[]keys.Key{{ID: "k", Hash: canary}}, "hash is a key itself"},
		"another scheme": {[]keys.Key{{ID: "k", Hash: "md5:" + canary}}, "no known scheme"},
		"short":          {[]keys.Key{{ID: "k", Hash: "sha256:" + canary}}, "has 43 digits"},
		"no digits":      {[]keys.Key{{ID: "k", Hash: "sha256:" + canary + strings.Repeat("0", 21)}}, "not a hexadecimal digit"},
		"same id":        {[]keys.Key{{ID: "k", Hash: good}, {ID: "k", Hash: other}}, `keys[1] "k": id is that of keys[0]`},
		"same hash":      {[]keys.Key{{ID: "k", Hash: good}, {ID: "l", Hash: good}}, `keys[1] "l": hash is that of keys[0]`},
		"bad glob":       {[]keys.Key{{ID: "k", Hash: good, Models: []string{"ok", "gpt-["}}}, `models[1] is "gpt-["`},
		"empty glob":     {[]keys.Key{{ID: "k", Hash: good, Providers: []string{""}}}, "providers[0] has 0 bytes"},
		"priority":       {[]keys.Key{{ID: "k", Hash: good, Priority: 5, PriorityMax: 3}}, "priority_max is 3, must be at least priority, which is 5"},
		"too many":       {make([]keys.Key, keys.MaxKeys+1), "at most 10000"},
		"two at once":    {[]keys.Key{{ID: "k"}, {ID: "l"}}, `keys[1] "l": hash is missing`},
	} {
		_, err := keys.New(c.all)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
			continue
		}
		if text := strings.ToLower(err.Error()); strings.Contains(text, "canary") || strings.Contains(text, strings.TrimPrefix(good, "sha256:")) {
			t.Errorf("%s: the error contains the secret or the hash: %v", name, err)
		}
	}
}

func TestARingDoesNotChangeWithWhatItWasMadeOf(t *testing.T) {
	secret, hash := keys.Generate()
	all := []keys.Key{{ID: "k", Hash: hash, Models: []string{"gpt-*"}}}
	r := ring(t, all...)
	all[0].Models[0] = "*"
	k, _ := r.Find(secret)
	if err := k.Permit("p", "claude"); err == nil {
		t.Error("the ring took over a change of its source")
	}
}

func BenchmarkFind(b *testing.B) {
	all := make([]keys.Key, 100)
	var secret string
	for i := range all {
		all[i].ID = strconv.Itoa(i)
		secret, all[i].Hash = keys.Generate()
	}
	r, err := keys.New(all)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.Find(secret); !ok {
			b.Fatal("not found")
		}
	}
}

func FuzzNew(f *testing.F) {
	golden.Seeds(f)
	_, hash := keys.Generate()
	f.Add("team", hash, "gpt-*")
	f.Add("", "hw_secret", "[")
	f.Fuzz(func(t *testing.T, id, hash, glob string) {
		r, err := keys.New([]keys.Key{{ID: id, Hash: hash, Models: []string{glob}}})
		if err != nil {
			return
		}
		k, ok := r.Find(hash)
		if ok {
			t.Error("a hash is taken for its key")
		}
		_ = k.Permit("p", id)
	})
}

func limiter(t *testing.T, l keys.Limits) *keys.Limiter {
	t.Helper()
	made, err := keys.NewLimiter(l)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestFailuresBlockAndAreForgiven(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 3, Every: time.Second})
	const address = "192.0.2.1:4711"
	for i := range 3 {
		if wait, blocked := l.Blocked(0, address); blocked || wait != 0 {
			t.Fatalf("blocked after %d failures, for %v", i, wait)
		}
		l.Failed(0, address)
	}
	if wait, blocked := l.Blocked(0, "192.0.2.1:9"); !blocked || wait != time.Second {
		t.Fatalf("another port of the address: %v, %v", wait, blocked)
	}
	if _, blocked := l.Blocked(0, "192.0.2.2:4711"); blocked {
		t.Error("another address is blocked too")
	}
	if _, blocked := l.Blocked(time.Second-1, address); !blocked {
		t.Error("free a nanosecond early")
	}
	if _, blocked := l.Blocked(time.Second, address); blocked {
		t.Error("still blocked when one failure is forgiven")
	}
	l.Failed(time.Second, address)
	if _, blocked := l.Blocked(time.Second, address); !blocked {
		t.Error("not blocked again after one more failure")
	}
}

func TestFailuresBeyondTheBucketDoNotBlockForLonger(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 2, Every: time.Second})
	for range 10_000 {
		l.Failed(0, "192.0.2.1")
	}
	if wait, _ := l.Blocked(0, "192.0.2.1"); wait != time.Second {
		t.Errorf("blocked for %v, want 1s", wait)
	}
}

func TestTimeThatRunsBackwardsFreesNobody(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 1, Every: time.Second})
	l.Failed(time.Hour, "192.0.2.1")
	if _, blocked := l.Blocked(0, "192.0.2.1"); !blocked {
		t.Error("free in the past")
	}
	l.Failed(0, "192.0.2.1")
	if _, blocked := l.Blocked(time.Hour, "192.0.2.1"); !blocked {
		t.Error("a failure in the past made the block shorter")
	}
}

func TestAnIPv6HostIsOneWithItsNetwork(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 1})
	l.Failed(0, "[2001:db8::1]:80")
	for address, want := range map[string]bool{
		"[2001:db8::2]:99": true, "2001:db8::ffff:1": true, "2001:db8:0:1::1": false, "192.0.2.1": false, "nonsense": false,
	} {
		if _, blocked := l.Blocked(0, address); blocked != want {
			t.Errorf("%s: blocked is %v", address, blocked)
		}
	}
	l.Failed(0, "::ffff:192.0.2.1")
	if _, blocked := l.Blocked(0, "192.0.2.1:80"); !blocked {
		t.Error("an IPv4 address is another when it is written as IPv6")
	}
}

func TestTheTableIsBoundedAndForgetsTheForgiven(t *testing.T) {
	l := limiter(t, keys.Limits{Burst: 1, Every: time.Second, Addresses: 100})
	for i := range 100 {
		l.Failed(0, fmt.Sprintf("192.0.2.%d", i))
	}
	if _, blocked := l.Blocked(0, "198.51.100.1"); blocked {
		t.Error("a newcomer is blocked before anybody beyond the table failed")
	}
	l.Failed(0, "198.51.100.1")
	if _, blocked := l.Blocked(0, "198.51.100.2"); !blocked {
		t.Error("those beyond the table do not share a bucket")
	}
	if _, blocked := l.Blocked(0, "192.0.2.7"); !blocked {
		t.Error("one who was remembered was forgotten")
	}
	// A second later all are forgiven, and the table has room again.
	l.Failed(2*time.Second, "203.0.113.1")
	if _, blocked := l.Blocked(2*time.Second, "203.0.113.1"); !blocked {
		t.Error("not blocked after its failure")
	}
	if _, blocked := l.Blocked(2*time.Second, "198.51.100.2"); blocked {
		t.Error("still blocked when the table has room")
	}
}

func TestNewLimiterSaysWhatIsWrong(t *testing.T) {
	for want, l := range map[string]keys.Limits{
		"Burst is -1, must be from 1 to 1000":          {Burst: -1},
		"Every is 1ns, must be from 1ms to 1h":         {Every: 1},
		"Addresses is 2000000, must be from 1 to 1000": {Addresses: 2_000_000},
	} {
		if _, err := keys.NewLimiter(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func Example() {
	secret, hash := keys.Generate() // the secret goes to the team, the hash into the configuration
	ring, err := keys.New([]keys.Key{{ID: "team-a", Hash: hash, Tenant: "a", Models: []string{"gpt-*"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := ring.Admit(secret, time.Now())
	fmt.Println(key.ID, key.Tenant, err)
	fmt.Println(key.Permit("openai", "gpt-4o"))
	fmt.Println(key.Permit("openai", "o3"))
	_, err = ring.Admit("hw_somebody-elses", time.Now())
	fmt.Println(err)
	// Output:
	// team-a a <nil>
	// <nil>
	// key team-a: forbidden: the model "o3" is not among the key's (1 globs)
	// keys: unauthorized: the presented key is unknown
}

func ExampleHash() {
	fmt.Println(keys.Hash("hw_example"))
	// Output: sha256:f2802cc1460fc0d1d7eafe1710f1500c9827f557af47d92242bd62f1ab4939bb
}

func ExampleLimiter() {
	l, err := keys.NewLimiter(keys.Limits{Burst: 2, Every: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	for second := range 4 {
		now := time.Duration(second) * time.Second
		wait, blocked := l.Blocked(now, "192.0.2.1:4711")
		fmt.Println(blocked, wait)
		if !blocked {
			l.Failed(now, "192.0.2.1:4711")
		}
	}
	// Output:
	// false 0s
	// false 0s
	// true 8s
	// true 7s
}
