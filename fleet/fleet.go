// Package fleet lets several processes share one pace on one credential. They share what
// is learned of its limits, so that together they go as fast as one alone would, and are
// refused no more often.
//
// On one machine a [Server] grants the permits; headway serve runs one on a socket in its
// state folder. Members on several machines connect to a Valkey or Redis instead: one of
// them is elected and runs the server for all, and when it ends another is elected. A
// program that wraps an http.Client becomes a member by an option:
//
//	f, err := fleet.Open(ctx, "unix:///var/lib/acme/headway.sock") // or valkey://host:6379
//	client, err := transport.Client(transport.Config{Fleet: f.Member("api.acme.com", key)})
//
// While the server is away each member continues at its share of the last known rate; with
// ?away=wait after the path it waits instead. The server gets a keyed hash of the
// credential, and neither of them is logged. A process that may open the socket, or use
// the Valkey, can slow the members down: give that right to their owner only.
//
// Stability: experimental.
package fleet

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/fleet"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/internal/valkey"
)

// Lease is how long a permit may stay unused. The permits of a member that was killed are
// free again after it.
const Lease = fleet.Lease

// Socket is the name of the server's socket in the state folder of headway serve.
const Socket = "headway.sock"

// ErrAway matches the error of [Open] if there is no server, and ErrRefused as well if there is
// one that refuses the user or the password.
var (
	ErrAway    = errors.New("no server of a fleet is there")
	ErrRefused = valkey.ErrRefused
)

// Fleet is the address of a fleet's server. Safe for concurrent use.
type Fleet struct {
	dial   func(context.Context) (net.Conn, error) // connects to a socket
	broker *broker                                 // or a Valkey
	wait   bool
}

// Open returns the fleet at a URL: unix:///PATH of a server's socket on this machine, or
// valkey://USER:PASSWORD@HOST:PORT/DB of a Valkey or Redis of version 7 or newer, for
// members on any machine; valkeys:// is with TLS, and redis:// and rediss:// mean the same.
//
// With ?away=share, the default, members continue at their shares while the server is away;
// with ?away=wait they wait. If there is no server now, the error matches [ErrAway]. The fleet
// is returned all the same: its members wait for the server, since they do not know their
// shares yet. Errors name host and port and nothing else of the
// address. The context bounds the call.
func Open(ctx context.Context, address string) (*Fleet, error) {
	u, f, err := parse(address)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "unix":
		return f, f.useValkey(ctx, u)
	}
	path := u.Host + u.Path
	f.dial = func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
	conn, _, err := greet(ctx, f.dial)
	if err != nil {
		return f, fmt.Errorf("fleet: %w at %s: %w", ErrAway, path, cause(err))
	}
	return f, conn.Close()
}

// Check reports what is wrong with an address that [Open] cannot use. It connects to nothing.
func Check(address string) error {
	u, _, err := parse(address)
	if err == nil && u.Scheme != "unix" {
		if _, err = valkey.Parse(u); err != nil {
			err = fmt.Errorf("fleet: %w", err)
		}
	}
	return err
}

// parse reads the address of a server.
func parse(address string) (*url.URL, *Fleet, error) {
	u, err := url.Parse(address)
	if err != nil || !valkey.Has(u.Scheme) && (u.Scheme != "unix" || u.Host+u.Path == "") {
		return nil, nil, errors.New("fleet: the address must be unix:///PATH of a socket, or valkey://HOST:PORT")
	}
	f := &Fleet{}
	for name, values := range u.Query() {
		switch {
		case name == "away" && len(values) == 1 && values[0] == "wait":
			f.wait = true
		case name == "away" && len(values) == 1 && values[0] == "share":
		default:
			return nil, nil, errors.New("fleet: after the path may stand away=share or away=wait only")
		}
	}
	return u, f, nil
}

// cause returns the cause of a network error, without the address that it repeats.
func cause(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// Credential is a shared credential and its members, and Member one membership, as they are
// shown. Neither says which credential it is.
type (
	Credential = fleet.Credential
	Member     = fleet.Member
)

// Show returns the credentials that have members at the server of a socket. For a Valkey it
// is an error, since no process knows all of them. If there is no server the error matches
// [ErrAway].
func (f *Fleet) Show(ctx context.Context) (all []Credential, err error) {
	if f.dial == nil {
		return nil, errors.New("fleet: only a server on a socket can list members")
	}
	conn, from, err := greet(ctx, f.dial)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w: %w", ErrAway, cause(err))
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(greetTime))
	if err = json.NewEncoder(conn).Encode(pacing.ToServer{Show: true}); err == nil {
		err = from.decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: the server does not list its members: %w", err)
	}
	return all, nil
}

// Member returns the membership for one governor, for headway.Config.Fleet. Members with the
// same provider, such as its host, and the same credential share a pace; the credential is
// "" if the provider asks for none.
func (f *Fleet) Member(provider, credential string) headway.Fleet {
	return &way{fleet: f, provider: provider, credential: credential}
}

// way is the membership for one credential, before a governor joins.
type way struct {
	fleet                *Fleet
	provider, credential string
}

// FailClosed returns the fleet for members that wait while the server is away, as with
// ?away=wait.
func (f *Fleet) FailClosed() *Fleet {
	return &Fleet{dial: f.dial, broker: f.broker, wait: true}
}

// Join starts the membership of a governor.
func (w *way) Join(m headway.FleetMember) (headway.FleetWay, bool) {
	l := w.link(m)
	go l.run()
	return l, w.fleet.wait
}

// link makes a membership that has not begun.
func (w *way) link(m headway.FleetMember) *link {
	ctx, cut := context.WithCancel(context.Background())
	l := &link{
		way: w, member: m, ended: make(chan struct{}), more: make(chan struct{}, 1),
		ctx: ctx, cut: cut, leaving: make(chan struct{}), dial: w.fleet.dial,
	}
	if w.fleet.broker != nil {
		l.group = w.fleet.broker.group(w)
		l.dial = l.group.dial
	}
	return l
}

// key returns the keyed hash that stands for the credential at the server.
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

// greetTime bounds a greeting: a server that accepts a connection but sends nothing counts as
// away.
const greetTime = Lease / 2

// greet connects and reads the server's greeting.
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
		err = fmt.Errorf("the server has version %d of the fleet's protocol, this program %d", g.Protocol, protocol)
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
