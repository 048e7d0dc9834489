package api

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed openapi.json
var description []byte

// document is the OpenAPI document, checked to be JSON.
func document() ([]byte, error) {
	if !json.Valid(description) {
		return nil, fmt.Errorf("api: openapi.json is not JSON")
	}
	return description, nil
}
