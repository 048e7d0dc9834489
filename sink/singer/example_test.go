package singer_test

import (
	"context"
	"os"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/singer"
)

func Example() {
	ctx := context.Background()
	sink := singer.New(os.Stdout)
	if err := sink.Open(ctx, nil, []collect.StreamInfo{{Name: "users", KeyField: "id"}}); err != nil {
		panic(err)
	}
	_ = sink.Write(ctx, "users", []collect.Record{{Key: "1", Data: []byte(`{"id":1,"name":"Ada"}`)}})
	_ = sink.Write(ctx, "users", []collect.Record{{Key: "2", Data: []byte(`{"id":2,"name":"Grace","age":40}`)}})
	position, err := sink.Sync(ctx)
	if err != nil {
		panic(err)
	}
	// The store commits the position here. Only then:
	_ = sink.Committed(ctx, position)
	_ = sink.Close()
	// Output:
	// {"type":"SCHEMA","stream":"users","schema":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":["null","string"]}},"required":["id"]},"key_properties":["id"]}
	// {"type":"RECORD","stream":"users","record":{"id":1,"name":"Ada"}}
	// {"type":"SCHEMA","stream":"users","schema":{"type":"object","properties":{"age":{"type":["null","integer"]},"id":{"type":"integer"},"name":{"type":["null","string"]}},"required":["id"]},"key_properties":["id"]}
	// {"type":"RECORD","stream":"users","record":{"id":2,"name":"Grace","age":40}}
	// {"type":"STATE","value":{"bookmarks":{"users":{"position":2}}}}
}
