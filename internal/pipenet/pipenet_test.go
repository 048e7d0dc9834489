package pipenet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/headway-go/headway/internal/pipenet"
)

func TestDialsMeetAcceptsUntilClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.New()
		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}()
		c, err := l.Dial(t.Context(), "tcp", "anywhere:80")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(c); string(text) != "hello" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := l.Dial(ended, "", ""); !errors.Is(err, context.Canceled) {
			t.Errorf("a dial that nobody waits for: %v", err)
		}
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after the end: %v", err)
		}
		if _, err := l.Dial(t.Context(), "", ""); err == nil {
			t.Error("somebody listens after the end")
		}
	})
}
