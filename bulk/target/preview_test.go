package target_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestPreviewShowsTheRequestAndNoSecret looks at requests that are not sent.
func TestPreviewShowsTheRequestAndNoSecret(t *testing.T) {
	for _, tt := range []struct{ name, auth, want string }{
		{"bearer", `{bearer: "${TOKEN}"}`, "Authorization:[Bearer ${TOKEN}]"},
		{"header", `{header: {name: x-key, value: "pre ${TOKEN}"}}`, "X-Key:[pre ${TOKEN}]"},
		{"basic", `{basic: {username: u, password: "${TOKEN}"}}`, "Authorization:[Basic (with ${TOKEN})]"},
		{"oauth2", `{oauth2: {token_url: "https://login.example.com/token", client_id: c, client_secret: "${TOKEN}"}}`, "Authorization:[Bearer (from https://login.example.com/token with ${TOKEN})]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := parse(t, "target: a\nauth: "+tt.auth+"\nheaders: {X-Also: \"v ${TOKEN}\"}\nhttp: {url: \"https://api.example.com/rows\"}\n")
			p, err := c.Target(nil).Preview(t.Context(), 0, batch(`{"a":1}`, `{"a":2}`))
			if err != nil {
				t.Fatal(err)
			}
			if p.Method != "POST" || p.URL != "https://api.example.com/rows" || p.Body != `[{"a":1},{"a":2}]` || p.Identity != "default" {
				t.Errorf("%+v", p)
			}
			all := fmt.Sprintf("%+v", p)
			if strings.Contains(all, canary) || !strings.Contains(all, tt.want) || !strings.Contains(all, "X-Also:[v ${TOKEN}]") {
				t.Errorf("%s, want %s and no secret", all, tt.want)
			}
		})
	}
}

// TestPreviewOfARowThatCannotBeSent has no request, but the reason.
func TestPreviewOfARowThatCannotBeSent(t *testing.T) {
	c := parse(t, "target: a\nhttp: {url: \"https://api.example.com/c/{id}\", single: true}\n")
	p, err := c.Target(nil).Preview(t.Context(), 0, batch(`{"a":1}`))
	if err != nil || p.URL != "" || p.Refused[0].Message == "" {
		t.Errorf("%+v, %v", p, err)
	}
}
