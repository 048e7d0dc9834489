package event_test

import (
	"fmt"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

func ExampleRecorder() {
	recorder := event.NewRecorder(2)
	recorder.Add(event.Event{Type: event.RunStart})
	recorder.Add(event.Event{Type: event.Deferral, Reason: reason.RateLimited.Reason(), Count: 3})
	recorder.Add(event.Event{Type: event.RunEnd, Reason: reason.RateLimited.Reason()})
	for _, e := range recorder.Events() {
		fmt.Println(e.Seq, e.Type, e.Reason, e.Count)
	}
	fmt.Println("dropped:", recorder.Dropped())
	// Output:
	// 2 deferral rate_limited 3
	// 3 run_end rate_limited 0
	// dropped: 1
}

// A reader comes back with the last Seq that it saw.
func ExampleRecorder_Since() {
	var recorder event.Recorder
	seen := int64(0)
	read := func() {
		for _, e := range recorder.Since(seen) {
			if e.Seq > seen+1 {
				fmt.Println("missed", e.Seq-seen-1)
			}
			seen = e.Seq
			fmt.Println(e.Seq, e.Type)
		}
	}
	recorder.Add(event.Event{Type: event.RunStart})
	read()
	recorder.Add(event.Event{Type: event.Phase})
	recorder.Add(event.Event{Type: event.RunEnd})
	read()
	// Output:
	// 1 run_start
	// 2 phase
	// 3 run_end
}

func ExampleNewRecorder() {
	recorder := event.NewRecorder(1000)
	recorder.Add(event.Event{Type: event.RunStart})
	fmt.Println(len(recorder.Events()))
	// Output: 1
}
