package transport

import (
	"context"

	"github.com/headway-go/headway/internal/wire"
)

// ErrResent says that net/http sent one attempt again and again, each time over
// a new connection.
var ErrResent = wire.ErrResent

// onFewConnections gives a context that ends with [ErrResent] as its cause when
// the request that is sent under it needs too many new connections.
func onFewConnections(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return wire.FewConnections(ctx, cancel, nil), func() { cancel(context.Canceled) }
}
