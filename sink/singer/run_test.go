package singer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/store/sqlite"
)

// shelf is a provider in memory: pages of two books, a detail of two notes each.
type shelf struct{ books int }

func (shelf) Streams() []connector.Stream {
	return []connector.Stream{{Name: "books", Key: "id", DetailStream: "notes"}}
}

func (s shelf) List(_ context.Context, _ connector.Caller, r connector.ListRequest) (connector.Page, error) {
	at := 0
	if r.Cursor != "" {
		if _, err := fmt.Sscan(r.Cursor, &at); err != nil {
			return connector.Page{}, err
		}
	}
	var p connector.Page
	for i := at; i < min(at+2, s.books); i++ {
		p.Items = append(p.Items, connector.Item{Key: fmt.Sprint(i), Data: json.RawMessage(fmt.Sprintf(`{"id":%d,"col%d":true}`, i, i%3))})
	}
	if at+2 < s.books {
		p.Next = fmt.Sprint(at + 2)
	}
	return p, nil
}

func (shelf) Detail(_ context.Context, _ connector.Caller, _ string, it connector.Item) ([]connector.Record, error) {
	return []connector.Record{
		{Key: "0", Data: json.RawMessage(`{"text":"first of ` + it.Key + `"}`)}, {Key: "1", Data: json.RawMessage(`{"text":2}`)},
	}, nil
}

// dying is a store whose nth commit does not happen, or happens unheard.
type dying struct {
	collect.Store
	n       int
	unheard bool
}

var errDied = errors.New("the process died")

func (d *dying) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if d.n--; d.n != 0 {
		return d.Store.Commit(ctx, l, c)
	}
	if d.unheard {
		return errors.Join(d.Store.Commit(ctx, l, c), errDied)
	}
	return errDied
}

// TestARunThatDiesAnywhereIsMadeGood collects into a strict target, dies at
// each commit, before and after it, and collects the rest.
func TestARunThatDiesAnywhereIsMadeGood(t *testing.T) {
	for _, unheard := range []bool{false, true} {
		for at, died := 1, true; died; at++ {
			store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
			if err != nil {
				t.Fatal(err)
			}
			target := newTarget()
			failing := &dying{Store: store, n: at, unheard: unheard}
			for range 2 {
				state, err := store.Load(t.Context(), "shelf")
				if err != nil {
					t.Fatal(err)
				}
				target.session(state.Sink)
				c, err := collect.New(collect.Options{
					Connection: "shelf", Connector: shelf{books: 5}, Store: failing, Sink: New(target),
					Pacing: headway.Config{Ceiling: 1, Initial: 1},
				})
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Run(t.Context())
				if died = errors.Is(err, errDied); !died {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
			}
			if n, notes := len(target.tables["books"]), len(target.tables["notes"]); n != 5 || notes != 10 {
				t.Fatalf("death at %d: %d books and %d notes, want 5 and 10", at, n, notes)
			}
			last := target.states[len(target.states)-1].Bookmarks
			if last["books"].Position != 5 || last["notes"].Position != 10 {
				t.Fatalf("death at %d: the last state is %v", at, last)
			}
			died = failing.n <= 0
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if !died && at < 4 {
				t.Fatalf("%d commits, want more", at)
			}
		}
	}
}
