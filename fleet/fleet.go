// Package fleet lets several processes keep one pace on one credential. They share what
// is learned of its limits, so that together they go as fast as one alone would, and are
// refused no more often.
//
// On one machine a [Server] has the pace; headway serve runs one on a socket in its state
// folder. Past one machine the members meet in a Valkey or Redis: one of them has the pace
// for all, and another takes it over when that one is gone. A program that wraps an
// http.Client becomes a member by an option:
//
//	f, err := fleet.Open(ctx, "unix:///var/lib/acme/headway.sock") // or valkey://host:6379
//	client, err := transport.Client(transport.Config{Fleet: f.Member("api.acme.com", key)})
//
// While the server is away each member goes on at its share of the last known rate; with
// ?away=wait after the path it waits instead. Neither the credential nor its hash is
// logged; the server gets a keyed hash alone. Who may open the socket, or may use the
// Valkey, may slow the others down, so let only its owner do that.
//
// Stability: experimental.
package fleet

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/fleet"
	"github.com/headway-go/headway/internal/valkey"
)

// Lease is for how long a member may keep a permit without using it, and how long what a
// killed member held is missing to the others at most.
const Lease = fleet.Lease

// Socket is the name of the server's socket in the state folder of headway serve.
const Socket = "headway.sock"

// ErrAway is what the error of [Open] matches when no server is there.
var ErrAway = errors.New("no server of a fleet is there")

// Fleet is the way to a server. Safe for concurrent use.
type Fleet struct {
	dial  func(context.Context) (net.Conn, error) // to a socket
	place *place                                  // or where members meet
	wait  bool
}

// Open finds a fleet by its URL: unix:///PATH of a server's socket on this machine, or
// valkey://USER:PASSWORD@HOST:PORT/DB of a Valkey or Redis of version 7 or newer, where
// members from any machine meet; valkeys:// is with TLS, and redis:// and rediss:// are the
// same. With ?away=wait members wait while the server is away; ?away=share, the default,
// has them go on at their shares. If no server is there the error matches [ErrAway]: nobody
// could say what share is its own. Errors name host and port, and nothing else of the
// address. The context bounds the search.
func Open(ctx context.Context, address string) (*Fleet, error) {
	u, err := url.Parse(address)
	remote := err == nil && valkey.Has(u.Scheme)
	if err != nil || !remote && (u.Scheme != "unix" || u.Host+u.Path == "") {
		return nil, errors.New("fleet: the address must be unix:///PATH of a socket, or valkey://HOST:PORT")
	}
	f := &Fleet{}
	for name, values := range u.Query() {
		switch {
		case name == "away" && len(values) == 1 && values[0] == "wait":
			f.wait = true
		case name == "away" && len(values) == 1 && values[0] == "share":
		default:
			return nil, errors.New("fleet: after the path may stand away=share or away=wait only")
		}
	}
	if remote {
		return f, f.meet(ctx, u)
	}
	path := u.Host + u.Path
	f.dial = func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
	conn, _, err := greet(ctx, f.dial)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w at %s: %w", ErrAway, path, cause(err))
	}
	return f, conn.Close()
}

// cause leaves out what the message says already.
func cause(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// Member is a way into the fleet for one governor: of all that name the same provider,
// such as its host, and the same credential; "" where the provider asks for none.
func (f *Fleet) Member(provider, credential string) headway.Fleet {
	return &way{fleet: f, provider: provider, credential: credential}
}

// way is the way in for one credential.
type way struct {
	fleet                *Fleet
	provider, credential string
}

// Join begins a membership, which lasts until it is left.
func (w *way) Join(m headway.FleetMember) (headway.FleetWay, bool) {
	ctx, cut := context.WithCancel(context.Background())
	l := &link{
		way: w, member: m, ended: make(chan struct{}), more: make(chan struct{}, 1),
		ctx: ctx, cut: cut, leaving: make(chan struct{}), dial: w.fleet.dial,
	}
	if w.fleet.place != nil {
		l.room = w.fleet.place.enter(w)
		l.dial = l.room.dial
	}
	go l.run()
	return l, w.fleet.wait
}

// key is what the server knows the credential by: nobody can tell the credential from it.
func (w *way) key(salt string) string {
	h := hmac.New(sha256.New, []byte(salt))
	_, _ = fmt.Fprintf(h, "%d\n%s\n%s", len(w.provider), w.provider, w.credential)
	return hex.EncodeToString(h.Sum(nil))
}

// protocol is the version of the messages.
const protocol = 1

// greeting is the server's first line.
type greeting struct {
	Protocol int    `json:"headway_fleet"`
	Salt     string `json:"salt"`
}

// greetTime bounds a greeting: who listens but says nothing is away.
const greetTime = Lease / 2

// greet connects, and takes the server's greeting.
func greet(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, *lines, error) {
	ctx, done := context.WithTimeout(ctx, greetTime)
	defer done()
	conn, err := dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	late := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	from := newLines(conn)
	var g greeting
	if err = from.decode(&g); err == nil && g.Protocol != protocol {
		err = fmt.Errorf("the server speaks version %d of the fleet's language, this program %d", g.Protocol, protocol)
	}
	if !late() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	from.salt = g.Salt
	return conn, from, nil
}
