// Package valkey is the broker of package relay on a Valkey, or a Redis of version 7 or newer.
//
// All keys of a group are in one hash slot and expire. Apart from the stored state they take
// a few hundred bytes. Messages go by sharded publish and subscribe, so they take no memory
// at the server and work where its memory is full.
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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-go/headway/internal/relay"
)

// Client is a connection to one server or a cluster. Safe for concurrent use.
type Client struct {
	c     rueidis.Client
	dials *atomic.Int64 // the connections that were opened
}

// Options are the address of a server and the user to log in as. Make them with [Parse].
type Options struct {
	set     rueidis.ClientOption
	address string
}

// Address returns the server's host and port.
func (o *Options) Address() string { return o.address }

// schemes maps the schemes of an address to whether they use TLS.
var schemes = map[string]bool{"valkey": false, "redis": false, "valkeys": true, "rediss": true}

// Has reports whether [Parse] accepts a scheme.
func Has(scheme string) bool {
	_, ok := schemes[scheme]
	return ok
}

// Timeouts of a connection.
const (
	dialTime   = time.Second
	answerTime = 3 * time.Second // a connection whose server does not answer for this long is closed
)

// Parse parses valkey://user:password@host:port/db. It ignores the query. Errors contain
// neither user nor password.
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
		Dialer: net.Dialer{Timeout: dialTime, KeepAlive: time.Second}, ConnWriteTimeout: answerTime,
		// One connection for everything, and no command is sent twice.
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

// Open connects. It returns within a few seconds.
func Open(o *Options) (*Client, error) {
	dials, set := new(atomic.Int64), o.set
	set.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, secure *tls.Config) (net.Conn, error) {
		dials.Add(1)
		if secure != nil {
			return (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(ctx, "tcp", address)
		}
		return d.DialContext(ctx, "tcp", address)
	}
	c, err := rueidis.NewClient(set)
	if err != nil {
		return nil, plain(err)
	}
	return &Client{c, dials}, nil
}

// Close closes the connection.
func (c *Client) Close() { c.c.Close() }

// ErrRefused matches the error of a server that refuses the user or the password, or what the user
// asks for.
var ErrRefused = errors.New("the server refuses this user or password")

// plain returns an error without the text of a command. It matches [relay.ErrDown] if the
// server is down for all clients.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		word, _, _ := strings.Cut(e.Error(), " ")
		switch word {
		case "LOADING":
			return fmt.Errorf("%w: the server loads its data", relay.ErrDown)
		case "NOAUTH", "WRONGPASS", "NOPERM":
			return fmt.Errorf("%w: %s", ErrRefused, word)
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
		return fmt.Errorf("%w: connection refused", relay.ErrDown)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: the server has ended the connection", relay.ErrDown)
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return errors.New("the server does not answer")
	}
	return err
}

// The keys and channels of a group, all in one slot.
func leader(group string) string { return "headway:{" + group + "}:leader" }
func state(group string) string  { return "headway:{" + group + "}:memory" }
func channel(group, session string) string {
	return "headway:{" + group + "}:to:" + session
}

const salt = "headway:salt"

// Lifetimes of keys after their last use.
const (
	saltTime  = 30 * 24 * time.Hour
	stateTime = 7 * 24 * time.Hour
)

// The scripts are atomic. Those for salt and lease may write where memory is full: they take
// a few hundred bytes for each group, which expire. The state is not written then.
var (
	saltScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
local salt = redis.call('GET', KEYS[1])
if not salt then salt = ARGV[1]; redis.call('SET', KEYS[1], salt) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return salt`)

	acquireScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
local leader = redis.call('GET', KEYS[1])
if not leader then leader = ARGV[1]; redis.call('SET', KEYS[1], leader, 'PX', ARGV[2]) end
return {leader, redis.call('GET', KEYS[2]) or ''}`)

	renewScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

	stateScript = rueidis.NewLuaScript(`#!lua
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1`)

	releaseScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

	deliverScript = rueidis.NewLuaScript(`#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local taken = {}
for i = 2, #KEYS do taken[i-1] = redis.call('SPUBLISH', KEYS[i], ARGV[i+1]) end
return taken`)
)

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Salt implements [relay.Broker], as the methods below do.
func (c *Client) Salt(ctx context.Context, proposed string) (string, error) {
	s, err := saltScript.Exec(ctx, c.c, []string{salt}, []string{proposed, millis(saltTime)}).ToString()
	return s, plain(err)
}

// Leader returns the leader's token.
func (c *Client) Leader(ctx context.Context, group string) (string, error) {
	s, err := c.c.Do(ctx, c.c.B().Get().Key(leader(group)).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return s, plain(err)
}

// Acquire acquires the lease if it is free.
func (c *Client) Acquire(ctx context.Context, group, token string) (string, []byte, error) {
	r, err := acquireScript.Exec(ctx, c.c, []string{leader(group), state(group)}, []string{token, millis(relay.TTL)}).AsStrSlice()
	if err != nil || len(r) != 2 {
		return "", nil, plain(err)
	}
	return r[0], []byte(r[1]), nil
}

// Renew renews the lease and stores a state that is not nil.
func (c *Client) Renew(ctx context.Context, group, token string, data []byte) error {
	n, err := renewScript.Exec(ctx, c.c, []string{leader(group)}, []string{token, millis(relay.TTL)}).AsInt64()
	if err == nil && n == 1 && data != nil {
		n, err = stateScript.Exec(ctx, c.c, []string{leader(group), state(group)}, []string{token, string(data), millis(stateTime)}).AsInt64()
		if e, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(e.Error(), "OOM") {
			return nil // the fleet continues; only after a restart of all members it learns again from the start
		}
	}
	if err == nil && n != 1 {
		return relay.ErrReplaced
	}
	return plain(err)
}

// Release ends the lease.
func (c *Client) Release(ctx context.Context, group, token string) error {
	return plain(releaseScript.Exec(ctx, c.c, []string{leader(group)}, []string{token}).Error())
}

// Send publishes a message to the leader.
func (c *Client) Send(ctx context.Context, group, message string) (int, error) {
	n, err := c.c.Do(ctx, c.c.B().Spublish().Channel(channel(group, "")).Message(message).Build()).AsInt64()
	return int(n), plain(err)
}

// Deliver publishes messages to sessions.
func (c *Client) Deliver(ctx context.Context, group, token string, all []relay.Message) ([]int, error) {
	if len(all) == 0 {
		return nil, nil
	}
	keys, args := make([]string, 1, len(all)+1), make([]string, 2, len(all)+2)
	keys[0], args[0], args[1] = leader(group), token, millis(relay.TTL)
	for i := range all {
		keys, args = append(keys, channel(group, all[i].Session)), append(args, all[i].Text)
	}
	r, err := deliverScript.Exec(ctx, c.c, keys, args).AsIntSlice()
	if err != nil {
		return nil, plain(err)
	}
	if len(r) != len(all) {
		return nil, relay.ErrReplaced
	}
	receivers := make([]int, len(r))
	for i := range r {
		receivers[i] = int(r[i])
	}
	return receivers, nil
}

// Subscribe receives the messages of a channel.
func (c *Client) Subscribe(ctx context.Context, group, session string, ready func(), receive func(string)) error {
	name := channel(group, session)
	once := sync.OnceFunc(ready)
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { once() })
	err := c.c.Receive(hooked, c.c.B().Ssubscribe().Channel(name).Build(), func(m rueidis.PubSubMessage) { receive(m.Message) })
	if ctx.Err() != nil { // the server still has the subscription
		unsubscribe, done := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
		defer done()
		_ = c.c.Do(unsubscribe, c.c.B().Sunsubscribe().Channel(name).Build()).Error()
		return ctx.Err()
	}
	if err == nil {
		err = fmt.Errorf("%w: the subscription has ended", relay.ErrDown)
	}
	return plain(err)
}
