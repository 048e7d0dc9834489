package quota

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// MaxPatch is how large a patch may be, in bytes.
const MaxPatch = 1 << 20

// Canonical is the configuration as canonical JSON: resolved, keys in a fixed
// order, no white space. Only a resolved configuration has one meaning.
func (c Config) Canonical() ([]byte, error) {
	c, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	// Through a generic value: every object's keys come out sorted, whatever
	// the order of fields here.
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := decode(raw, &tree); err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// Digest is the SHA-256 of the canonical JSON, in hexadecimal.
func (c Config) Digest() (string, error) {
	b, err := c.Canonical()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hexadecimal(sum[:]), nil
}

func hexadecimal(b []byte) string { return hex.EncodeToString(b) }

// Patched is the configuration with a JSON merge patch (RFC 7396) applied, whole
// and validated: null removes, objects merge, everything else replaces. An
// unknown field is an error. The receiver is not changed.
func (c Config) Patched(patch []byte) (Config, error) {
	if len(patch) > MaxPatch {
		return c, &FieldError{"patch", fmt.Sprintf("%d bytes", len(patch)), fmt.Sprintf("at most %d", MaxPatch)}
	}
	var change any
	if err := decode(patch, &change); err != nil {
		return c, fmt.Errorf("quota: patch: %w", &FieldError{"patch", "not JSON (" + err.Error() + ")", "one JSON object"})
	}
	fields, ok := change.(map[string]any)
	if !ok {
		return c, &FieldError{"patch", fmt.Sprintf("a JSON %T", change), "one JSON object"}
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return c, fmt.Errorf("quota: %w", err)
	}
	var tree map[string]any
	if err := decode(raw, &tree); err != nil {
		return c, fmt.Errorf("quota: %w", err)
	}
	raw, err = json.Marshal(merged(tree, fields))
	if err != nil {
		return c, fmt.Errorf("quota: patch: %w", err)
	}
	next := Config{LoadZone: c.LoadZone}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&next); err != nil {
		return c, fmt.Errorf("quota: patch: %w", &FieldError{"patch", err.Error(), "known fields with values of their types"})
	}
	next, err = next.Resolve()
	if err != nil {
		return c, err
	}
	return next, nil
}

// decode reads exactly one JSON value, numbers as they are written.
func decode(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() || d.InputOffset() != int64(len(bytes.TrimRight(b, " \t\r\n"))) {
		return fmt.Errorf("more than one value")
	}
	return nil
}

func merged(tree, change map[string]any) map[string]any {
	if tree == nil {
		tree = map[string]any{}
	}
	for name, value := range change {
		switch value := value.(type) {
		case nil:
			delete(tree, name)
		case map[string]any:
			below, _ := tree[name].(map[string]any)
			tree[name] = merged(below, value)
		default:
			tree[name] = value
		}
	}
	return tree
}
