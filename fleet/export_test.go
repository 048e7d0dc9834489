package fleet

import (
	"context"
	"net"

	"github.com/headway-go/headway/internal/meeting"
)

// NewFleet is one that is dialled by a function.
func NewFleet(dial func(context.Context) (net.Conn, error), wait bool) *Fleet {
	return &Fleet{dial: dial, wait: wait}
}

// Key is what the server knows a member's credential by.
func Key(f *Fleet, provider, credential, salt string) string {
	return f.Member(provider, credential).(*way).key(salt)
}

// Dial connects as far as the greeting, Conn as far as the connection.
func Dial(ctx context.Context, f *Fleet) (net.Conn, error) {
	conn, _, err := greet(ctx, f.dial)
	return conn, err
}

// Conn is without the greeting.
func Conn(ctx context.Context, f *Fleet) (net.Conn, error) { return f.dial(ctx) }

// NewMeeting is one whose members meet in a place.
func NewMeeting(c interface {
	meeting.Place
	Close()
}, wait bool,
) *Fleet {
	return &Fleet{place: &place{open: func() (client, error) { return c, nil }}, wait: wait}
}
