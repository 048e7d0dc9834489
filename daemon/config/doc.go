// Package config reads the one YAML file of "headway serve": what is listened
// on, which providers are proxied with whose key and under which budgets, and
// who may call. It answers what the owner wrote down and, if that makes no
// sense, where: file, line, column, field, value and bound, all of it at once.
//
//	listen: 127.0.0.1:8700
//	providers:
//	  openai:
//	    api: openai
//	    key: ${OPENAI_API_KEY}
//	    quota: {global: {calls_per_minute: 60, tokens_per_minute: 20000}}
//
// Secrets never stand in the file: they are ${NAME} or ${file:PATH}, and
// print as that. A budget has the keys of [quota.Config] in lower case with
// underscores; two switches are said positively, adaptive_scaling and forecast, both
// true by default. What the environment says of a budget goes over the one at the
// top and that of the only provider.
//
// The package keeps no state and reads no clock; of files it reads those that
// secrets are in. Its functions are safe for concurrent use.
//
// Stability: settling.
package config
