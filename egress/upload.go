package egress

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// upload is what is known of a request body that is passed on as it comes.
// net/http may still read it when the answer is there.
type upload struct {
	moved   func() // each read that brought something; set before the body is sent
	n       atomic.Int64
	reading atomic.Bool // the client is waited for
	ended   atomic.Bool // all of it has come
	failed  atomic.Bool // it did not come whole, or not well-formed, from the client
}

// uploaded is the body itself.
type uploaded struct {
	io.ReadCloser
	ctx context.Context // of the attempt
	*upload
}

func (u uploaded) Read(p []byte) (int, error) {
	u.reading.Store(true)
	n, err := u.ReadCloser.Read(p)
	u.reading.Store(false)
	u.n.Add(int64(n))
	if n > 0 && u.moved != nil {
		u.moved()
	}
	switch {
	case errors.Is(err, io.EOF):
		u.ended.Store(true)
	case err != nil && u.ctx.Err() == nil:
		u.failed.Store(true)
	}
	return n, err
}
