package daemon

import (
	"net"
	"sync"
)

// bounded is a listener that lets no more connections in than it has places:
// others wait in the system's queue until one ends.
type bounded struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func bound(l net.Listener, limit int) net.Listener {
	return &bounded{Listener: l, places: make(chan struct{}, limit), closed: make(chan struct{})}
}

// Accept waits for a place first.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{Conn: c, leave: sync.OnceFunc(func() { <-b.places })}, nil
}

// Close also ends a wait for a place.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// placed is a connection that gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	err := p.Conn.Close()
	p.leave()
	return err
}
