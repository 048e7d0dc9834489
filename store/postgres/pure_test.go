package postgres

import (
	"cmp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/pgsql"
)

// TestTextComesBackAndKeepsItsOrder: any bytes become a text that PostgreSQL takes, and
// valid texts sort as before.
func TestTextComesBackAndKeepsItsOrder(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.ByteRange(0, 3)), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		if e := pgsql.Escape(a); pgsql.Unescape(e) != a || !utf8.ValidString(e) || strings.IndexByte(e, 0) >= 0 {
			t.Fatalf("%q became %q and then %q", a, e, pgsql.Unescape(e))
		}
		if utf8.ValidString(a) && utf8.ValidString(b) && cmp.Compare(a, b) != cmp.Compare(pgsql.Escape(a), pgsql.Escape(b)) {
			t.Fatalf("%q and %q changed their order", a, b)
		}
	})
	for _, cut := range []string{"\x01", "a\x01\x03", "\x01\x039", "\x01\x09"} {
		_ = pgsql.Unescape(cut) // nothing that escape gives, and no panic
	}
}

func TestAdjust(t *testing.T) {
	at := func(s time.Duration) time.Time { return time.Unix(1000, 0).Add(s * time.Second) }
	for _, c := range []struct {
		name                   string
		ahead                  time.Duration
		sent, server, received time.Duration
		want                   time.Duration
	}{
		{"clocks that may agree agree", 0, 0, 2, 5, 0},
		{"what was thought stays while it is possible", -1, 0, 2, 5, -1},
		{"a server that is ahead is so at least by this", 0, 0, 102, 5, 97},
		{"a server that is behind", 0, 0, -100, 5, -100},
		{"a clock here that was set back by a minute", 0, -60, 0, -60, 60},
		{"what has become impossible is corrected by as little as that takes", 97, 0, 50, 5, 50},
	} {
		if got := adjust(c.ahead*time.Second, at(c.sent), at(c.server), at(c.received)); got != c.want*time.Second {
			t.Errorf("%s: %v, want %v s", c.name, got, int64(c.want))
		}
	}
}

func TestSchemaOf(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "headway": "headway", " Headway ": "headway", `"A ""b"""`: `A "b"`, "a,b": "", `"$user", public`: "", "$user": "",
	} {
		if got := pgsql.Schema(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
