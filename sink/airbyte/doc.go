// Package airbyte writes records as the read of an Airbyte source does: RECORD,
// STATE and TRACE messages of the protocol 0.3, one a line. [New] makes the
// [collect.Sink], and three things are to be wired:
//
//	var collector *collect.Collector
//	sink := airbyte.New(os.Stdout, airbyte.Options{
//		Live: func() (collect.Live, bool) { return collector.Live() },
//	})
//	collector, err := collect.New(collect.Options{Sink: sink, OnEvent: sink.OnEvent})
package airbyte
