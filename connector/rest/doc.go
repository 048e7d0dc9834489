// Package rest implements a connector for an HTTP API with JSON bodies that is described by
// a YAML file. [Load] reads and checks a file, [New] returns its [connector.Connector], and
// [Describe] describes what a run would do.
//
// Write a connector.Connector in Go for an API whose pages need several requests each,
// whose bodies are not JSON, or whose lists need a method other than GET. The caller does
// pacing, retries, the limit on bodies and the refusal of redirects; a [Config] only holds
// the owner's settings for them.
//
// A Config does not change after it was loaded, and a [Connector] keeps only an OAuth2
// access token between calls. Both are safe for concurrent use. Apart from requests for
// OAuth2 tokens, all requests go through the caller. The package reads no clock; it uses
// the provider's Date header.
//
// Secrets are read when the file is loaded, and held as a [Value], which prints as written
// in the file. No error contains a value from the environment, a body, a header or the key
// of a record.
//
// Stability: stable.
package rest
