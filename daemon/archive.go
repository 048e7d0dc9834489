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

// ratesVersion is the version of the file format, maxRates the maximum size in bytes.
const (
	ratesVersion = 1
	maxRates     = 16 << 20
)

// rate is the learned state of a connection, and when it was learned.
type rate struct {
	Law        string    `json:"law"`
	Version    int       `json:"version"`
	IntervalNS int64     `json:"interval_ns"`
	RecordedAt time.Time `json:"recorded_at"`
	State      []byte    `json:"state,omitempty"`
	// Pools are the learned states of models, by name.
	Pools map[string]rate `json:"pools,omitempty"`
	// Keys are the learned states of several keys, by name. When set, the other fields
	// are empty.
	Keys map[string]rate `json:"keys,omitempty"`
}

func (r rate) learned() control.State {
	return control.State{Law: r.Law, Version: r.Version, Interval: time.Duration(r.IntervalNS), Data: r.State}
}

func rateOf(s control.State, at time.Time) rate {
	return rate{Law: s.Law, Version: s.Version, IntervalNS: int64(s.Interval), RecordedAt: at.UTC(), State: s.Data}
}

// ratesContent is the content of the file: the learned rates of providers, by name.
type ratesContent struct {
	Version int             `json:"version"`
	Rates   map[string]rate `json:"rates"`
	// Unasked are the models, by provider, that refuse requests to report the usage of
	// streams, and since when.
	Unasked map[string]map[string]time.Time `json:"unasked,omitempty"`
	// Estimates are the expected usage of calls, by provider and model.
	Estimates map[string]map[string]egress.Estimates `json:"estimates,omitempty"`
}

// readRates reads the learned rates. Without a file it returns none. A damaged file is
// renamed and logged, since rates can be learned again.
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
		return none, fmt.Errorf("daemon: the learned rates: %s: %w; and it could not be moved aside: %w", path, err, moved)
	}
	log.Warn("the learned rates could not be read and were moved aside; learning starts again", slog.String("file", aside), slog.Any("error", err))
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

// writeRates replaces the file. When it returns nil, the file is durable. The state folder
// is locked, so there is no other writer.
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
