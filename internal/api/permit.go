package api

import (
	"container/list"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/quota"
)

// forgetAfter is how long the end of a permit is remembered, so that a client that lost the
// answer can ask again.
const forgetAfter = 10 * time.Minute

// secretLen is the length of rand.Text, which has at least 128 random bits.
const secretLen = 26

// ledger records the permits granted over HTTP, by random tokens. A token identifies the process
// that made it, so that a token from before a restart is recognized. Every method takes
// constant time.
type ledger struct {
	epoch string
	bound int

	mu       sync.Mutex
	held     map[string]*holding
	reserved int // slots reserved for approvals under way
	// open has the permits that have not ended, in order of approval; ended the others, in
	// order of their end.
	open, ended list.List
}

// holding is one permit.
type holding struct {
	token    string
	provider string
	from     Quota // the quota that granted it, also after a reload
	permit   quota.Permit
	owner    string
	until    time.Time // when it expires there

	place *list.Element // guarded by the ledger
	over  bool          // guarded by the ledger: it is in ended
}

func newLedger(bound int) *ledger {
	return &ledger{epoch: strings.ToLower(rand.Text()[:8]), bound: bound, held: map[string]*holding{}}
}

// reserve reserves a slot for one more permit, which put uses and release gives back. It drops
// permits that are too old to ask for, and if necessary those that ended longest ago. If there
// is no slot, it returns when there may be one.
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
			return false, now.Add(time.Second) // all slots are reserved for approvals under way
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

// release gives back a reserved slot.
func (l *ledger) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
}

// put records a permit in the reserved slot, and returns its token.
func (l *ledger) put(h *holding) string {
	h.token = l.epoch + "." + rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
	l.held[h.token] = h
	h.place = l.open.PushBack(h)
	return h.token
}

// end records the end of a permit.
func (l *ledger) end(h *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[h.token] == h && !h.over {
		l.open.Remove(h.place)
		h.place, h.over = l.ended.PushBack(h), true
	}
}

// drop removes a permit. The caller holds the lock.
func (l *ledger) drop(h *holding) {
	delete(l.held, h.token)
	if h.over {
		l.ended.Remove(h.place)
	} else {
		l.open.Remove(h.place)
	}
}

// find returns the permit of a token, for a caller who may settle it.
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
	// Do not reveal that a permit of another caller exists.
	if h == nil || h.owner != c.ID && c.Role != Admin {
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

// KeyRequest asks for a new Headway key. The fields are as in the configuration.
type KeyRequest struct {
	ID        string   `json:"id"`
	Tenant    string   `json:"tenant,omitempty"`
	Agent     string   `json:"agent,omitempty"`
	Models    []string `json:"models,omitempty"`
	Providers []string `json:"providers,omitempty"`
	Uploads   bool     `json:"uploads,omitempty"`
	// Priority is the default priority of calls, PriorityMax the maximum they may ask for.
	Priority    int `json:"priority,omitempty"`
	PriorityMax int `json:"priority_max,omitempty"`
	// Expires is the instant from which the key is invalid; zero means never.
	Expires time.Time `json:"expires,omitzero"`
}

// IssuedKey is a Headway key as the API shows it, without its secret and hash.
type IssuedKey struct {
	KeyRequest
	// Configured is set for a key in the configuration file, which must be removed there.
	Configured bool `json:"configured"`
}

// NewKey is the answer for an issued key. Only this answer shows the secret.
type NewKey struct {
	Secret string `json:"secret"`
	IssuedKey
}

// Keyring issues and revokes keys while the daemon runs. Its errors are a *[Problem] where the
// request is at fault.
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
	var secret string
	made := map[string]any{}
	for name, value := range map[string]string{"tenant": k.Tenant, "agent": k.Agent, "models": strings.Join(k.Models, ", "), "providers": strings.Join(k.Providers, ", ")} {
		if value != "" {
			made[name] = value
		}
	}
	if !k.Expires.IsZero() {
		made["expires"] = k.Expires
	}
	err = a.audit(r.Context(), c, audit.Entry{Action: "key.issue", Target: "key " + k.ID}, func(context.Context) (_ map[string]any, err error) {
		secret, err = a.o.Keys.Issue(k)
		return made, err
	})
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
	err := a.audit(r.Context(), c, audit.Entry{Action: "key.revoke", Target: "key " + id}, func(context.Context) (map[string]any, error) {
		return nil, a.o.Keys.Revoke(id)
	})
	if err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "key revoked by an admin", slog.String("key_id", c.ID), slog.String("revoked", id))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// BadKey returns the problem for an invalid [KeyRequest].
func BadKey(err error) *Problem {
	return &Problem{Status: http.StatusBadRequest, Title: "Not a key", Detail: err.Error()}
}

// NoKey returns the problem for a key that cannot be revoked through the API.
func NoKey(id string, configured bool) *Problem {
	if configured {
		return &Problem{Status: http.StatusConflict, Title: "A key of the configuration", Detail: "this key stands in the daemon's file: delete its lines and reload"}
	}
	return &Problem{Status: http.StatusNotFound, Title: "No such key", Detail: fmt.Sprintf("no key %.128q was issued", id)}
}
