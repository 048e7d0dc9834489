package jsonl_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/jsonl"
)

func Example() {
	dir, err := os.MkdirTemp("", "headway")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	sink := jsonl.New(dir)
	if err := sink.Open(ctx, nil, nil); err != nil {
		panic(err)
	}
	err = sink.Write(ctx, "messages", []collect.Record{{Key: "1", Data: []byte(`{"id":1}`)}, {Key: "2", Data: []byte(`{"id":2}`)}})
	if err != nil {
		panic(err)
	}
	committed, err := sink.Sync(ctx)
	fmt.Println(string(committed), err)

	// A run that ends here has not committed its last record.
	_ = sink.Write(ctx, "messages", []collect.Record{{Key: "3", Data: []byte(`{"id":3}`)}})
	_, _ = sink.Sync(ctx)
	_ = sink.Close()

	fmt.Println(sink.Open(ctx, committed, nil))
	b, _ := os.ReadFile(filepath.Join(dir, "messages.jsonl"))
	fmt.Print(string(b))
	_ = sink.Close()
	// Output:
	// {"files":{"messages.jsonl":{"length":18,"tail":"c63f6dd68b68601e"}}} <nil>
	// <nil>
	// {"id":1}
	// {"id":2}
}

func ExampleSink_SetAside() {
	dir, err := os.MkdirTemp("", "headway")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "messages.jsonl"), []byte("{}\n"), 0o600); err != nil {
		panic(err)
	}

	paths, err := jsonl.New(dir).SetAside([]string{"messages", "users"}, time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	for _, p := range paths {
		fmt.Println(filepath.Base(p))
	}
	fmt.Println(err)
	// Output:
	// messages.jsonl.20260506T070809Z.bak
	// <nil>
}
