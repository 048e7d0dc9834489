package provider

import "bytes"

// Flat figures, in tokens, for what is not text. Its bytes say little about what
// it costs: base64 runs at about one byte a token, an image at hundreds. What they
// miss is settled when the provider tells its own.
const (
	// An image at OpenAI is 85 tokens in low detail and in high detail 85 more than
	// 170 for each tile of 512 pixels: 765 for 1024x1024, 1105 for 2048x4096, as
	// its guide to vision works out. Untold detail is the former.
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
