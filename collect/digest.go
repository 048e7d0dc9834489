package collect

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/headway-go/headway/connector"
)

// fingerprint tells versions of an item apart.
func fingerprint(it connector.Item) string {
	if it.Fingerprint != "" {
		return it.Fingerprint
	}
	sum := sha256.Sum256(it.Data)
	return hex.EncodeToString(sum[:16])
}

// children remembers the detail records of one item as they were last written:
// a digest of the content for each key. It keeps a changed item from writing
// its unchanged records again, and tells which are no longer there.
type children struct {
	last map[string]digest // content by key
	// hashed says that the keys are digests of keys, as version 1 had them.
	hashed bool
	// vague says that there were records, and that nobody knows which: they were
	// remembered by an earlier version.
	vague bool
}

type digest [16]byte

// An encoding begins with its version. Version 1 has digests of keys, 2 the keys;
// what begins otherwise is earlier, and its length is a multiple of 16.
const (
	hashedVersion   = 1
	childrenVersion = 2
)

// readChildren reads what encode wrote. What it cannot read is not known: at
// worst a record is written a second time.
func readChildren(b []byte) children {
	c := children{last: map[string]digest{}}
	const size = len(digest{})
	switch {
	case len(b) == 0:
		return c
	case b[0] == hashedVersion && len(b)%(2*size) == 1:
		c.hashed = len(b) > 1
		for b = b[1:]; len(b) > 0; b = b[2*size:] {
			c.last[string(b[:size])] = digest(b[size:])
		}
		return c
	case b[0] == childrenVersion:
		for b = b[1:]; len(b) > 0; {
			n, width := binary.Uvarint(b)
			if width <= 0 || n > uint64(len(b)) || uint64(len(b)) < uint64(width)+n+uint64(size) {
				return children{last: map[string]digest{}, vague: true}
			}
			key := b[width:][:n]
			b = b[width+int(n):]
			c.last[string(key)], b = digest(b), b[size:]
		}
		return c
	}
	c.vague = true
	return c
}

// update takes the item's records of now. It gives those to write, in their
// order, the keys that were there and are gone, and how many those are: of an
// earlier version they are not known. Several records with one key are one
// content: all of them are written when one of them changed.
func (c *children) update(records []connector.Record) (changed []connector.Record, gone []string, n int64) {
	type version struct {
		key     string
		content digest
	}
	now := make(map[string]digest, len(records))
	seen := make(map[version]bool, len(records))
	again := make([]bool, len(records)) // repetitions, which are not written
	for i, r := range records {
		content := sum(r.Data)
		if again[i] = seen[version{r.Key, content}]; again[i] {
			continue
		}
		seen[version{r.Key, content}] = true
		if before, ok := now[r.Key]; ok {
			content = sum(before[:], content[:])
		}
		now[r.Key] = content
	}
	there := make(map[string]bool, len(now))
	for i, r := range records {
		key := r.Key
		if c.hashed {
			hash := sum([]byte(key))
			key = string(hash[:])
		}
		there[key] = true
		if again[i] {
			continue
		}
		if content, ok := c.last[key]; !ok || content != now[r.Key] {
			changed = append(changed, r)
		}
	}
	for key := range c.last {
		if there[key] {
			continue
		}
		n++
		if !c.hashed {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	c.last, c.hashed = now, false
	return changed, gone, n
}

func sum(parts ...[]byte) (d digest) {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(p)
	}
	copy(d[:], h.Sum(nil))
	return d
}

// encode is the same for the same children.
func (c children) encode() []byte {
	b := []byte{childrenVersion}
	for _, key := range slices.Sorted(maps.Keys(c.last)) {
		content := c.last[key]
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(append(b, key...), content[:]...)
	}
	return b
}

// has reports whether the item has a record of that key; meaningless when vague.
func (c *children) has(key string) bool {
	if c.hashed {
		hash := sum([]byte(key))
		key = string(hash[:])
	}
	_, ok := c.last[key]
	return ok
}
