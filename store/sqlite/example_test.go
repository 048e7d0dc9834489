package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/sqlite"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "headway")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "state.db"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close() }()

	now := time.Now()
	lease, err := s.Acquire(ctx, collect.LeaseRequest{Connection: "chat", Run: "run-1", Holder: "host", Now: now, TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	err = s.Commit(ctx, lease, collect.Commit{
		At: now, Lane: &collect.Lane{Stream: "conversations", Kind: collect.Catchup, Cursor: "page-2"},
		Stream: "conversations", Items: []collect.KnownItem{{Key: "42", Fingerprint: "9f3a"}},
	})
	if err != nil {
		panic(err)
	}

	state, err := s.Load(ctx, "chat")
	fmt.Println(state.Lanes[0].Cursor, err)
	known, err := s.Known(ctx, "chat", "conversations", []string{"42", "43"})
	fmt.Println(len(known), known["42"].Fingerprint, err)

	// Another run takes over an hour later. The first one can no longer write.
	_, err = s.Acquire(ctx, collect.LeaseRequest{Connection: "chat", Run: "run-2", Holder: "host", Now: now.Add(time.Hour), TTL: time.Minute})
	fmt.Println(err)
	fmt.Println(s.Commit(ctx, lease, collect.Commit{At: now}))
	// Output:
	// page-2 <nil>
	// 1 9f3a <nil>
	// <nil>
	// chat: lease_lost
}

func ExampleOpenReader() {
	_, err := sqlite.OpenReader(context.Background(), filepath.Join(os.TempDir(), "never collected", "state.db"))
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output: true
}
