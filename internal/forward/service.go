package forward

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/ca"
)

// ErrListen is returned by [Open], wrapped, when the proxy cannot listen on its address.
var ErrListen = errors.New("no proxy can be opened")

// Defaults of a proxy, and the bounds of what an owner may set.
const (
	DefaultAddress = "127.0.0.1:8701"
	DefaultWait    = 15 * time.Minute // [Options.MaxWait]
	DefaultOutage  = time.Minute      // [Options.MaxOutage]

	MinWait    = time.Second // of both
	MaxWait    = 24 * time.Hour
	MinCeiling = time.Millisecond
	MaxCeiling = 24 * time.Hour
)

// Loopback reports whether HOST:PORT is an address of this machine alone.
func Loopback(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	at, bad := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || bad == nil && at.IsLoopback())
}

// IsMethod reports whether a text can be one of [Options.Resend], in capitals.
func IsMethod(text string) bool {
	return text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// Setup is what [Open] needs.
type Setup struct {
	// Options configure the proxy. Open sets Issuer and Password.
	Options
	// Authority is the state folder of the certificate authority. See [UserFolder].
	Authority string
	// Address is the address to listen on, which must be of this machine alone. With port 0
	// a free one is taken.
	Address string
	// Files is an existing folder, in which Open writes the files that the variables of
	// programs name.
	Files string
	// Getenv returns the variables that programs have so far. It must be set.
	Getenv func(string) string
}

// Service is a proxy that listens. Make one with [Open]; [Proxy.Close] ends it.
type Service struct {
	*Proxy
	// At is what programs have to know of it.
	At Environment
	// Until is the end of the validity of the certificate authority.
	Until time.Time
	// Ended receives the error of the listener, or nil after Close.
	Ended <-chan error
}

// Open makes a proxy and listens. The error matches [ErrListen] or [ca.ErrExpired], or is an
// [*UnreadableError], or says what is wrong with the authority or the folder.
func Open(ctx context.Context, s Setup) (*Service, error) {
	authority, err := ca.Open(ctx, s.Authority)
	if err != nil {
		return nil, err
	}
	hosts := s.Hosts
	if s.All {
		hosts = nil
	}
	if s.Issuer, err = authority.For(hosts); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrListen, err)
	}
	s.Password = rand.Text()
	at := Environment{Address: l.Addr().String(), Password: s.Password, Folder: s.Files, Hosts: hosts}
	if err := at.Write(s.Issuer.PEM(), s.Getenv); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	ended := make(chan error, 1)
	of := &Service{Proxy: New(s.Options), At: at, Until: s.Issuer.Until(), Ended: ended}
	go func() { ended <- of.Serve(l) }()
	return of, nil
}

// UserFolder returns the state folder of the user, which does not depend on where a command is
// run: $XDG_STATE_HOME/headway, or ~/.local/state/headway.
func UserFolder(getenv func(string) string) (string, error) {
	if at := getenv("XDG_STATE_HOME"); filepath.IsAbs(at) {
		return filepath.Join(at, "headway"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no home folder to keep the certificate authority in: %w", err)
	}
	return filepath.Join(home, ".local", "state", "headway"), nil
}
