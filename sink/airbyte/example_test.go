package airbyte_test

import (
	"context"
	"os"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/airbyte"
)

func Example() {
	ctx := context.Background()
	sink := airbyte.New(os.Stdout, airbyte.Options{Now: func() time.Time { return time.UnixMilli(1772600767000) }})
	if err := sink.Open(ctx, nil, []collect.StreamInfo{{Name: "users", KeyField: "id"}}); err != nil {
		panic(err)
	}
	_ = sink.Write(ctx, "users", []collect.Record{{Key: "1", Data: []byte(`{"id":1,"name":"Ada"}`)}})
	position, err := sink.Sync(ctx)
	if err != nil {
		panic(err)
	}
	// The store commits the position here. Only then:
	_ = sink.Committed(ctx, position)
	_ = sink.Close()
	sink.OnEvent(event.Event{Type: event.RunEnd, Reason: reason.Drained})
	// Output:
	// {"type":"TRACE","trace":{"type":"STREAM_STATUS","emitted_at":1772600767000,"stream_status":{"stream_descriptor":{"name":"users"},"status":"STARTED"}}}
	// {"type":"TRACE","trace":{"type":"STREAM_STATUS","emitted_at":1772600767000,"stream_status":{"stream_descriptor":{"name":"users"},"status":"RUNNING"}}}
	// {"type":"RECORD","record":{"stream":"users","data":{"id":1,"name":"Ada"},"emitted_at":1772600767000}}
	// {"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"users"},"stream_state":{"position":1}},"sourceStats":{"recordCount":1.0}}}
	// {"type":"TRACE","trace":{"type":"STREAM_STATUS","emitted_at":1772600767000,"stream_status":{"stream_descriptor":{"name":"users"},"status":"COMPLETE"}}}
}

func ExampleSink_OnEvent() {
	reset := time.UnixMilli(1772600827000)
	sink := airbyte.New(os.Stdout, airbyte.Options{
		Now: func() time.Time { return time.UnixMilli(1772600767000) },
		// A program gives its collector's Live.
		Live: func() (now collect.Live, ok bool) {
			now.Pacing.RetryAt = reset
			return now, true
		},
	})
	if err := sink.Open(context.Background(), nil, []collect.StreamInfo{{Name: "users", KeyField: "id"}}); err != nil {
		panic(err)
	}
	sink.OnEvent(event.Event{Type: event.Phase, Stream: "users"})
	sink.OnEvent(event.Event{Type: event.Deferral, Stream: "users", Reason: reason.RateLimited.Reason(), Count: 7})
	_ = sink.Close()
	// Output:
	// {"type":"TRACE","trace":{"type":"STREAM_STATUS","emitted_at":1772600767000,"stream_status":{"stream_descriptor":{"name":"users"},"status":"STARTED"}}}
	// {"type":"TRACE","trace":{"type":"STREAM_STATUS","emitted_at":1772600767000,"stream_status":{"stream_descriptor":{"name":"users"},"status":"RUNNING","reasons":[{"type":"RATE_LIMITED","rate_limited":{"quota_reset":1772600827000}}]}}}
}
