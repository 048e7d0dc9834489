package events

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/quota"
)

// Webhook sends the entries of a hub to a URL, a few at a time, as JSON of the form
// [Delivery]. The hub's own entries are its queue: what a slow receiver misses is counted.
type Webhook struct {
	URL string
	// Secret signs: the header Headway-Signature is "t=SECONDS,v1=HEX", the HMAC-SHA256 of
	// the seconds, a dot and the body.
	Secret string
	// Types selects entries by type; empty selects all.
	Types []string
	// OnDrop is called with how many entries the receiver did not get, as that is known; nil
	// calls nothing.
	OnDrop func(n uint64)
	// Log gets a line when deliveries begin to fail, and when they succeed again.
	Log *slog.Logger
}

// Delivery is the body of one request.
type Delivery struct {
	Entries []Entry `json:"entries"`
	// Dropped counts entries that are missing before these: the receiver was too slow, or
	// refused them.
	Dropped uint64 `json:"dropped"`
}

const (
	hookTime   = 10 * time.Second // for one attempt
	hookTries  = 8
	hookPause  = time.Second // after the first failure; it doubles
	maxPause   = time.Minute
	hookAnswer = 64 << 10 // of an answer that is read, so that its connection is used again
)

// Types are the types that entries can have.
func Types() []string {
	all := []string{}
	for _, t := range []event.Type{
		event.CollectionRate, event.Circuit, event.WarmStart, event.Phase, event.Deferral, event.ConnectionChanged, event.Warning, event.Fleet,
		event.RunStart, event.RunEnd,
	} {
		all = append(all, string(t))
	}
	for _, t := range []quota.EventType{
		quota.EventThrottle, quota.EventResume, quota.EventSoftPressure, quota.EventExhausted, quota.EventAdaptiveScale, quota.EventDenied,
		quota.EventBackoff, quota.EventConfig, quota.EventFleet,
	} {
		all = append(all, string(t))
	}
	return all
}

// Run sends what the reader has until its hub is closed and all is sent, or ctx ends. A delivery that fails for a
// reason that may pass is tried again, later and later, up to 8 times. Redirects are not
// followed: they could lead to an address that the owner did not name.
func (w *Webhook) Run(ctx context.Context, r *Reader) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport, Timeout: hookTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var d Delivery
	failing := false
	for {
		entries, more, open := r.Next()
		if !open {
			return
		}
		d.Entries = d.Entries[:0]
		for _, e := range entries {
			switch {
			case e.Type == Dropped:
				d.Dropped += e.Dropped
				w.dropped(e.Dropped)
			case len(w.Types) == 0 || slices.Contains(w.Types, e.Type):
				d.Entries = append(d.Entries, e)
			}
		}
		if len(d.Entries) > 0 {
			err := w.deliver(ctx, client, &d)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				d.Dropped += uint64(len(d.Entries))
				w.dropped(uint64(len(d.Entries)))
				if !failing {
					w.Log.Warn("a webhook fails; its events are dropped and counted", slog.String("reason", err.Error()))
				}
			default:
				if failing {
					w.Log.Info("a webhook takes events again", slog.Uint64("dropped", d.Dropped))
				}
				d.Dropped = 0
			}
			failing = err != nil
		}
		if len(entries) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Webhook) dropped(n uint64) {
	if w.OnDrop != nil {
		w.OnDrop(n)
	}
}

// deliver sends one delivery. The error holds no address.
func (w *Webhook) deliver(ctx context.Context, client *http.Client, d *Delivery) error {
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	pause := hookPause
	for try := 1; ; try++ {
		again, err := w.send(ctx, client, d.Entries[len(d.Entries)-1].ID, body)
		if err == nil || !again || try == hookTries {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, maxPause)
	}
}

// Header fields of a request to a webhook.
const (
	headerDelivery  = "Headway-Delivery"  // The number of the delivery, the same each time that it is sent, so that a receiver can drop what it has.
	headerSignature = "Headway-Signature" // The text t=SECONDS,v1=HEX: the HMAC-SHA256, by the secret, of the seconds, a dot and the body.
)

// send makes one attempt; again says that another one may succeed.
func (w *Webhook) send(ctx context.Context, client *http.Client, id string, body []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("the URL cannot be used")
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(w.Secret))
	_, _ = fmt.Fprintf(mac, "%s.%s", at, body) // never fails
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "headway")
	r.Header.Set(headerDelivery, id)
	r.Header.Set(headerSignature, "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
	res, err := client.Do(r)
	if err != nil {
		return true, fmt.Errorf("it cannot be reached")
	}
	_, _ = io.CopyN(io.Discard, res.Body, hookAnswer)
	_ = res.Body.Close()
	switch {
	case res.StatusCode/100 == 2:
		return false, nil
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusRequestTimeout, res.StatusCode >= 500:
		return true, fmt.Errorf("it answered %d", res.StatusCode)
	}
	return false, fmt.Errorf("it answered %d", res.StatusCode)
}
