package cli

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
)

// open listens. What other machines can reach needs a token: that is decided on
// the address that the name stands for, and it is that address which is opened.
func (p *provision) open(ctx context.Context) (net.Listener, error) {
	host, text, err := net.SplitHostPort(p.listen)
	if err != nil {
		return nil, usage(fmt.Errorf("--listen is %q, must be HOST:PORT such as 127.0.0.1:8080", p.listen))
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, usage(fmt.Errorf("--listen has port %q, must be from 0 to 65535", text))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, usage(fmt.Errorf("--listen: %w", err))
	}
	// As net.Listen does: an IPv4 address when the name has one.
	ip := ips[max(0, slices.IndexFunc(ips, func(ip netip.Addr) bool { return ip.Unmap().Is4() }))].Unmap()
	if p.options.Token == "" && !ip.IsLoopback() {
		return nil, usage(fmt.Errorf("--listen %s can be reached from other machines, so it needs a token: set $%s (or --token), or listen on 127.0.0.1:%d",
			p.listen, tokenVariable, port))
	}
	network := "tcp"
	if ip.Is4() {
		network = "tcp4" // else 0.0.0.0 would open every IPv6 address too
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, netip.AddrPortFrom(ip, uint16(port)).String())
	if err != nil {
		return nil, usage(fmt.Errorf("--listen: %w (port 0 takes a free one)", err))
	}
	return listener, nil
}

// baseURL is where clients on this machine find a listener.
func baseURL(at net.Addr) string {
	host := at.String()
	if a, err := netip.ParseAddrPort(host); err == nil && a.Addr().IsUnspecified() {
		local := netip.IPv6Loopback()
		if a.Addr().Unmap().Is4() {
			local = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		host = netip.AddrPortFrom(local, a.Port()).String()
	}
	return (&url.URL{Scheme: "http", Host: host}).String()
}
