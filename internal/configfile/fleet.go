package configfile

import (
	"net/url"
	"strconv"
	"strings"
)

// fleetBound says what the address of a fleet must be.
const fleetBound = "unix:///PATH/headway.sock, valkey://USER@HOST:6379 or valkeys:// for TLS, with ?away=wait to send nothing while the server is away"

// Fleet reads the address of a fleet's server, or the word none; a nil node gives the
// zero Secret. A password must be a reference.
func (n *Node) Fleet() Secret {
	at := n.value()
	text := at.Reveal()
	if text == "" || text == "none" {
		return at
	}
	u, err := url.Parse(text)
	password := false
	if err == nil && u.User != nil {
		_, password = u.User.Password()
	}
	switch {
	case err != nil || !fleetAddress(u):
		n.Fail("is not the address of a fleet's server; want %s, or none", fleetBound)
	case password && at.String() == text:
		n.Fail("has a password in it; want the whole address as a reference, ${NAME} or ${file:PATH}")
	}
	return at
}

// fleetAddress reports whether a fleet supports this kind of address.
func fleetAddress(u *url.URL) bool {
	for name, values := range u.Query() {
		if name != "away" || len(values) != 1 || values[0] != "wait" && values[0] != "share" {
			return false
		}
	}
	switch u.Scheme {
	case "unix":
		return u.Host+u.Path != ""
	case "valkey", "valkeys", "redis", "rediss":
		if path := strings.Trim(u.Path, "/"); path != "" {
			if _, err := strconv.ParseUint(path, 10, 16); err != nil {
				return false
			}
		}
		return u.Hostname() != "" && u.Opaque == "" && u.Fragment == ""
	}
	return false
}
