package daemon

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/store/sqlite"
)

// archive reads what was collected. As long as nothing was, there is no
// database, and it is empty.
type archive struct {
	path string

	mu   sync.Mutex
	open *sqlite.Reader
}

// reader is nil while there is no database.
func (a *archive) reader(ctx context.Context) (*sqlite.Reader, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open != nil {
		return a.open, nil
	}
	r, err := sqlite.OpenReader(ctx, a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.open = r
	return r, nil
}

func (a *archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		return nil
	}
	err := a.open.Close()
	a.open = nil
	return err
}

// Connections is that of the store.
func (a *archive) Connections(ctx context.Context) ([]collect.ConnectionStatus, error) {
	r, err := a.reader(ctx)
	if r == nil {
		return nil, err
	}
	return r.Connections(ctx)
}

// Runs is that of the store.
func (a *archive) Runs(ctx context.Context, connection string, limit int) ([]collect.Run, error) {
	r, err := a.reader(ctx)
	if r == nil {
		return nil, err
	}
	return r.Runs(ctx, connection, limit)
}

// Gaps is that of the store.
func (a *archive) Gaps(ctx context.Context, f collect.GapFilter) ([]collect.Gap, error) {
	r, err := a.reader(ctx)
	if r == nil {
		return nil, err
	}
	return r.Gaps(ctx, f)
}

// Events is that of the store.
func (a *archive) Events(ctx context.Context, run string) ([]event.Event, error) {
	r, err := a.reader(ctx)
	if r == nil {
		return nil, err
	}
	return r.Events(ctx, run)
}
