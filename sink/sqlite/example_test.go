package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/sqlite"
	store "github.com/headway-go/headway/store/sqlite"
)

// Example commits two records the way a run does: in the transaction that
// moves the cursor.
func Example() {
	dir, err := os.MkdirTemp("", "headway")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx, path := context.Background(), filepath.Join(dir, "state.db")
	state, err := store.Open(ctx, path)
	if err != nil {
		panic(err)
	}
	defer func() { _ = state.Close() }()
	lease, err := state.Acquire(ctx, collect.LeaseRequest{Connection: "chat", Run: "1", Holder: "me", Now: time.Now(), TTL: time.Minute})
	if err != nil {
		panic(err)
	}

	sink := sqlite.New("chat")
	if err := sink.Open(ctx, nil, []collect.StreamInfo{{Name: "messages"}}); err != nil {
		panic(err)
	}
	err = sink.Write(ctx, "messages", []collect.Record{
		{Key: "1", Data: []byte(`{"id":1,"text":"hello"}`)},
		{Key: "2", Data: []byte(`{"id":2,"likes":12345678901234567890}`)},
	})
	if err != nil {
		panic(err)
	}
	position, err := sink.Sync(ctx)
	if err != nil {
		panic(err)
	}
	err = state.Commit(ctx, lease, collect.Commit{
		At:   time.Now(),
		Lane: &collect.Lane{Stream: "messages", Kind: collect.Catchup, Cursor: "page 2"},
		Sink: position, Within: sink.Pending(),
	})
	fmt.Println(err)

	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, `SELECT id, coalesce(text, '-'), coalesce(likes, '-'), coalesce(_rest, '-') FROM messages`)
	if err != nil {
		panic(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int
		var text, likes, rest string
		if err := rows.Scan(&id, &text, &likes, &rest); err != nil {
			panic(err)
		}
		fmt.Println(id, text, likes, rest)
	}
	fmt.Println(rows.Err())
	// Output:
	// <nil>
	// 1 hello - -
	// 2 - 12345678901234567890 {"likes":12345678901234567890}
	// <nil>
}
