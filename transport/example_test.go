package transport_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/transport"
)

func ExampleClient() {
	requests := 0
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.Header().Set("Retry-After-Ms", "20")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer provider.Close()

	client, err := transport.Client(headway.Config{Name: "acme", Ceiling: 10 * time.Millisecond, Initial: 10 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := client.Get(provider.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	fmt.Println(res.StatusCode, "after", requests, "attempts")
	client.CloseIdleConnections()
	// Output:
	// 200 after 2 attempts
}

func ExampleNew() {
	governor, _ := transport.NewGovernor(transport.Config{Name: "acme"})
	rt, err := transport.New(governor, transport.Options{Timeout: 30 * time.Second})
	client := &http.Client{Transport: rt}
	fmt.Println(client.Transport == rt, err)
	// Output:
	// true <nil>
}

func ExampleIdempotent() {
	post, _ := http.NewRequest(http.MethodPost, "http://api.example/orders", nil)
	fmt.Println(transport.Idempotent(post))
	post.Header.Set("Idempotency-Key", "42")
	fmt.Println(transport.Idempotent(post))
	// Output:
	// false
	// true
}
