package parquet_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	reader "github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/parquet"
)

func Example() {
	dir, err := os.MkdirTemp("", "headway")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	sink := parquet.New(dir)
	streams := []collect.StreamInfo{{Name: "messages"}}
	if err := sink.Open(ctx, nil, streams); err != nil {
		panic(err)
	}
	err = sink.Write(ctx, "messages", []collect.Record{
		{Key: "1", Data: []byte(`{"id":1,"text":"hello"}`)},
		{Key: "2", Data: []byte(`{"id":2,"text":null}`)},
	})
	if err != nil {
		panic(err)
	}
	committed, err := sink.Sync(ctx)
	fmt.Println(string(committed), err)
	fmt.Println(sink.Close())

	type message struct {
		Key  string  `parquet:"_key"`
		Text *string `parquet:"text"`
		Rest *string `parquet:"_rest"`
	}
	messages, err := reader.ReadFile[message](filepath.Join(dir, "messages", "part-000001.parquet"))
	if err != nil {
		panic(err)
	}
	fmt.Println(messages[0].Key, *messages[0].Text)
	fmt.Println(messages[1].Key, *messages[1].Rest)
	// Output:
	// {"streams":{"messages":{"part":1,"spool":63}}} <nil>
	// <nil>
	// 1 hello
	// 2 {"text":null}
}

func ExampleSink_SetAside() {
	dir, err := os.MkdirTemp("", "headway")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Mkdir(filepath.Join(dir, "messages"), 0o700); err != nil {
		panic(err)
	}

	paths, err := parquet.New(dir).SetAside([]string{"messages", "users"}, time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	for _, p := range paths {
		fmt.Println(filepath.Base(p))
	}
	fmt.Println(err)
	// Output:
	// messages.20260506T070809Z.bak
	// <nil>
}
