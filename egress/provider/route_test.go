package provider_test

import (
	"testing"

	"github.com/headway-go/headway/egress/provider"
)

func TestNoOtherWayToWriteAPathLeadsPastItsRoute(t *testing.T) {
	const body = `{"model":"m"}`
	for _, path := range []string{
		"/v1/chat/completions", "v1/chat/completions", "/v1/chat/completions/", "//v1//chat/completions", "/v1/./chat/completions",
		"/v1/x/../chat/completions", "/V1/Chat/COMPLETIONS", "/v1/chat/completions;a=b", "/v1/chat;x/completions", "/chat/completions",
		"/openai/v1/chat/completions", "/api/v1/chat/completions", "/v1beta/openai/chat/completions",
	} {
		if call, err := builtin(t, provider.OpenAI).Call("POST", path, []byte(body)); err != nil || !call.Metered || call.Model != "m" {
			t.Errorf("%s: %+v, %v", path, call, err)
		}
	}
	for _, path := range []string{
		"/v1beta/models/m:generateContent", "/v1/tunedModels/m:generateContent", "/V1/models/m:GENERATECONTENT", "/v1/models/m:generateContent/",
		"/v1/projects/p/locations/l/endpoints/m:generateContent", "/v1beta1/projects/p/locations/l/publishers/google/models/m:generateContent",
	} {
		if call, err := builtin(t, provider.Gemini).Call("POST", path, []byte("{}")); err != nil || !call.Metered || call.Model != "m" {
			t.Errorf("%s: %+v, %v", path, call, err)
		}
	}
}

func TestWhatIsNoModelsCallIsNotMetered(t *testing.T) {
	for _, api := range provider.APIs() {
		for _, c := range [][2]string{
			{"GET", "/v1/models"}, {"GET", "/v1/chat/completions"}, {"GET", "/v1/responses/resp_1"}, {"DELETE", "/v1/responses/resp_1"},
			{"POST", "/v1/responses/resp_1/cancel"}, {"POST", "/v1/chat/completions/c"}, {"POST", "/v1/batches"}, {"POST", "/v1/messages/batches"},
			{"POST", "/v1/threads/t/messages"}, {"POST", "/v1beta/models/:generateContent"}, {"POST", "/v1beta/models/m"}, {"POST", "/"}, {"POST", ""},
			{"GET", "/v1/organization/usage/completions"}, {"POST", "/v1/responses/input_tokens"}, {"POST", "/v1/mycompletions"},
		} {
			call, err := builtin(t, api).Call(c[0], c[1], nil)
			if err != nil || call.Metered != (api == provider.HTTP) {
				t.Errorf("%s: %v: %+v, %v", api, c, call, err)
			}
			for range call.Texts {
				t.Errorf("%s: %v has text", api, c)
			}
		}
	}
}

func TestRoutesOfOnesOwn(t *testing.T) {
	d := provider.Description{API: provider.OpenAI, Routes: []provider.Route{
		{Path: "/v2/*/chat", Metered: true},
		{Method: "POST", Path: "/exact", Metered: true},
		{Method: "POST", Path: "/by/{model}/run", Metered: true},
	}}
	for path, want := range map[string]string{
		"/v2/a/chat": "body", "/exact": "body", "/by/name/run": "name",
		"/v2/chat": "-", "/v2/a/b/chat": "-", "/x/v2/a/chat": "-", "/x/exact": "-", "/by/name": "-", "/by/run": "-",
	} {
		call, err := d.Call("POST", path, []byte(`{"model":"body"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Model; call.Metered != (want != "-") || call.Metered && got != want {
			t.Errorf("%s: %v %q, want %q", path, call.Metered, got, want)
		}
	}
	if call, _ := d.Call("GET", "/exact", nil); call.Metered {
		t.Error("another method is the same call")
	}
}
