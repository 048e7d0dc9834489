package config_test

import (
	"fmt"
	"os"

	"github.com/headway-go/headway/daemon/config"
)

func ExampleRead() {
	file := `
providers:
  openai:
    api: openai
    key: sk-123
    max_wiat: 15s
`
	_, err := config.Read("headway.yaml", []byte(file), os.Getenv)
	fmt.Println(err)
	// Output:
	// headway.yaml:5:10: providers.openai.key is written out, must be {env: NAME} or {file: PATH}; a secret does not stand in this file
	// headway.yaml:6:5: providers.openai.max_wiat is an unknown field, must be max_wait? The fields here are api, upstream, auth, charge, request_headers, limit_headers, addresses, key, pass_through, call_timeout, response_header_timeout, idle_timeout, dial_timeout, tls_timeout, body_timeout, tls, inject_usage, max_wait, max_body, max_upload, retries, circuit, pacing, quota, unknown_models
}
