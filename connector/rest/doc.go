// Package rest makes a connector out of a YAML file: it answers what there is
// to collect from an HTTP API with JSON bodies, how each page and each detail
// is asked for, and what the responses mean. [Load] reads and checks a file,
// [New] turns the result into a [connector.Connector], [Describe] tells what a
// run would do.
//
// Do not use it for an API whose pages need more than one request each, whose
// bodies are not JSON, or whose lists need anything but GET: write a
// connector.Connector in Go for those. Pacing, retries, the bound on a body
// and the refusal of redirects are the caller's: a [Config] only carries the
// owner's numbers for them.
//
// A Config is not changed after it was loaded and a [Connector] keeps nothing
// between calls but an OAuth2 access token; both are safe for concurrent use.
// No function here waits, but for the token endpoint of an OAuth2 provider.
// Instants are taken from the provider's Date header only.
//
// Secrets are read when the file is loaded and held as [Value], which prints
// as it was written in the file. No error shows a value that came from the
// environment, a body, a header or a record's key.
//
// Stability: stable.
package rest
