package quotafile_test

import (
	"fmt"

	"github.com/headway-go/headway/internal/quotafile"
)

func ExampleParse() {
	c, err := quotafile.Parse("quota.yaml", []byte(`
models:
  small: {calls_per_minute: 60, soft_token_budget: 60000, soft_token_window: 1m}
`))
	fmt.Println(c.Models["small"].SoftTokenWindowMS, err)

	_, err = quotafile.Parse("quota.yaml", []byte(`
models:
  small:
    burst: many
`))
	fmt.Println(err)
	// Output:
	// 60000 <nil>
	// quota.yaml:4:12: models.small.burst: is "many"; want a whole number
}

// A program passes os.Getenv.
func ExampleFromEnv() {
	base, err := quotafile.Parse("quota.yaml", []byte("global: {calls_per_minute: 60}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	getenv := func(key string) string {
		return map[string]string{"LLM_GLOBAL_MAX_CALLS_PER_MINUTE": "600"}[key]
	}
	c, err := quotafile.FromEnv(base, getenv)
	fmt.Println(c.Global.CallsPerMinute, err)
	// Output: 600 <nil>
}

func ExampleSettings_WithEnv() {
	getenv := func(key string) string {
		return map[string]string{"RATE_GOVERNOR_LOG_LEVEL": "loud"}[key]
	}
	_, err := quotafile.Settings{}.WithEnv(getenv)
	fmt.Println(err)
	// Output: environment: RATE_GOVERNOR_LOG_LEVEL: is "loud"; want one of debug, info, warn, error
}
