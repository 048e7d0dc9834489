package keys_test

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/internal/keys"
)

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
