package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// KeyRequest is what a Headway key is asked for with. The fields are as in the
// configuration.
type KeyRequest struct {
	ID        string   `json:"id"`
	Tenant    string   `json:"tenant,omitempty"`
	Agent     string   `json:"agent,omitempty"`
	Models    []string `json:"models,omitempty"`
	Providers []string `json:"providers,omitempty"`
	Uploads   bool     `json:"uploads,omitempty"`
	// Priority is of calls that ask for none, PriorityMax the most they may ask for.
	Priority    int `json:"priority,omitempty"`
	PriorityMax int `json:"priority_max,omitempty"`
	// Expires is the first instant at which the key is no more; zero is never.
	Expires time.Time `json:"expires,omitzero"`
}

// IssuedKey is a Headway key as the API shows it: never its secret nor its hash.
type IssuedKey struct {
	KeyRequest
	// Configured keys stand in the daemon's file, and are taken away there.
	Configured bool `json:"configured"`
}

// NewKey is the answer to a key that was issued. The secret is shown this once.
type NewKey struct {
	Secret string `json:"secret"`
	IssuedKey
}

// Keyring is what keys are issued and revoked with while the daemon runs. Its
// errors are a *[Problem] where the caller is to blame.
type Keyring interface {
	List() []IssuedKey
	Issue(k KeyRequest) (secret string, err error)
	Revoke(id string) error
}

func (a *API) keys(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if err := ask(r).err; err != nil {
		return err
	}
	return a.send(w, a.o.Keys.List())
}

func (a *API) issue(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := ask(r).err; err != nil {
		return err
	}
	body, err := read(w, r, typeJSON)
	if err != nil {
		return err
	}
	var k KeyRequest
	if err := decode(body, &k, "id", "tenant", "agent", "models", "providers", "uploads", "priority", "priority_max", "expires"); err != nil {
		return err
	}
	if !k.Expires.IsZero() && !k.Expires.After(time.Now()) {
		return badField("expires", k.Expires.UTC().Format(time.RFC3339), "later than now")
	}
	secret, err := a.o.Keys.Issue(k)
	if err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "key issued by an admin", slog.String("key_id", c.ID), slog.String("issued", k.ID))
	return a.send(w, NewKey{secret, IssuedKey{KeyRequest: k}})
}

func (a *API) revoke(w http.ResponseWriter, r *http.Request, c Caller) error {
	if err := ask(r).err; err != nil {
		return err
	}
	id := r.PathValue("id")
	if err := a.o.Keys.Revoke(id); err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "key revoked by an admin", slog.String("key_id", c.ID), slog.String("revoked", id))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// BadKey is a problem of a key that was asked for.
func BadKey(err error) *Problem {
	return &Problem{Status: http.StatusBadRequest, Title: "Not a key", Detail: err.Error()}
}

// NoKey is the problem of a key that cannot be revoked here.
func NoKey(id string, configured bool) *Problem {
	if configured {
		return &Problem{Status: http.StatusConflict, Title: "A key of the configuration", Detail: "this key stands in the daemon's file: delete its lines and reload"}
	}
	return &Problem{Status: http.StatusNotFound, Title: "No such key", Detail: fmt.Sprintf("no key %.128q was issued", id)}
}
