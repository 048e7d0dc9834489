package configfile

import "github.com/goccy/go-yaml"

// Entries is a mapping whose entries stay in their order, for [Write].
type Entries = yaml.MapSlice

// Entry is one of them.
type Entry = yaml.MapItem

// Write is a value as YAML, for a person to put into a file. Structs have the keys of
// their yaml tags.
func Write(v any) ([]byte, error) { return yaml.Marshal(v) }
