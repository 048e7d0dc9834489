package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/signal"
)

// Call is what a request asks for.
type Call struct {
	// Model is what the path or the body names; empty when neither does.
	Model string
	// Stream says that the answer is to come in pieces.
	Stream bool
	// MaxTokens is the request's own bound on its output, for all its answers
	// together, from 0 (none is given) to [quota.MaxTokens].
	MaxTokens int64
	// Choices is how many answers are asked for, at least 1.
	Choices int64
	// Metered: the call costs quota. The others are attempts and nothing more.
	Metered bool
	// Files: the call only keeps files, and names no model because it runs none.
	Files bool
	// Shape is how the response tells its use.
	Shape Shape
	// Texts are what the model of a metered call will read: messages, system, tools
	// as JSON. It may be ranged over again, never is nil, and reads the body that
	// was given to [Description.Call], which must not change meanwhile.
	Texts iter.Seq[string]
	// Extra is flat tokens for what is not text: images, sound, files, input that
	// is tokens already. What frames messages is not among them; the estimate
	// adds it.
	Extra int64
}

// Call reads what a request asks for. The path is decoded and begins after the
// name of the provider in Headway's own paths; the body is the whole.
//
// An error is for what no upstream would take, or what two readers could take in
// two ways: a metered call whose body is not a JSON object, or which names two
// models. It says so without repeating any of the body. Everything else that
// cannot be read is left out.
func (d *Description) Call(method, path string, body []byte) (Call, error) {
	r, model := d.route(method, path)
	c := Call{Model: model, Stream: r.Stream, Choices: 1, Metered: r.Metered, Files: r.Files, Shape: r.Shape, Texts: silence}
	if d.API == HTTP {
		return c, nil
	}
	read := &reading{body: body, call: Call{Choices: 1}}
	err := read.request()
	if err != nil && r.Media && !errors.Is(err, errTwoModels) {
		read = &reading{call: Call{Choices: 1}}
		err = read.form(body, r.File)
	}
	if err != nil && (r.Metered || errors.Is(err, errTwoModels)) {
		return c, fmt.Errorf("provider: %s %s: %w", method, strings.TrimPrefix(r.Path, "**"), err)
	}
	// A call that is not known here still says which model it is for, so that who
	// is bound to models reaches no other by it.
	if c.Model == "" {
		c.Model = read.call.Model
	}
	if d.API == Gemini {
		c.Model = strings.TrimPrefix(c.Model, "models/")
	}
	if err != nil || !r.Metered {
		return c, nil
	}
	c.Stream = c.Stream || read.call.Stream && !r.verb()
	c.Choices, c.Extra = read.call.Choices, read.call.Extra
	c.MaxTokens = min(read.call.MaxTokens*c.Choices, quota.MaxTokens)
	if read.n > 0 {
		c.Texts = read.texts
	}
	return c, nil
}

// silence is not text.
func silence(func(string) bool) {}

// Classify reads what one response of the upstream tells: it is [signal.Read],
// after the upstream's own names of limit headers were put into those that it
// knows. now is the wall clock when the response came; the body of an error may be
// cut short.
//
// A payment that is required (402, as several that copy OpenAI's API answer) is a
// quota that is used up: no wait in place helps. Its class stays rejected, since
// it says nothing of the rate.
func (d *Description) Classify(now time.Time, status int, h http.Header, body []byte) signal.Signal {
	s := signal.Read(now, status, d.renamed(h), body)
	if status == http.StatusPaymentRequired && d.API != HTTP {
		s.Exhausted = true
	}
	return s
}

// renamed is h itself where nothing is to be renamed. A header that is there
// under the known name already stays.
func (d *Description) renamed(h http.Header) http.Header {
	out := h
	for from, to := range d.LimitHeaders {
		if len(h[from]) == 0 || len(h[to]) > 0 {
			continue
		}
		if len(out) == len(h) {
			out = maps.Clone(h)
		}
		out[to] = h[from]
	}
	return out
}

// maxParts is how many parts of a form are looked at.
const maxParts = 64

// form reads a form with files: the model that it names, and flat tokens for each
// file. A body that is not a form says nothing.
func (r *reading) form(body []byte, file int64) error {
	line, _, whole := bytes.Cut(body[:min(len(body), 256)], []byte("\r\n"))
	boundary, ok := bytes.CutPrefix(line, []byte("--"))
	if !ok || !whole || len(boundary) == 0 {
		return nil
	}
	parts := multipart.NewReader(bytes.NewReader(body), string(boundary))
	for range maxParts {
		p, err := parts.NextRawPart()
		if err != nil {
			break // the end, or a form that is the upstream's to refuse
		}
		if p.FileName() != "" {
			r.call.Extra += file
		}
		if p.FormName() != "model" {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(p, maxModel))
		if err != nil {
			break
		}
		if err := r.name(name); err != nil {
			return err
		}
	}
	return nil
}

// Flat figures, in tokens, for what is not text. Its bytes say little about what
// it costs: base64 runs at about one byte a token, an image at hundreds. What they
// miss is settled when the provider tells its own.
const (
	// An image at OpenAI is 85 tokens in low detail and in high detail 85 more than
	// 170 for each tile of 512 pixels: 765 for 1024x1024, 1105 for 2048x4096, as
	// its guide to vision works out. Without a detail it is the former.
	imageLow, imageAuto, imageHigh = 85, 765, 1105
	// One at Anthropic is width x height / 750, scaled down to about 1,600 first.
	imageAnthropic = 1600
	// One at Gemini is 258 for each tile of 768 pixels, and so is a page of PDF.
	imageGemini = 258
	// Sound is half a minute, of 10 tokens a second at OpenAI, 32 at Gemini, where
	// a film is 263 a second.
	soundOpenAI, soundGemini, filmGemini = 30 * 10, 30 * 32, 30 * 263
	// A document is two pages, each as text and as an image: Anthropic says 1,500
	// to 3,000 tokens a page for the text, Gemini 258 a page in all.
	fileOpenAI, fileAnthropic, fileGemini = 2 * 1500, 2 * 2250, 2 * 258
)

// flatGemini is the figure for a media type in Google's own API.
func flatGemini(mime []byte) int64 {
	switch {
	case bytes.HasPrefix(mime, []byte("image/")):
		return imageGemini
	case bytes.HasPrefix(mime, []byte("audio/")):
		return soundGemini
	case bytes.HasPrefix(mime, []byte("video/")):
		return filmGemini
	default:
		return fileGemini
	}
}

// dataURL reports whether a string holds data instead of words, and the figure.
func dataURL(s []byte) (flat int64, ok bool) {
	if !bytes.HasPrefix(s, []byte("data:")) || !bytes.Contains(s[:min(len(s), 128)], []byte(";base64,")) {
		return 0, false
	}
	switch {
	case bytes.HasPrefix(s, []byte("data:image/")):
		return imageAuto, true
	case bytes.HasPrefix(s, []byte("data:audio/")):
		return soundOpenAI, true
	default:
		return fileOpenAI, true
	}
}
