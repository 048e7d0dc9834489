package dataverse_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/dataverse"
)

func ExampleNew() {
	api, err := dataverse.New(dataverse.Options{Scale: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := serve.New(api.Scenario(), serve.Options{APIs: []serve.API{api}})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(provider)
	defer server.Close()
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/api/data/v9.2/contacts/Microsoft.Dynamics.CRM.UpsertMultiple",
			strings.NewReader(`{"Targets":[{"@odata.type":"Microsoft.Dynamics.CRM.contact","@odata.id":"contacts(code='a')","name":"Ann"}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("Authorization", "Bearer ann")
		res, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("X-Ms-Dop-Hint"))
	}
	held := api.Standing().Sets["contacts"]
	fmt.Println(held.Rows, "row,", held.Creates, "created,", held.Updates, "updated")
	// Output:
	// 204 4
	// 204 4
	// 1 row, 1 created, 1 updated
}
