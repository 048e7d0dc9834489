package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/samples"
)

// Rates are sampled every lookEvery, and the samples are stored every storeEvery and at the
// stop. A daemon that is killed loses at most storeEvery of its charts.
const (
	lookEvery  = 2 * time.Second
	storeEvery = 5 * time.Minute
)

// sampler samples the rates of connections for charts.
type sampler struct {
	book *samples.Book
	end  context.CancelFunc
	done sync.WaitGroup
}

// readSamples reads the stored samples. Without a file it returns an empty book. A damaged
// file is renamed and logged, since only charts need it.
func readSamples(path string, log *slog.Logger) (*samples.Book, error) {
	data, err := atomicfile.Read(path, samples.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return &samples.Book{}, nil
	}
	if err == nil {
		var b *samples.Book
		if b, err = samples.Decode(data); err == nil {
			return b, nil
		}
	}
	aside := path + ".unread"
	if moved := os.Rename(path, aside); moved != nil {
		return nil, fmt.Errorf("daemon: the samples: %s: %w; it cannot be put aside either: %w", path, err, moved)
	}
	log.Warn("the samples of charts cannot be read and were put aside; charts begin again", slog.String("file", aside), slog.Any("error", err))
	return &samples.Book{}, nil
}

func (d *Daemon) samplesPath() string { return filepath.Join(d.config.State, samples.FileName) }

// keepLooking starts the sampler.
func (d *Daemon) keepLooking() *sampler {
	ctx, end := context.WithCancel(context.Background())
	s := &sampler{book: d.samples.Load(), end: end}
	path := d.samplesPath()
	s.done.Go(func() {
		look, store := time.NewTicker(lookEvery), time.NewTicker(storeEvery)
		defer look.Stop()
		defer store.Stop()
		for {
			select {
			case <-ctx.Done():
				s.book.Add(time.Now(), looks(d.rates()))
				d.storeSamples(path, s.book)
				return
			case <-look.C:
				s.book.Add(time.Now(), looks(d.rates()))
				d.storeUsage(ctx)
			case <-store.C:
				d.storeSamples(path, s.book)
			}
		}
	})
	return s
}

// stop takes a last sample and stores the book.
func (s *sampler) stop() {
	if s != nil {
		s.end()
		s.done.Wait()
	}
}

// storeSamples writes the file. A failure is logged, and the next write is a new try.
func (d *Daemon) storeSamples(path string, b *samples.Book) {
	data, err := b.Encode(time.Now())
	if err == nil {
		err = atomicfile.Write(disk.OS{}, path, data)
	}
	if err != nil {
		d.log.Warn("the samples of charts were not stored", slog.Any("error", err))
	}
}

// looks converts live rates to samples.
func looks(all []api.Live) []samples.Look {
	list := make([]samples.Look, len(all))
	for i, l := range all {
		list[i] = samples.Look{Connection: l.Connection, Refused: l.Throttled, Epoch: l.Run, Waiting: l.Waiting}
		if l.Rate != nil && l.Rate.EffectiveRatePerMin > 0 {
			list[i].Known, list[i].Rate, list[i].Ceiling = true, l.Rate.EffectiveRatePerMin, l.Rate.CeilingRatePerMin
		}
	}
	return list
}
