package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/lockfile"
)

// Folder is the fleet of the processes on this machine that use one folder. One of them runs
// the server, on a socket in the folder, and when it ends another takes over: nothing else
// has to run. Make it with [NewFolder]. Safe for concurrent use.
type Folder struct {
	// Listen opens the socket. Set it before Open. Default: a socket that only the owner of
	// this process can use.
	Listen func(ctx context.Context, path string) (net.Listener, error)

	path  string
	fleet *Fleet

	mu       sync.Mutex
	found    bool    // another process had the server
	server   *Server // nil while another process has it
	listener net.Listener
	lock     *lockfile.Lock
	closed   bool
	serving  sync.WaitGroup
}

// NewFolder returns the fleet of a folder, which must exist and should be for its owner only.
// It is of use after Open.
func NewFolder(dir string) *Folder {
	f := &Folder{Listen: listenSocket, path: filepath.Join(dir, Socket)}
	f.fleet = &Fleet{dial: f.dial}
	return f
}

// Open connects to the process that runs the server, or runs the server in this one. It waits
// up to a second for a process that is starting or ending. After an error other processes
// cannot share the pace, and members in this process share it among themselves.
func (f *Folder) Open(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, greetTime)
	defer done()
	for {
		conn, _, err := greet(ctx, f.dial)
		if err == nil {
			return conn.Close()
		}
		if held, ok := errors.AsType[*lockfile.HeldError](err); ok {
			select {
			case <-time.After(firstPause):
				continue
			case <-ctx.Done():
				err = fmt.Errorf("%s has it, and does not answer", held.Holder())
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.server == nil {
			f.server = NewServer()
			f.server.core.Unpreceded(f.server.now())
		}
		return fmt.Errorf("fleet: the socket %s cannot be used: %w", f.path, cause(err))
	}
}

// dial connects to the server. If it is gone this process takes over.
func (f *Folder) dial(ctx context.Context) (net.Conn, error) {
	if s := f.own(); s != nil {
		return s.connect(), nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", f.path)
	if err == nil {
		f.mu.Lock()
		f.found = true
		f.mu.Unlock()
		return conn, nil
	}
	s, err := f.lead(ctx)
	if err != nil {
		return nil, err
	}
	return s.connect(), nil
}

// own returns the server of this process, nil while another process has it.
func (f *Folder) own() *Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server
}

// lead makes this process run the server, unless another one does.
func (f *Folder) lead(ctx context.Context) (*Server, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, net.ErrClosed
	case f.server != nil:
		return f.server, nil
	}
	lock, err := lockfile.Open(f.path + ".lock")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.path)
	left := err == nil // by a server whose members may still be sending
	var l net.Listener
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		l, err = f.Listen(ctx, f.path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := NewServer()
	switch {
	case f.found:
		s.core.Bereave(1)
	case !left:
		s.core.Unpreceded(s.now())
	}
	f.server, f.listener, f.lock = s, l, lock
	f.serving.Go(func() { s.Serve(l) })
	return s, nil
}

// listenSocket listens on a socket that only the owner of this process can use.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Fleet returns the fleet for members that are in it from the start. [Folder.Member] is faster
// while no other process shares the credential.
func (f *Folder) Fleet() *Fleet { return f.fleet }

// Member returns the membership for one governor, which must leave before Close. See
// [Fleet.Member], and [Server.Local] for the process that runs the server.
func (f *Folder) Member(provider, credential string) headway.Fleet {
	if s := f.own(); s != nil {
		return s.Local(provider, credential)
	}
	return f.fleet.Member(provider, credential)
}

// Show returns the credentials that have members, with their members.
func (f *Folder) Show(ctx context.Context) ([]Credential, error) {
	if s := f.own(); s != nil {
		return s.Show(), nil
	}
	return f.fleet.Show(ctx)
}

// Close ends the server if this process runs it: a member in another process then takes over.
func (f *Folder) Close() (err error) {
	f.mu.Lock()
	s, l, lock := f.server, f.listener, f.lock
	f.closed = true
	f.mu.Unlock()
	if l != nil {
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		err = l.Close()
	}
	if s != nil {
		s.settle()
		s.Close()
	}
	f.serving.Wait()
	if l != nil && s.Members() == 0 { // else the next server must know that there may be some
		if gone := os.Remove(f.path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return err
}

// settle waits until the server has noticed that the members in this process have left. The
// wait is bounded, in case one has not.
func (s *Server) settle() {
	noticed := make(chan struct{})
	go func() {
		s.inside.Wait()
		close(noticed)
	}()
	select {
	case <-noticed:
	case <-time.After(leaveTime):
	}
}

// Local returns the membership for one governor in the server's own process. It paces by
// itself, and at no cost, until another member comes with the same provider and credential;
// from then on both share a pace. It must leave before the server is closed.
func (s *Server) Local(provider, credential string) headway.Fleet {
	return &local{way: way{fleet: s.Fleet(), provider: provider, credential: credential}, server: s}
}

// local is a membership that begins when another member has the same credential.
type local struct {
	way
	server *Server
	key    string
	link   *link
	once   sync.Once
}

// Later reports that the governor paces by itself at first.
func (l *local) Later() bool { return true }

// Join waits for another member, unless there is one.
func (l *local) Join(m headway.FleetMember) (headway.FleetWay, bool) {
	one := &local{way: l.way, server: l.server, key: l.way.key(l.server.salt), link: l.way.link(m)}
	s := l.server
	s.mu.Lock()
	s.locals[one.key] = append(s.locals[one.key], one)
	shared := s.core.Shared(one.key)
	s.mu.Unlock()
	if shared {
		one.begin()
	}
	return one, false
}

// begin connects to the server, once.
func (l *local) begin() { l.once.Do(func() { go l.link.run() }) }

// Send queues a message. It is dropped before the membership has begun.
func (l *local) Send(m headway.FleetMessage) { l.link.Send(m) }

// Leave ends the membership, whether it has begun or not.
func (l *local) Leave() {
	s := l.server
	s.mu.Lock()
	if s.locals[l.key] = slices.DeleteFunc(s.locals[l.key], func(o *local) bool { return o == l }); len(s.locals[l.key]) == 0 {
		delete(s.locals, l.key)
	}
	s.mu.Unlock()
	l.once.Do(func() { close(l.link.ended) }) // it never ran
	l.link.Leave()
}
