package httpauth

import (
	"net/http"
	"slices"
	"testing"

	"golang.org/x/oauth2"
)

func TestWhenARefusedTokenIsRenewed(t *testing.T) {
	state := func(token *oauth2.Token, unproven bool) *Tokens {
		o := New(&OAuth2{}, http.DefaultClient)
		o.token, o.unproven = token, unproven
		return o
	}
	mine := func() *oauth2.Token { return &oauth2.Token{AccessToken: "mine"} }
	for _, tt := range []struct {
		name        string
		tokens      *Tokens
		renew, kept bool
	}{
		{"it is refused for the first time", state(mine(), false), true, false},
		{"it took the place of one that was refused", state(mine(), true), false, true},
		{"somebody has renewed it", state(&oauth2.Token{AccessToken: "newer"}, true), true, true},
		{"somebody has dropped it", state(nil, true), true, false},
	} {
		if renew := tt.tokens.Refused(t.Context(), "mine"); renew != tt.renew || (tt.tokens.token != nil) != tt.kept {
			t.Errorf("%s: renew %v, token %v; want %v, kept %v", tt.name, renew, tt.tokens.token, tt.renew, tt.kept)
		}
	}
	o := state(mine(), true)
	if o.Accepted(t.Context(), "other"); !o.unproven {
		t.Error("another token was accepted, and this one is proven")
	}
	if o.Accepted(t.Context(), "mine"); o.unproven {
		t.Error("a token that was accepted is not proven")
	}
	if all := o.Secrets(t.Context()); !slices.Contains(all, "mine") {
		t.Errorf("the secrets in use are %d, without the token", len(all))
	}
}
