// Package pgsql is what the store and the sink share about PostgreSQL databases: how one is
// addressed, what a text there can hold, and what an error of the server means. It
// connects to nothing.
package pgsql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// MaxWait bounds each statement, unless the URL says otherwise, and how long a server
// that went away is waited for.
const MaxWait = time.Minute

// ConnectTime bounds opening a session, unless the URL says otherwise.
const ConnectTime = 10 * time.Second

// Names reports whether a text names a database by its scheme: postgres:// or
// postgresql://.
func Names(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// Parse reads the URL of a database, and how many sessions it allows, which the
// parameter pool_max_conns says. Timeouts and the encoding are set. No error has the
// password.
func Parse(at string, maxSessions int) (config *pgx.ConnConfig, sessions int, err error) {
	sessions = maxSessions
	config, err = pgx.ParseConfig(at)
	if err != nil {
		return nil, 0, fmt.Errorf("the address of the PostgreSQL database cannot be read: %w: "+
			"write postgres://user@host:5432/database", err)
	}
	if text, ok := config.RuntimeParams["pool_max_conns"]; ok {
		if sessions, err = strconv.Atoi(text); err != nil || sessions < 2 {
			return nil, 0, fmt.Errorf("pool_max_conns is %q: it must be a number of at least 2", text)
		}
		delete(config.RuntimeParams, "pool_max_conns")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = ConnectTime
	}
	for name, value := range map[string]string{
		"application_name":                    "headway",
		"statement_timeout":                   strconv.FormatInt(MaxWait.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(MaxWait.Milliseconds(), 10),
	} {
		if config.RuntimeParams[name] == "" {
			config.RuntimeParams[name] = value
		}
	}
	// Columns and casts say what texts mean; what a role or a database sets must not.
	config.RuntimeParams["client_encoding"] = "UTF8"
	return config, sessions, nil
}

// Watch makes the server notice within half a minute that the client of a session is gone.
// Then it frees the session's locks.
func Watch(config *pgx.ConnConfig) {
	maps.Copy(config.RuntimeParams, map[string]string{"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"})
}

// Place is the database for people: without user, password and settings.
func Place(c *pgx.ConnConfig) string {
	u := url.URL{Scheme: "postgres", Host: net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), Path: "/" + c.Database}
	if strings.HasPrefix(c.Host, "/") { // the folder of a socket
		u.Host, u.RawQuery = "", "host="+c.Host
	}
	if path := c.RuntimeParams["search_path"]; path != "" {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&search_path="+path, "&")
	}
	return u.String()
}

// Schema is the one schema that a search path names; empty if it names none or
// several.
func Schema(path string) string {
	path = strings.TrimSpace(path)
	if quoted, ok := strings.CutPrefix(path, `"`); ok && strings.HasSuffix(quoted, `"`) {
		return strings.ReplaceAll(strings.TrimSuffix(quoted, `"`), `""`, `"`)
	}
	if strings.ContainsAny(path, `,$"`) {
		return ""
	}
	return strings.ToLower(path)
}

// Lost reports whether the server, or the way to it, went away: another try may find it
// again.
func Lost(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "57P01", "57P02", "57P03", "53300": // it shuts down, has crashed, starts; too many sessions
			return true
		}
		return strings.HasPrefix(e.Code, "08")
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.HasSuffix(err.Error(), "conn closed") // pgx says so by text alone
}

// Contended reports whether two transactions were in each other's way.
func Contended(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}

// Advise says what to do about an error of the server; "" if there is nothing to say.
func Advise(err error) string {
	if errors.Is(err, context.Canceled) {
		return ""
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting {
			return "the server cannot be reached: see that it runs and that host and port are right"
		}
		return ""
	}
	switch e.Code {
	case "28000", "28P01":
		return "the server does not let this user in: see user, password (PGPASSWORD or a password file) and pg_hba.conf"
	case "3D000":
		return "there is no such database: create it with createdb, Headway creates only its schema and tables"
	case "3F000":
		return "there is no schema for the tables: name one by search_path"
	case "42501":
		return "this user lacks a right: let it own a schema (CREATE SCHEMA ... AUTHORIZATION) and name that by search_path"
	case "25006":
		return "the server takes no writes, it is a standby: name the primary (target_session_attrs=read-write finds it)"
	case "53100":
		return "the server's disk is full: free some space; what was committed is kept"
	case "53300":
		return "the server has no session left: raise its max_connections, or lower pool_max_conns in the URL"
	case "54000":
		return "a key is too long for an index of PostgreSQL, which takes some 2,700 bytes"
	case "57014":
		return "the server ended the statement, which took longer than statement_timeout"
	case "57P01", "57P02", "57P03":
		return "the server is stopping or starting: run again when it is there"
	}
	return ""
}

// Escape makes any bytes a text that PostgreSQL takes, which is UTF-8 without NUL. What is
// not is written otherwise: byte 0 as \x01\x01, byte 1 as \x01\x02, and a byte that is not UTF-8 as
// \x01\x03 and two hexadecimal digits. All other text stands as it is, and valid UTF-8
// keeps its order.
func Escape(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 && strings.IndexByte(s, 1) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "\x01\x03%02x", s[i])
		case r == 0:
			b.WriteString("\x01\x01")
		case r == 1:
			b.WriteString("\x01\x02")
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Unescape gives what Escape was given.
func Unescape(s string) string {
	if strings.IndexByte(s, 1) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 1 || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 1:
			b.WriteByte(0)
		case 2:
			b.WriteByte(1)
		case 3:
			var c byte
			if i+2 < len(s) {
				_, _ = fmt.Sscanf(s[i+1:i+3], "%02x", &c)
			}
			b.WriteByte(c)
			i += 2
		}
	}
	return b.String()
}
