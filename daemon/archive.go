package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
)

// ratesVersion is that of the file's form, maxRates its bound in bytes.
const (
	ratesVersion = 1
	maxRates     = 16 << 20
)

// rate is what a provider's connection learned, and when.
type rate struct {
	Law        string    `json:"law"`
	Version    int       `json:"version"`
	IntervalNS int64     `json:"interval_ns"`
	RecordedAt time.Time `json:"recorded_at"`
	State      []byte    `json:"state,omitempty"`
	// Pools are what was learned of models, by their names.
	Pools map[string]rate `json:"pools,omitempty"`
	// Keys are what was learned by each of several keys, by their names; then the rest is
	// empty.
	Keys map[string]rate `json:"keys,omitempty"`
}

func (r rate) learned() control.State {
	return control.State{Law: r.Law, Version: r.Version, Interval: time.Duration(r.IntervalNS), Data: r.State}
}

func rateOf(s control.State, at time.Time) rate {
	return rate{Law: s.Law, Version: s.Version, IntervalNS: int64(s.Interval), RecordedAt: at.UTC(), State: s.Data}
}

// ratesContent is the file: what was learned of providers, by their names.
type ratesContent struct {
	Version int             `json:"version"`
	Rates   map[string]rate `json:"rates"`
	// Unasked are the models that refuse to be asked for the usage of their streams,
	// and since when.
	Unasked map[string]map[string]time.Time `json:"unasked,omitempty"`
	// Estimates are what calls to the models of each provider use.
	Estimates map[string]map[string]egress.Estimates `json:"estimates,omitempty"`
}

// readRates reads what was learned; nothing when there is no file. One that cannot
// be understood is put aside: what was learned can be learned again.
func readRates(path string, log *slog.Logger) (none ratesContent, err error) {
	b, err := atomicfile.Read(path, maxRates)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil && !errors.Is(err, atomicfile.ErrTooLarge) {
		return none, fmt.Errorf("daemon: the learned rates: %w", err)
	}
	var c ratesContent
	if err == nil {
		c, err = decodeRates(b)
	}
	if err == nil {
		return c, nil
	}
	aside := path + ".unread"
	if moved := os.Rename(path, aside); moved != nil {
		return none, fmt.Errorf("daemon: the learned rates: %s: %w; it cannot be put aside either: %w", path, err, moved)
	}
	log.Warn("the learned rates cannot be read and were put aside; pacing begins again", slog.String("file", aside), slog.Any("error", err))
	return none, nil
}

func decodeRates(b []byte) (c ratesContent, err error) {
	if err := json.Unmarshal(b, &c); err != nil {
		return ratesContent{}, fmt.Errorf("not a file of rates: %w", err)
	}
	if c.Version != ratesVersion {
		return ratesContent{}, fmt.Errorf("its version is %d, this program reads version %d", c.Version, ratesVersion)
	}
	return c, nil
}

// writeRates replaces the file; when it returns nil the file is durable. The
// state's folder is locked, so that nobody else writes there.
func writeRates(path string, c ratesContent) error {
	c.Version = ratesVersion
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("daemon: the learned rates: %w", err)
	}
	if err := atomicfile.Write(disk.OS{}, path, append(b, '\n')); err != nil {
		return fmt.Errorf("daemon: the learned rates: %w", err)
	}
	return nil
}
