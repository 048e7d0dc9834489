package target

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// secrets are texts that a request carries and that nothing may keep.
type secrets [][]byte

// minSecret is the length in bytes from which a text is taken out of answers:
// a shorter one is in many a word.
const minSecret = 6

// secrets are those of a request: the credential as it is sent, and whatever a
// reference of the target file stands for.
func (t *Target) secrets(identity int, req *http.Request) (s secrets) {
	auth := t.config.Identities[identity].Auth
	s.add(auth.Value.Reveal())
	if auth.Header != "" {
		sent := req.Header.Get(auth.Header)
		s.add(sent)
		if _, credential, ok := strings.Cut(sent, " "); ok {
			s.add(credential)
		}
	}
	for name := range t.config.Headers {
		if v := t.config.Headers.Get(name); v != t.config.written.Get(name) {
			s.add(v)
		}
	}
	return s
}

// add adds a text, also as JSON has it.
func (s *secrets) add(text string) {
	if len(text) < minSecret {
		return
	}
	*s = append(*s, []byte(text))
	if quoted, err := json.Marshal(text); err == nil && len(quoted) > len(text)+2 {
		*s = append(*s, quoted[1:len(quoted)-1])
	}
}

// blank takes them out of an answer: some servers and proxies repeat a request's
// headers in an error, and errors are kept in the reject file.
func (s secrets) blank(body []byte) []byte {
	for _, text := range s {
		if bytes.Contains(body, text) {
			body = bytes.ReplaceAll(body, text, []byte("(credential)"))
		}
	}
	return body
}
