package events_test

import (
	"fmt"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/quota"
)

// A reader that comes back with an id that is too old learns how much it missed.
func Example() {
	hub, err := events.New(2)
	if err != nil {
		panic(err)
	}
	reader := hub.Read("")
	hub.Connection(event.Event{Type: event.RunStart, Connection: "chat"})
	hub.Quota("openai")(quota.Event{Type: quota.EventThrottle})
	hub.Connection(event.Event{Type: event.RunEnd, Connection: "chat"})
	entries, _, _ := reader.Next()
	for _, e := range entries {
		fmt.Println(e.Type, e.Dropped)
	}
	// Output:
	// dropped 1
	// rate:throttle 0
	// run_end 0
}
