package llm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headway-go/headway/llm"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
)

// The request and response types are those of any SDK.
func ExampleGovern() {
	type prompt struct{ text string }
	type answer struct {
		text    string
		in, out int64
	}
	ask := func(_ context.Context, p prompt) (answer, error) {
		return answer{text: strings.ToUpper(p.text), in: 2, out: 2}, nil
	}

	g, err := governor.New(governor.Options{Config: quota.Config{
		Models: map[string]quota.Model{"small": {Limits: quota.Limits{CallsPerMinute: 1}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = g.Close() }() // nothing is stored here
	client, err := llm.Govern(llm.Config[prompt, answer]{
		Client:   llm.Func[prompt, answer](ask),
		Approver: llm.AtOnce(g), // g itself would wait its turn
		Describe: func(p prompt) quota.Request {
			return quota.Request{Model: "small", InputTokens: int64(len(p.text)/4 + 1)}
		},
		Usage: func(a answer) quota.Usage { return quota.Usage{Input: a.in, Output: a.out} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	a, err := client.Complete(context.Background(), prompt{"hello"})
	fmt.Println(a.text, err)
	_, err = client.Complete(context.Background(), prompt{"again"})
	if denial, ok := errors.AsType[*quota.Denial](err); ok {
		fmt.Println(denial.Code, denial.Scope)
	}
	// Output:
	// HELLO <nil>
	// RATE_THROTTLED model small
}
