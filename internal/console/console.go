// Package console is what a person looks at: pages of connections, runs, gaps and
// quotas, under /console/. Pages are rendered here and can be read without JavaScript;
// with it, rates move by themselves.
//
// It has no source of its own. It asks the API in memory with the key of the session, as
// "headway ... --server" does over the network; so it shows nothing that the API does not
// answer to that key, and a key that is revoked ends its session. What is not known is
// shown as unknown, never as 0.
//
// A [Console] is safe for concurrent use. It makes no goroutine of its own; Close ends
// the live streams.
//
// Whom it lets in is the API's business: a caller that the API refuses is sent to the page
// that asks for a key. With Options.Announce a one-time link takes the place of the key, and
// a caller without a session is sent to the page that says where the link is written. What a
// caller's role does not allow is not offered, and the API refuses it.
package console

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/client"
)

// Path is where the console is served.
const Path = "/console/"

const (
	// writeTime is how long a client may take to read a page or a live update.
	writeTime = 15 * time.Second
	// maxForm is the largest form that is read, in bytes.
	maxForm = 256 << 10
)

// Options are what a console is made of.
type Options struct {
	// API answers /v1. Required.
	API http.Handler
	// Announce shows the path of a one-time link to the user of this machine. Where it is
	// set, such a link is what logs in: it opens once, within 15 minutes, and no key is asked
	// for. Requests under another name than localhost or an address are then refused, since a
	// page of another site may have had its name moved here. It may be called from several
	// goroutines at once. Default: each caller that the API answers is let in.
	Announce func(path string)
	// Source says in a few words where what is shown comes from, as a folder's name.
	Source string
	// Profiles are folders with profiles beside those that come with headway.
	Profiles []string
	// Log gets a line for each login that was refused, each change and each fault of ours.
	// Default: none.
	Log *slog.Logger
}

// Console is an http.Handler for [Path] and what is below it. Make one with [New].
type Console struct {
	o        Options
	log      *slog.Logger
	mux      *http.ServeMux
	pages    *template.Template
	secret   []byte // signs the tokens of forms
	sessions sessions
	links    links
	streams  chan struct{}
	done     chan struct{}
	close    sync.Once
}

//go:embed templates static
var files embed.FS

// New makes a console.
func New(o Options) (*Console, error) {
	if o.API == nil {
		return nil, errors.New("console: API is nil, must be a handler")
	}
	c := &Console{
		o: o, log: o.Log, mux: http.NewServeMux(), secret: make([]byte, 32),
		streams: make(chan struct{}, maxStreams), done: make(chan struct{}),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	_, _ = rand.Read(c.secret) // which never fails
	pages, err := template.New("").Funcs(functions).ParseFS(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	c.pages = pages
	static, err := fs.Sub(files, "static")
	if err != nil {
		return nil, err
	}
	c.mux.Handle("GET "+Path+"static/", http.StripPrefix(Path+"static/", cached(http.FileServerFS(static))))
	for pattern, show := range map[string]func(*visit) error{
		"{$}": c.overview, "connection": c.connection, "runs": c.runs, "run": c.run, "gaps": c.gaps,
		"quotas": c.quotas, "calls": c.calls, "audit": c.audit, "fleet": c.fleet, "profiles": c.profiles, "profile": c.profile, "simulator": c.simulator, "live": c.live,
	} {
		c.mux.Handle("GET "+Path+pattern, c.page(show))
	}
	c.mux.Handle("GET "+Path+"login", c.open(c.login))
	c.mux.Handle("POST "+Path+"login", c.open(c.enter))
	c.mux.Handle("POST "+Path+"logout", c.open(c.leave))
	c.mux.Handle("POST "+Path+"quotas", c.page(c.override))
	c.mux.Handle("POST "+Path+"gaps", c.page(c.actOnGaps))
	c.mux.Handle("POST "+Path+"simulator", c.page(c.simulate))
	c.mux.Handle("/", c.open(func(v *visit) error { return errNoPage }))
	return c, nil
}

// Close ends the live streams. It is safe to call again.
func (c *Console) Close() { c.close.Do(func() { close(c.done) }) }

// ServeHTTP answers one request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	// Not every ResponseWriter has deadlines; the server's own hold then. Where there is no
	// body, the end of a deadline to read would end the request itself.
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(writeTime))
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	if c.o.Announce != nil && !local(r.Host) {
		http.Error(w, "this console is opened as localhost or by its address", http.StatusForbidden)
		return
	}
	c.mux.ServeHTTP(w, r)
}

// local says whether a request was sent to localhost or to an address, and not to a name.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// cached lets browsers keep the files of a page for a while: they change with the
// program only.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=600")
		next.ServeHTTP(w, r)
	})
}

// visit is one request of one session.
type visit struct {
	c   *Console
	w   http.ResponseWriter
	r   *http.Request
	s   *session
	api *client.Client
}

// errNoPage is what a page that is not there gives.
var errNoPage = &client.Problem{Status: http.StatusNotFound, Title: "No such page"}

// errNoSession is the answer to one who has opened no link.
var errNoSession = &client.Problem{Status: http.StatusUnauthorized, Title: "Not logged in", Detail: "open the link that headway console wrote"}

// page shows a page to those whom the API answers.
func (c *Console) page(show func(*visit) error) http.Handler {
	return c.open(func(v *visit) error {
		var err error
		if c.o.Announce != nil && v.s.id == "" {
			err = errNoSession
		} else {
			err = show(v)
		}
		p, ok := errors.AsType[*client.Problem](err)
		if ok && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden && v.s.id == "") {
			if v.r.Method != http.MethodPost && v.r.Header.Get("Accept") != "text/event-stream" {
				http.Redirect(v.w, v.r, Path+"login", http.StatusSeeOther)
				return nil
			}
		}
		return err
	})
}

// open answers a request, also of one who has not logged in.
func (c *Console) open(do func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{c: c, w: w, r: r, s: c.sessions.of(r)}
		api, err := c.client(v.s.key, r.RemoteAddr)
		if err == nil {
			v.api = api
			err = do(v)
		}
		if err != nil {
			v.fail(err)
		}
	})
}

// fail shows what went wrong. What went wrong inside is for the log.
func (v *visit) fail(err error) {
	p, ok := errors.AsType[*client.Problem](err)
	if !ok {
		v.c.log.Warn("a page of the console could not be shown", slog.String("page", v.r.Pattern), slog.Any("error", err))
		p = &client.Problem{Status: http.StatusBadGateway, Title: "The daemon does not answer", Detail: "what is shown here could not be read; the log says why"}
	}
	v.show(p.Status, "problem", p.Title, p)
}

// The roles of keys that the API knows.
const (
	operator = "operator"
	admin    = "admin"
)

// errOperator is what a form gives that is sent with another role.
var errOperator = &client.Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "this takes a key with the role operator or admin"}

// operates says that the visitor may act on gaps and override limits, as far as is known
// here: the API has the last word. Where nobody logs in, everybody may.
func (v *visit) operates() bool { return v.s.id == "" || v.s.role == operator || v.s.role == admin }

// frame is a page with what stands around it.
type frame struct {
	Title, Page, Source string
	Token               string
	Session             bool // somebody logged in, and can leave
	Role                string
	Operator            bool // may act on gaps and override limits
	Live                string
	Now                 time.Time
	Body                any
}

// show renders a whole page: nothing is sent of one that fails.
func (v *visit) show(status int, page, title string, body any) {
	var b bytes.Buffer
	f := frame{
		Role: v.s.role, Operator: v.operates(),
		Title: title, Page: page, Source: v.c.o.Source, Token: v.c.token(v.s),
		Session: v.s.id != "", Live: v.live(page), Now: time.Now(), Body: body,
	}
	if err := v.c.pages.ExecuteTemplate(&b, page, f); err != nil {
		v.c.log.Error("a page of the console could not be rendered", slog.String("page", page), slog.Any("error", err))
		http.Error(v.w, "the page could not be rendered; the log says why", http.StatusInternalServerError)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	v.w.WriteHeader(status)
	_, _ = v.w.Write(b.Bytes()) // a client that does not read it cannot be answered
}

// live is the address of the stream that keeps a page up to date; "" for a page that
// does not move.
func (v *visit) live(page string) string {
	if page != "overview" && page != "connection" {
		return ""
	}
	q := v.r.URL.Query()
	q.Set("page", page)
	return Path + "live?" + q.Encode()
}

// text is a parameter of the address.
func (v *visit) text(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }
