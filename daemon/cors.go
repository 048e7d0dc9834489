package daemon

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/headway-go/headway/daemon/config"
)

// trusted reports whether the configuration lets pages of an origin call.
func trusted(c *config.CORS, origin string) bool {
	return c != nil && (slices.Contains(c.Origins, origin) || slices.Contains(c.Origins, "*"))
}

// allow says in an answer that a page of the request's origin may read it, if the
// configuration lets it. It is true for a preflight, which is answered then: a
// browser sends it without the page's key. Source: the Fetch standard, section 3.2.
func allow(c *config.CORS, w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if c == nil || origin == "" {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if !trusted(c, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked) // those that go upstream, the provider's description says
	}
	h.Set("Access-Control-Max-Age", strconv.Itoa(int(c.MaxAge.Seconds())))
	w.WriteHeader(http.StatusNoContent)
	return true
}
