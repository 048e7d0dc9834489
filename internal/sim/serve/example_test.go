package serve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headway-go/headway/internal/sim/serve"
)

func ExampleNew() {
	provider, err := serve.New(serve.Demo(), serve.Options{Conversations: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(provider)
	defer server.Close()
	res, err := http.Get(server.URL + "/conversations?limit=3")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	fmt.Println(res.StatusCode, provider.Stats().Admitted)
	// Output:
	// 200 1
}
