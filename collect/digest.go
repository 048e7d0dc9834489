package collect

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

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

// children is the set of detail records of one item that were written, as
// digests of key and content. It is what keeps a changed item from writing all
// its unchanged records again.
type children map[[16]byte]struct{}

// readChildren reads what encode wrote. A remainder that is no digest is
// dropped: at worst a record is written a second time.
func readChildren(b []byte) children {
	c := make(children, len(b)/16)
	for ; len(b) >= 16; b = b[16:] {
		c[[16]byte(b)] = struct{}{}
	}
	return c
}

// add reports whether the record is new, and remembers it.
func (c children) add(r connector.Record) (isNew bool) {
	d := digest(r)
	if _, ok := c[d]; ok {
		return false
	}
	c[d] = struct{}{}
	return true
}

func digest(r connector.Record) (d [16]byte) {
	h := sha256.New()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(r.Key)))
	_, _ = h.Write(n[:])
	_, _ = h.Write([]byte(r.Key))
	_, _ = h.Write(r.Data)
	copy(d[:], h.Sum(nil))
	return d
}

func (c children) encode() []byte {
	b := make([]byte, 0, len(c)*16)
	for d := range c {
		b = append(b, d[:]...)
	}
	return b
}
