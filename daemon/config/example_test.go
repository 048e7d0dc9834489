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
	// headway.yaml:5:10: providers.openai.key: is written out; want a reference such as ${NAME} or ${file:PATH}: a secret does not stand in the file
	// headway.yaml:6:5: providers.openai.max_wiat: is not a field here: did you mean max_wait?
}
