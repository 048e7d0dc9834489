package egress

import (
	"context"
	"net"
)

// DialThrough has the proxy's own transport dial otherwise.
func DialThrough(p *Proxy, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	p.transport.DialContext = dial
	p.transport.Proxy = nil
}
