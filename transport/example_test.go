package transport_test

import (
	"context"
	"fmt"
	"io"
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

func ExampleWithKey() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "limits of ", r.Header.Get("Authorization"))
	}))
	defer provider.Close()

	var all []transport.Key
	for _, name := range []string{"blue", "green"} {
		governor, _ := transport.NewGovernor(transport.Config{Name: name})
		all = append(all, transport.Key{Name: name, Governor: governor, Sign: func(r *http.Request) error {
			r.Header.Set("Authorization", name)
			return nil
		}})
	}
	keys, _ := transport.NewKeys(all, transport.Options{})
	client := &http.Client{Transport: keys}
	defer client.CloseIdleConnections()
	for _, name := range []string{"blue", "green"} {
		ctx := transport.WithKey(context.Background(), name)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, provider.URL, nil)
		res, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		fmt.Println(string(body))
	}
	// Output:
	// limits of blue
	// limits of green
}
