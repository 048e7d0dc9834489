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

// Call is a parsed request.
type Call struct {
	// Model is the model in the path or body; empty if there is none.
	Model string
	// Stream reports that the response is requested as a stream.
	Stream bool
	// MaxTokens is the request's bound on its output, over all its choices, up to
	// [quota.MaxTokens]. 0 means that it has none.
	MaxTokens int64
	// Choices is the number of requested answers, at least 1.
	Choices int64
	// Metered reports that the call costs quota. Other calls only count as attempts.
	Metered bool
	// Files reports that the call only stores files. It runs no model and so names none.
	Files bool
	// Shape is the format in which the response reports its usage.
	Shape Shape
	// Texts yields what the model of a metered call will read: messages, system prompt, and
	// tools as JSON. It is never nil and may be ranged over again. It reads the body passed
	// to [Description.Call], which must not change meanwhile.
	Texts iter.Seq[string]
	// Extra is a flat number of tokens for input other than text: images, sound, files, and
	// input that is already tokens. The estimate adds the tokens around messages.
	Extra int64
}

// Call parses a request. path is decoded and begins after the provider's name; body is the
// whole body.
//
// Call returns an error for a metered call whose body is not a JSON object or names two
// models, because upstreams would refuse it or differ in how they read it. The error
// contains no part of the body. Everything else that cannot be parsed is ignored.
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
	// An unknown call may still name a model, so that a client that is restricted to some
	// models cannot use another one through it.
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

// silence yields no texts.
func silence(func(string) bool) {}

// Classify classifies a response by [signal.Read], after renaming the upstream's limit
// headers to names that signal knows. now is the wall clock when the response arrived. The
// body of an error may be truncated.
//
// Status 402 (payment required), as several copies of OpenAI's API send it, means that a
// quota is used up, so a wait does not help. Its class stays Rejected, since it says
// nothing about the rate.
func (d *Description) Classify(now time.Time, status int, h http.Header, body []byte) signal.Signal {
	s := signal.Read(now, status, d.renamed(h), body)
	if status == http.StatusPaymentRequired && d.API != HTTP {
		s.Exhausted = true
	}
	return s
}

// renamed returns h itself if nothing is renamed. A header that already has the known name
// is kept.
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

// maxParts is the maximum number of form parts that are read.
const maxParts = 64

// form reads a form with files: the model, and flat tokens for each file. It ignores a body
// that is not a form.
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
			break // the end, or an invalid form, which the upstream will refuse
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

// Flat numbers of tokens for input other than text. The number of bytes says little about
// its cost: base64 has about one byte a token, an image hundreds. Settling corrects the
// error when the provider reports the usage.
const (
	// An image at OpenAI costs 85 tokens in low detail. In high detail it costs 85 and 170
	// for each tile of 512 pixels: 765 for 1024x1024, 1105 for 2048x4096, as in its guide
	// to vision. Without a detail the former is assumed.
	imageLow, imageAuto, imageHigh = 85, 765, 1105
	// An image at Anthropic costs width x height / 750, after scaling to at most about
	// 1,600.
	imageAnthropic = 1600
	// An image at Gemini costs 258 for each tile of 768 pixels, and so does a page of PDF.
	imageGemini = 258
	// Half a minute of sound, at 10 tokens a second at OpenAI and 32 at Gemini, where a
	// film costs 263 a second.
	soundOpenAI, soundGemini, filmGemini = 30 * 10, 30 * 32, 30 * 263
	// A document of two pages, each as text and as an image: Anthropic states 1,500 to
	// 3,000 tokens a page for the text, Gemini 258 a page in all.
	fileOpenAI, fileAnthropic, fileGemini = 2 * 1500, 2 * 2250, 2 * 258
)

// flatGemini returns the flat number for a media type in Google's API.
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

// dataURL reports whether a string is a data URL, and its flat number.
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
