package api

import (
	"container/list"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/quota"
)

// forgetAfter is how long the end of a permit is known, so that a client that
// lost the answer may ask again.
const forgetAfter = 10 * time.Minute

// secretLen is the length of rand.Text, which is enough for 128 bits.
const secretLen = 26

// ledger knows the permits that were given out over HTTP, by tokens that cannot
// be guessed. A token says which process gave it out, so that one from before a
// restart is known for what it is. Every method takes constant time.
type ledger struct {
	epoch string
	bound int

	mu       sync.Mutex
	held     map[string]*holding
	reserved int // room kept for approvals under way
	// open are those that nobody ended, in order of approval; ended the others,
	// in order of their end.
	open, ended list.List
}

// holding is one permit.
type holding struct {
	token    string
	provider string
	from     Quota // who gave it out, also after a reload
	permit   quota.Permit
	owner    string
	until    time.Time // when it expires there

	place *list.Element // guarded by the ledger
	over  bool          // guarded by the ledger: it is in ended
}

func newLedger(bound int) *ledger {
	return &ledger{epoch: strings.ToLower(rand.Text()[:8]), bound: bound, held: map[string]*holding{}}
}

// reserve keeps room for one more permit; it is used by put or given back by
// release. What nobody can ask for any more is forgotten, and if need be what
// ended longest ago. Without room, it says when there will be some.
func (l *ledger) reserve(now time.Time) (ok bool, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kept := range [...]*list.List{&l.open, &l.ended} {
		for e := kept.Front(); e != nil && now.After(holder(e).until.Add(forgetAfter)); e = kept.Front() {
			l.drop(holder(e))
		}
	}
	if len(l.held)+l.reserved >= l.bound {
		first := l.open.Front()
		switch {
		case l.ended.Len() > 0:
			l.drop(holder(l.ended.Front()))
		case first == nil:
			return false, now.Add(time.Second) // all of it is kept for approvals under way
		case now.After(holder(first).until):
			l.drop(holder(first))
		default:
			return false, holder(first).until
		}
	}
	l.reserved++
	return true, now
}

func holder(e *list.Element) *holding { return e.Value.(*holding) }

// release gives kept room back.
func (l *ledger) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
}

// put keeps a permit in the room that was reserved, and gives its token.
func (l *ledger) put(h *holding) string {
	h.token = l.epoch + "." + rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
	l.held[h.token] = h
	h.place = l.open.PushBack(h)
	return h.token
}

// end notes that a permit ended.
func (l *ledger) end(h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[h.token] == h && !h.over {
		l.open.Remove(h.place)
		h.place, h.over = l.ended.PushBack(h), true
	}
}

// drop forgets a permit, with the lock held.
func (l *ledger) drop(h *holding) {
	delete(l.held, h.token)
	if h.over {
		l.ended.Remove(h.place)
	} else {
		l.open.Remove(h.place)
	}
}

// find is the permit of a token, for a caller who may settle it.
func (l *ledger) find(token string, c Caller) (*holding, error) {
	epoch, secret, ok := strings.Cut(token, ".")
	if !ok || len(epoch) != len(l.epoch) || len(secret) != secretLen {
		return nil, badField("permit", "no permit", "that of an approval, as it was given")
	}
	if epoch != l.epoch {
		return nil, gone("it was given out before the daemon restarted; what it had reserved of the day stays counted")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[token]
	// Nobody learns that somebody else's permit exists.
	if h == nil || h.owner != c.ID && !c.Admin {
		return nil, gone("it ended or expired long ago, or was given to another key")
	}
	return h, nil
}

func gone(detail string) *Problem {
	return &Problem{
		Type: typePrefix + "permit_gone", Title: "The permit is not known any more", Status: http.StatusGone,
		Code: quota.CodeApprovalConflict, Detail: detail,
	}
}

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
