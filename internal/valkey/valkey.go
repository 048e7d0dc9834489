// Package valkey is the way to a Valkey, or a Redis of version 7 or newer: the place where
// the members of a fleet meet, as package meeting wants it.
//
// All keys of a credential are in one hash slot, expire, and are a few hundred bytes but
// for what was learned. What is said goes by sharded publish and subscribe, so it takes no
// memory at the server, and goes on where that is full.
package valkey

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-go/headway/internal/meeting"
)

// Client is a connection with one server, or a cluster. Safe for concurrent use.
type Client struct{ c rueidis.Client }

// Options say where the server is, and who comes. Make them with [Parse].
type Options struct {
	set     rueidis.ClientOption
	address string
}

// Address is the server's host and port.
func (o *Options) Address() string { return o.address }

// Schemes of an address: the ones that end with s are of TLS.
var schemes = map[string]bool{"valkey": false, "redis": false, "valkeys": true, "rediss": true}

// Has reports whether a scheme is one of this package's.
func Has(scheme string) bool {
	_, ok := schemes[scheme]
	return ok
}

// Times of a connection.
const (
	dialTime = time.Second
	saysTime = 3 * time.Second // within which the server answers, or the connection is given up
)

// Parse reads valkey://user:password@host:port/db. Errors say nothing of who comes. The
// query is not this package's.
func Parse(u *url.URL) (*Options, error) {
	secure, ok := schemes[u.Scheme]
	host, port := u.Hostname(), u.Port()
	db, err := 0, error(nil)
	if path := strings.Trim(u.Path, "/"); path != "" {
		db, err = strconv.Atoi(path)
	}
	if !ok || host == "" || err != nil || db < 0 || u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("the address of a server must be valkey://HOST:PORT/DB, valkeys:// with TLS")
	}
	if port == "" {
		port = "6379"
	}
	o := &Options{address: net.JoinHostPort(host, port)}
	o.set = rueidis.ClientOption{
		InitAddress: []string{o.address}, SelectDB: db, ClientName: "headway",
		Dialer: net.Dialer{Timeout: dialTime, KeepAlive: time.Second}, ConnWriteTimeout: saysTime,
		// One connection for all, and nothing is said twice.
		PipelineMultiplex: -1, AlwaysPipelining: true, DisableRetry: true, DisableCache: true,
		ClientSetInfo:      rueidis.DisableClientSetInfo,
		RingScaleEachConn:  8,
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10,
	}
	if u.User != nil {
		o.set.Username = u.User.Username()
		o.set.Password, _ = u.User.Password()
	}
	if secure {
		o.set.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	}
	return o, nil
}

// Open connects. It takes a few seconds at most.
func Open(o *Options) (*Client, error) {
	c, err := rueidis.NewClient(o.set)
	if err != nil {
		return nil, plain(err)
	}
	return &Client{c}, nil
}

// Close ends the connection.
func (c *Client) Close() { c.c.Close() }

// plain gives an error without anything of a command, and says what it means to a meeting.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		word, _, _ := strings.Cut(e.Error(), " ")
		switch word {
		case "LOADING":
			return fmt.Errorf("%w: the server loads its data", meeting.ErrGone)
		case "NOAUTH", "WRONGPASS", "NOPERM":
			return errors.New("the server refuses this user or password: " + word)
		case "READONLY", "MASTERDOWN":
			return errors.New("the server is a replica: " + word)
		case "OOM", "CLUSTERDOWN", "NOREPLICAS", "MISCONF", "BUSY":
			return errors.New("the server answers " + word)
		}
		return errors.New("the server answers with an error: " + word)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: connection refused", meeting.ErrGone)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: the server has ended the connection", meeting.ErrGone)
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return errors.New("the server says nothing")
	}
	return err
}

// The keys and channels of a room, all in one slot.
func leader(room string) string { return "headway:{" + room + "}:leader" }
func memory(room string) string { return "headway:{" + room + "}:memory" }
func channel(room, session string) string {
	return "headway:{" + room + "}:to:" + session
}

const salt = "headway:salt"

// How long keys stay that nobody uses any more.
const (
	saltTime   = 30 * 24 * time.Hour
	memoryTime = 7 * 24 * time.Hour
)

// Scripts are atomic. What keeps members together may be written where memory is full: it
// is a few hundred bytes for each credential, and it expires.
var (
	saltScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
local salt = redis.call('GET', KEYS[1])
if not salt then salt = ARGV[1]; redis.call('SET', KEYS[1], salt) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return salt`)

	leadScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
local leader = redis.call('GET', KEYS[1])
if not leader then leader = ARGV[1]; redis.call('SET', KEYS[1], leader, 'PX', ARGV[2]) end
return {leader, redis.call('GET', KEYS[2]) or ''}`)

	renewScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

	keepScript = rueidis.NewLuaScript(`#!lua
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1`)

	releaseScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

	tellScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local taken = {}
for i = 2, #KEYS do taken[i-1] = redis.call('SPUBLISH', KEYS[i], ARGV[i+1]) end
return taken`)
)

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Salt is as package meeting says, and so are the others.
func (c *Client) Salt(ctx context.Context, proposed string) (string, error) {
	s, err := saltScript.Exec(ctx, c.c, []string{salt}, []string{proposed, millis(saltTime)}).ToString()
	return s, plain(err)
}

// Leader gives the token of who leads.
func (c *Client) Leader(ctx context.Context, room string) (string, error) {
	s, err := c.c.Do(ctx, c.c.B().Get().Key(leader(room)).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return s, plain(err)
}

// Lead takes the lead if nobody has it.
func (c *Client) Lead(ctx context.Context, room, token string) (string, []byte, error) {
	r, err := leadScript.Exec(ctx, c.c, []string{leader(room), memory(room)}, []string{token, millis(meeting.TTL)}).AsStrSlice()
	if err != nil || len(r) != 2 {
		return "", nil, plain(err)
	}
	return r[0], []byte(r[1]), nil
}

// Renew renews the lease.
func (c *Client) Renew(ctx context.Context, room, token string, keep []byte) error {
	n, err := renewScript.Exec(ctx, c.c, []string{leader(room)}, []string{token, millis(meeting.TTL)}).AsInt64()
	if err == nil && n == 1 && keep != nil {
		n, err = keepScript.Exec(ctx, c.c, []string{leader(room), memory(room)}, []string{token, string(keep), millis(memoryTime)}).AsInt64()
		if e, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(e.Error(), "OOM") {
			return nil // the fleet goes on all the same, and a whole fleet that restarts learns from the start
		}
	}
	if err == nil && n != 1 {
		return meeting.ErrReplaced
	}
	return plain(err)
}

// Release ends the lease.
func (c *Client) Release(ctx context.Context, room, token string) error {
	return plain(releaseScript.Exec(ctx, c.c, []string{leader(room)}, []string{token}).Error())
}

// Say passes a message on to the leader.
func (c *Client) Say(ctx context.Context, room, message string) (int, error) {
	n, err := c.c.Do(ctx, c.c.B().Spublish().Channel(channel(room, "")).Message(message).Build()).AsInt64()
	return int(n), plain(err)
}

// Tell passes messages on to sessions.
func (c *Client) Tell(ctx context.Context, room, token string, all []meeting.Message) ([]int, error) {
	if len(all) == 0 {
		return nil, nil
	}
	keys, args := make([]string, 1, len(all)+1), make([]string, 2, len(all)+2)
	keys[0], args[0], args[1] = leader(room), token, millis(meeting.TTL)
	for i := range all {
		keys, args = append(keys, channel(room, all[i].Session)), append(args, all[i].Text)
	}
	r, err := tellScript.Exec(ctx, c.c, keys, args).AsIntSlice()
	if err != nil {
		return nil, plain(err)
	}
	if len(r) != len(all) {
		return nil, meeting.ErrReplaced
	}
	taken := make([]int, len(r))
	for i := range r {
		taken[i] = int(r[i])
	}
	return taken, nil
}

// Listen hears what is said on a channel.
func (c *Client) Listen(ctx context.Context, room, session string, ready func(), hear func(string)) error {
	name := channel(room, session)
	once := sync.OnceFunc(ready)
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { once() })
	err := c.c.Receive(hooked, c.c.B().Ssubscribe().Channel(name).Build(), func(m rueidis.PubSubMessage) { hear(m.Message) })
	if ctx.Err() != nil { // the server still has it
		bye, done := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
		defer done()
		_ = c.c.Do(bye, c.c.B().Sunsubscribe().Channel(name).Build()).Error()
		return ctx.Err()
	}
	if err == nil {
		err = fmt.Errorf("%w: the subscription has ended", meeting.ErrGone)
	}
	return plain(err)
}
