package daemon_test

import (
	"context"
	"fmt"
	"os"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
)

func ExamplePage() {
	c, err := config.Read("headway.yaml", []byte(`
providers:
  openai:
    api: openai
    pass_through: true
    quota: {global: {calls_per_minute: 60, tokens_per_minute: 20000}}
`), os.Getenv)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(daemon.Page(c, daemon.Base(c, nil)))
	// Output:
	// headway serve at http://127.0.0.1:8700
	//
	// PROVIDER  SET IN THE CLIENT                                GOES TO                 WITH
	// openai    OPENAI_BASE_URL=http://127.0.0.1:8700/openai/v1  https://api.openai.com  the client's key
	//
	// openai: 60 calls/min, 20,000 tokens/min; paced by cycle once the provider objects; waits up to 15s
	//
	// calls           by everybody on this machine: no keys are configured
	// changes at /v1  by everybody on this machine: no admin keys are configured
	// console         in a browser at http://127.0.0.1:8700/console/
	// state           .headway
}

func Example() {
	state, err := os.MkdirTemp("", "headway-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(state) }()
	c, err := config.Read("headway.yaml", fmt.Appendf(nil, `
listen: 127.0.0.1:0
state: %s
providers: {openai: {api: openai, pass_through: true}}
`, state), os.Getenv)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := daemon.New(c, daemon.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := d.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("serving")
	fmt.Println("stopped:", d.Stop(context.Background()))
	// Output:
	// serving
	// stopped: <nil>
}
