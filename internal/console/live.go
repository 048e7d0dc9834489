package console

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/client"
)

const (
	// maxStreams is how many pages are kept up to date at once.
	maxStreams = 64
	// pulse is the time between two looks.
	pulse = time.Second
	// heartbeat is the time between two signs of life on a silent stream, in pulses.
	heartbeat = 15
	// redraw is the time between two looks at a chart.
	redraw = 5 * time.Second
)

// live keeps a page up to date with server-sent events: whatever of it has changed is
// rendered again, by the templates of the page.
func (c *Console) live(v *visit) error {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		return &client.Problem{Status: http.StatusServiceUnavailable, Title: "Too many pages are open"}
	}
	s := stream{visit: v, sent: map[string]string{}}
	changed, err := s.changes() // all of it: the page may be older than this stream
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	if s.send("retry: 2000\n\n"+update(changed)) != nil {
		return nil
	}
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for beat := 1; ; beat++ {
		select {
		case <-c.done:
			return nil
		case <-v.r.Context().Done():
			return nil
		case <-tick.C:
		}
		changed, err = s.changes()
		switch {
		case err != nil:
			// The page learns of it when it asks again.
			return nil
		case len(changed) > 0:
			err = s.send(update(changed))
		case beat%heartbeat == 0:
			err = s.send(": alive\n\n")
		}
		if err != nil {
			return nil
		}
	}
}

// lines are what would end a line of an event.
var lines = strings.NewReplacer("\n", " ", "\r", " ")

// update is an event with parts of a page.
func update(parts []string) string {
	return "event: part\ndata: " + lines.Replace(strings.Join(parts, "")) + "\n\n"
}

// stream is one page that is kept up to date.
type stream struct {
	*visit
	sent  map[string]string // parts as they were last rendered, by their id
	chart chart
	drawn time.Time // when the chart was read
}

// part is a piece of a page that is replaced as a whole.
type part struct {
	id, template string
	body         any
	within       string // the part that holds it; where that is replaced, this one need not be
}

// changes are the parts that are not as they were, rendered.
func (s *stream) changes() (changed []string, err error) {
	parts, err := s.parts()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	replaced := map[string]bool{}
	for _, p := range parts {
		b.Reset()
		if err := s.c.pages.ExecuteTemplate(&b, p.template, p.body); err != nil {
			return nil, err
		}
		text := strings.TrimSpace(b.String())
		if text == s.sent[p.id] {
			continue
		}
		s.sent[p.id], replaced[p.id] = text, true
		if replaced[p.within] {
			continue
		}
		// A row of a table stands alone in a template only.
		changed = append(changed, "<template>"+strings.Replace(text, " id=", ` hx-swap-oob="true" id=`, 1)+"</template>")
	}
	return changed, nil
}

// parts are those of the page that the stream is for.
func (s *stream) parts() (all []part, err error) {
	if s.text("page") == "connection" {
		d, err := s.detail()
		if err == nil && time.Since(s.drawn) >= redraw {
			s.chart, err = s.visit.chart(d.Name)
			s.drawn = time.Now()
		}
		d.Chart = s.chart
		for _, name := range []string{"now", "drawing", "steps", "limits", "tail"} {
			all = append(all, part{name, name, d, ""})
		}
		return all, err
	}
	g, err := s.glance()
	all = append(all, part{"states", "states", g, ""})
	if names := nameList(g.Rows); names != s.sent["names"] {
		s.sent["names"] = names
		all = append(all, part{"rows", "rows", g, ""})
	}
	for _, r := range g.Rows {
		all = append(all, part{rowID(r.Name), "row", r, "rows"})
	}
	return all, err
}

// nameList identifies a set of rows.
func nameList(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%q\n", r.Name)
	}
	return b.String()
}

// send writes to the page; the error says that it is gone or too slow.
func (s *stream) send(text string) error {
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return control.Flush()
}
