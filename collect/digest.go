package collect

import (
	"bytes"
	"crypto/sha256"
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
// its unchanged records again, and notices what is no longer there.
type children struct {
	last map[digest]digest // content by key
	// vague says that there were records, and that nobody knows which: they were
	// remembered by an earlier version.
	vague bool
}

type digest [16]byte

// childrenVersion begins an encoding; what does not begin so is of an earlier
// version, whose length is a multiple of 16.
const childrenVersion = 1

// readChildren reads what encode wrote. What it cannot read is not known: at
// worst a record is written a second time.
func readChildren(b []byte) children {
	c := children{last: map[digest]digest{}}
	const each = 2 * len(digest{})
	if len(b)%each != 1 || b[0] != childrenVersion {
		c.vague = len(b) > 0
		return c
	}
	for b = b[1:]; len(b) > 0; b = b[each:] {
		c.last[digest(b)] = digest(b[each/2:])
	}
	return c
}

// update takes the item's records of now. It gives those to write, in their
// order, and how many keys that were there are gone. Several records with one
// key are one content: all of them are written when one of them changed.
func (c *children) update(records []connector.Record) (changed []connector.Record, gone int64) {
	now := make(map[digest]digest, len(records))
	seen := make(map[[2]digest]bool, len(records))
	keys := make([]digest, len(records)) // zero for a repetition, which is not written
	for i, r := range records {
		key, content := sum([]byte(r.Key)), sum(r.Data)
		if seen[[2]digest{key, content}] {
			continue
		}
		seen[[2]digest{key, content}] = true
		if before, ok := now[key]; ok {
			content = sum(before[:], content[:])
		}
		keys[i], now[key] = key, content
	}
	for i, r := range records {
		if keys[i] == (digest{}) {
			continue
		}
		if content, ok := c.last[keys[i]]; !ok || content != now[keys[i]] {
			changed = append(changed, r)
		}
	}
	for key := range c.last {
		if _, ok := now[key]; !ok {
			gone++
		}
	}
	c.last = now
	return changed, gone
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
	b := make([]byte, 0, 1+2*len(digest{})*len(c.last))
	b = append(b, childrenVersion)
	for _, key := range slices.SortedFunc(maps.Keys(c.last), func(a, b digest) int { return bytes.Compare(a[:], b[:]) }) {
		content := c.last[key]
		b = append(append(b, key[:]...), content[:]...)
	}
	return b
}
