package console

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/client"
)

const (
	// sessionTime is how long a login holds, and maxSessions how many hold at once: the
	// oldest ends for one more.
	sessionTime = 12 * time.Hour
	maxSessions = 1000
	// linkTime is how long a link may be opened, and linkPause the time between two links.
	linkTime  = 15 * time.Minute
	linkPause = 5 * time.Second
)

// cookie returns the name of the cookie of a console. Browsers send a host's cookies to all
// of its ports, so the name has the port: two consoles of one machine end no session of each
// other.
func cookie(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return "headway_console_" + port
	}
	return "headway_console"
}

// session is what is kept of one who logged in; of all others there is one without an id.
type session struct {
	id    string
	key   string // the Headway key that it asks with; never shown
	role  string // of that key; empty where nobody logged in
	since time.Time
	board board
}

// sessions are those who logged in, by the hash of what their cookie holds. The zero
// value is ready.
type sessions struct {
	mu     sync.Mutex
	known  map[string]*session
	nobody *session
}

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// of is the session of a request.
func (s *sessions) of(r *http.Request) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent, err := r.Cookie(cookie(r)); err == nil {
		if known := s.known[hashed(sent.Value)]; known != nil && time.Since(known.since) < sessionTime {
			return known
		}
	}
	if s.nobody == nil {
		s.nobody = &session{}
	}
	return s.nobody
}

// begin makes a session and gives what its cookie holds.
func (s *sessions) begin(key, role string) (secret string) {
	secret = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]*session{}
	}
	oldest := ""
	for id, one := range s.known {
		if time.Since(one.since) >= sessionTime {
			delete(s.known, id)
		} else if oldest == "" || one.since.Before(s.known[oldest].since) {
			oldest = id
		}
	}
	if len(s.known) >= maxSessions {
		delete(s.known, oldest)
	}
	s.known[hashed(secret)] = &session{id: hashed(secret), key: key, role: role, since: time.Now()}
	return secret
}

func (s *sessions) end(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, one.id)
}

// token is what a form of a session has to bring back. A page of another site cannot
// read it.
func (c *Console) token(s *session) string {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte(s.id))
	return hex.EncodeToString(mac.Sum(nil))
}

// form reads a form that one of our pages sent.
func (v *visit) form() error {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	if err := v.r.ParseForm(); err != nil {
		return &client.Problem{Status: http.StatusBadRequest, Title: "The form cannot be read"}
	}
	if err := http.NewCrossOriginProtection().Check(v.r); err != nil || !hmac.Equal([]byte(v.r.PostFormValue("token")), []byte(v.c.token(v.s))) {
		return &client.Problem{Status: http.StatusForbidden, Title: "Not sent by this console", Detail: "the form is of another site, or of a session that has ended: go back, load the page again and repeat"}
	}
	return nil
}

// operatorForm is form, of a user who may change something.
func (v *visit) operatorForm() error {
	if err := v.form(); err != nil {
		return err
	}
	if !v.operates() {
		return errOperator
	}
	return nil
}

// links are the one-time links that nobody has opened yet, by the hash of their secret,
// with the time at which each expires. The zero value is ready.
type links struct {
	mu     sync.Mutex
	unused map[string]time.Time
	latest time.Time // when the latest link was made
}

// make returns the secret of a new link; empty if the latest link is too recent.
func (l *links) make() (secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.latest.IsZero() && now.Sub(l.latest) < linkPause {
		return ""
	}
	if l.unused == nil {
		l.unused = map[string]time.Time{}
	}
	maps.DeleteFunc(l.unused, func(_ string, until time.Time) bool { return !now.Before(until) })
	secret = rand.Text()
	l.unused[hashed(secret)], l.latest = now.Add(linkTime), now
	return secret
}

// use reports whether a link may be opened, which it may only once.
func (l *links) use(secret string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, ok := l.unused[hashed(secret)]
	delete(l.unused, hashed(secret))
	return ok && time.Now().Before(until)
}

// Announce makes a one-time link and hands it to Options.Announce. It does nothing within
// five seconds of the latest link, and returns false.
func (c *Console) Announce() bool {
	secret := c.links.make()
	if secret == "" {
		return false
	}
	c.o.Announce(Path + "login?link=" + secret)
	return true
}

// entry is the page that asks for a key or, where keys are not asked for, for a link.
type entry struct {
	Refused string
	Links   bool
	Noted   string // what became of the wish for another link
}

func (c *Console) login(v *visit) error {
	secret := v.text("link")
	if c.o.Announce == nil || secret == "" {
		v.show(http.StatusOK, "login", "Log in", entry{Links: c.o.Announce != nil})
		return nil
	}
	if v.r.Method != http.MethodGet || v.r.Header.Get("Sec-Purpose") != "" {
		// A look ahead of a browser would use the link up.
		return &client.Problem{Status: http.StatusServiceUnavailable, Title: "Not opened", Detail: "this link is for one visit: open it"}
	}
	if !c.links.use(secret) {
		if v.s.id != "" {
			http.Redirect(v.w, v.r, Path, http.StatusSeeOther)
			return nil
		}
		c.log.Warn("login to the console refused")
		v.show(http.StatusUnauthorized, "login", "Log in", entry{Links: true, Refused: "This link was opened before, or it has expired."})
		return nil
	}
	index, err := v.api.Index(v.r.Context())
	if err != nil {
		return err
	}
	v.enter("", index.Role)
	return nil
}

// enter begins a session and leads to its first page.
func (v *visit) enter(key, role string) {
	http.SetCookie(v.w, &http.Cookie{
		Name: cookie(v.r), Value: v.c.sessions.begin(key, role), Path: Path, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: v.r.TLS != nil, MaxAge: int(sessionTime.Seconds()),
	})
	http.Redirect(v.w, v.r, Path, http.StatusSeeOther)
}

// another writes another link for one who can read what Options.Announce writes.
func (c *Console) another(v *visit) error {
	if c.Announce() {
		v.show(http.StatusOK, "login", "Log in", entry{Links: true, Noted: "Written."})
	} else {
		v.show(http.StatusTooManyRequests, "login", "Log in", entry{Links: true, Noted: "A link was written seconds ago."})
	}
	return nil
}

// enter lets in who brings a key with a role.
func (c *Console) enter(v *visit) error {
	if err := v.form(); err != nil {
		return err
	}
	if c.o.Announce != nil {
		return c.another(v)
	}
	key := v.r.PostFormValue("key")
	refused := func(status int, why string) error {
		c.log.Warn("login to the console refused")
		v.show(status, "login", "Log in", entry{Refused: why})
		return nil
	}
	api, err := c.client(key, v.r.RemoteAddr)
	if err != nil || key == "" {
		return refused(http.StatusUnauthorized, "That is not a Headway key.")
	}
	index, err := api.Index(v.r.Context())
	p, ok := errors.AsType[*client.Problem](err)
	switch {
	case ok && p.Status == http.StatusTooManyRequests:
		return refused(p.Status, "Too many keys from here were refused; wait a little.")
	case ok && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden):
		return refused(p.Status, "This daemon does not know the key.")
	case err != nil:
		return err
	case index.Role == "":
		return refused(http.StatusForbidden, "This key makes calls and has no role: the console takes one with the role viewer, operator or admin.")
	}
	v.enter(key, index.Role)
	return nil
}

// leave ends the session.
func (c *Console) leave(v *visit) error {
	if err := v.form(); err != nil {
		return err
	}
	c.sessions.end(v.s)
	http.SetCookie(v.w, &http.Cookie{Name: cookie(v.r), Path: Path, HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
	http.Redirect(v.w, v.r, Path+"login", http.StatusSeeOther)
	return nil
}

// client asks the API with a key. from is the address of the one who looks, by which
// the API counts keys that it refuses.
func (c *Console) client(key, from string) (*client.Client, error) {
	return client.New(client.Options{Server: "http://localhost", Key: key, Transport: memory{c.o.API, from}})
}

// Ask makes a client of an API in this process that asks for no key.
func Ask(api http.Handler) (*client.Client, error) {
	return client.New(client.Options{Server: "http://localhost", Transport: memory{to: api}})
}

// memory sends requests to a handler of this process.
type memory struct {
	to   http.Handler
	from string
}

// RoundTrip gives the answer when it is whole.
func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // which is not ours to change
	r.RemoteAddr = m.from
	a := &answer{header: http.Header{}, status: http.StatusOK}
	m.to.ServeHTTP(a, r)
	return &http.Response{
		StatusCode: a.status, Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
	}, nil
}

// answer is a http.ResponseWriter that keeps what is written.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
