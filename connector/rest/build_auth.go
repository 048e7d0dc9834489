package rest

func (b builder) auth(n *node) Auth {
	switch {
	case n.Get("bearer") != nil:
		return Auth{Kind: BearerAuth, Secret: b.secret(n.Get("bearer"))}
	case n.Get("header") != nil:
		h := n.Get("header")
		return Auth{Kind: HeaderAuth, Name: b.headerName(h.Get("name")), Secret: b.secret(h.Get("value"))}
	case n.Get("query") != nil:
		q := n.Get("query")
		return Auth{Kind: QueryAuth, Name: b.text(q.Get("name")), Secret: b.secret(q.Get("value"))}
	case n.Get("oauth2") != nil:
		return Auth{Kind: OAuth2Auth, OAuth2: b.oauth2(n.Get("oauth2"))}
	default:
		return Auth{Kind: NoAuth}
	}
}

func (b builder) oauth2(n *node) *OAuth2 {
	o := &OAuth2{
		TokenURL:     b.url(n.Get("token_url")),
		Grant:        b.text(n.Get("grant")),
		ClientID:     b.value(n.Get("client_id")),
		ClientSecret: b.secret(n.Get("client_secret")),
		RefreshToken: b.secret(n.Get("refresh_token")),
		TokenFile:    b.text(n.Get("token_file")),
	}
	if list := n.Get("scopes"); list != nil {
		for _, s := range list.Items {
			o.Scopes = append(o.Scopes, b.text(s))
		}
	}
	if o.Grant == "" {
		o.Grant = "client_credentials"
		if n.Get("refresh_token") != nil {
			o.Grant = "refresh_token"
		}
	}
	need := map[string]string{"client_credentials": "client_secret", "refresh_token": "refresh_token"}[o.Grant]
	if need != "" && n.Get(need) == nil {
		b.Fail(n.At, n.Below(need), "is missing; grant %s needs it", o.Grant)
	}
	return o
}

// secret resolves a reference; the schema lets nothing else through.
func (b builder) secret(n *node) Value {
	if n == nil || b.Covered(n.Path) {
		return Value{}
	}
	return n.Secret()
}
