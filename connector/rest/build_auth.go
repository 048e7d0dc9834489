package rest

import "github.com/headway-go/headway/internal/secretfile"

func (b builder) auth(n *node) Auth {
	switch {
	case n.get("bearer") != nil:
		return Auth{Kind: BearerAuth, Secret: b.headerSecret(n.get("bearer"))}
	case n.get("header") != nil:
		h := n.get("header")
		return Auth{Kind: HeaderAuth, Name: b.headerName(h.get("name")), Secret: b.headerSecret(h.get("value"))}
	case n.get("query") != nil:
		q := n.get("query")
		return Auth{Kind: QueryAuth, Name: b.text(q.get("name")), Secret: b.secret(q.get("value"))}
	case n.get("oauth2") != nil:
		return Auth{Kind: OAuth2Auth, OAuth2: b.oauth2(n.get("oauth2"))}
	default:
		return Auth{Kind: NoAuth}
	}
}

func (b builder) oauth2(n *node) *OAuth2 {
	o := &OAuth2{
		TokenURL:     b.url(n.get("token_url")),
		Grant:        b.text(n.get("grant")),
		ClientID:     b.value(n.get("client_id")),
		ClientSecret: b.secret(n.get("client_secret")),
		RefreshToken: b.secret(n.get("refresh_token")),
		TokenFile:    b.text(n.get("token_file")),
	}
	if list := n.get("scopes"); list != nil {
		for _, s := range list.items {
			o.Scopes = append(o.Scopes, b.text(s))
		}
	}
	if o.Grant == "" {
		o.Grant = "client_credentials"
		if n.get("refresh_token") != nil {
			o.Grant = "refresh_token"
		}
	}
	need := map[string]string{"client_credentials": "client_secret", "refresh_token": "refresh_token"}[o.Grant]
	if need != "" && n.get(need) == nil {
		b.add(n.at, n.below(need), "is missing; grant %s needs it", o.Grant)
	}
	return o
}

// secret resolves a reference; the schema lets nothing else through.
func (b builder) secret(n *node) Value {
	if n == nil || b.covered(n.path) {
		return Value{}
	}
	if f := n.get("file"); f != nil {
		s, _, err := secretfile.Read(b.text(f))
		if err != nil {
			b.add(f.at, f.path, "is %s, which cannot be used: %v", quote(f.written), err)
		}
		return newValue("file "+f.written, s)
	}
	if n.kind == kindText && n.value == "" {
		b.add(n.at, n.path, "is %s, which is set but empty", quote(n.written))
	}
	return b.value(n)
}

// headerSecret is a secret that a header can hold.
func (b builder) headerSecret(n *node) Value {
	v := b.secret(n)
	if !headerText(v.Reveal()) {
		b.add(n.at, n.path, "is %s, whose value a header cannot hold: it has a line break or another control character", quote(v.written))
	}
	return v
}
