package forward

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// User is the user name that goes with the proxy's password.
const User = "headway"

// admitted reports whether a request may use the proxy: it brings the password, or its
// connection belongs to a process of this user. Some programs, Java's among them, can be
// given a proxy by their environment, but no password for it.
func (p *Proxy) admitted(r *http.Request) bool {
	if kind, text, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " "); strings.EqualFold(kind, "Basic") {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		want := sha256.Sum256([]byte(User + ":" + p.o.Password))
		got := sha256.Sum256(b)
		return err == nil && subtle.ConstantTimeCompare(want[:], got[:]) == 1
	}
	return p.ownedBy(r.RemoteAddr, os.Getuid())
}

// tables are where Linux lists the TCP connections of the machine, with their owners.
var tables = [...]string{"/proc/net/tcp", "/proc/net/tcp6"}

// socketOf reports whether the other end of a loopback connection to us belongs to a user.
// Where the system does not say it is false.
func socketOf(remote string, uid int) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil || uid < 0 || !at.Addr().IsLoopback() {
		return false
	}
	for _, table := range tables {
		if owner, ok := ownerIn(table, at); ok {
			return owner == uid
		}
	}
	return false
}

// ownerIn looks for the socket of a local address in a table of the kernel.
func ownerIn(table string, at netip.AddrPort) (uid int, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	want := map[string]bool{spelled(at): true}
	if at.Addr().Is4() {
		want[spelled(netip.AddrPortFrom(netip.AddrFrom16(at.Addr().As16()), at.Port()))] = true
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		cells := strings.Fields(lines.Text())
		if len(cells) > 7 && want[cells[1]] {
			uid, err := strconv.Atoi(cells[7])
			return uid, err == nil
		}
	}
	return 0, false
}

// spelled is an address as the kernel's tables write it: words of four bytes in the order
// of the machine, which is little endian wherever we build for.
func spelled(at netip.AddrPort) string {
	b := at.Addr().AsSlice()
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	return strings.ToUpper(hex.EncodeToString(b)) + ":" + strings.ToUpper(hex.EncodeToString([]byte{byte(at.Port() >> 8), byte(at.Port())}))
}

// credential is what tells the credential of a request from others: of an Authorization
// whose text changes with each request, as that of a signature does, the part that stays.
func credential(h http.Header) string {
	text := h.Get("Authorization")
	if text == "" {
		for _, name := range []string{"X-Api-Key", "Api-Key", "Private-Token", "X-Goog-Api-Key"} {
			if v := h.Get(name); v != "" {
				return v
			}
		}
		return ""
	}
	kind, rest, _ := strings.Cut(text, " ")
	parameter := func(name string) string {
		for part := range strings.SplitSeq(rest, ",") {
			if key, value, ok := strings.Cut(strings.TrimSpace(part), "="); ok && strings.EqualFold(key, name) {
				return strings.Trim(value, `"`)
			}
		}
		return ""
	}
	switch lower := strings.ToLower(kind); {
	case strings.HasPrefix(lower, "aws4-"):
		id, _, _ := strings.Cut(parameter("Credential"), "/")
		return id
	case lower == "aws":
		id, _, _ := strings.Cut(rest, ":")
		return id
	case lower == "digest":
		return parameter("username")
	case lower == "oauth":
		return parameter("oauth_consumer_key") + " " + parameter("oauth_token")
	case lower == "bearer", lower == "token":
		return strings.TrimSpace(rest)
	}
	return text
}

// Pattern reads a host as it is named: a name, *.NAME for all below it, or an address. It
// is returned in lower case; ok is false for anything else.
func Pattern(text string) (host string, ok bool) {
	host = strings.ToLower(strings.TrimSuffix(text, "."))
	if at, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return at.String(), true
	}
	name := strings.TrimPrefix(host, "*.")
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
	}
	return host, len(name) <= 253
}

// Matches reports whether a host is that of a pattern, or one of its hosts.
func Matches(pattern, host string) bool {
	if below, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(host, below) && len(host) > len(below)
	}
	return pattern == host
}

// split is the host of an authority, in lower case, and its port, or the usual one.
func split(authority, usual string) (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = strings.Trim(authority, "[]"), usual
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	n, err := strconv.Atoi(port)
	return host, port, host != "" && err == nil && n > 0 && n < 1<<16
}
