package connector

import (
	"bytes"
	"net/http"
)

// tlsWanted are the words of servers whose TLS port met a plain request.
var tlsWanted = [][]byte{
	[]byte("Client sent an HTTP request to an HTTPS server"),    // Go
	[]byte("The plain HTTP request was sent to HTTPS port"),     // nginx
	[]byte("speaking plain HTTP to an SSL-enabled server port"), // Apache
	[]byte("This combination of host and port requires TLS"),    // Tomcat
}

// SpeaksTLS reports whether the answer to a plain HTTP request says that its port
// speaks https alone: the address that is configured has the wrong scheme or port.
func SpeaksTLS(status int, body []byte) bool {
	if status != http.StatusBadRequest {
		return false
	}
	for _, words := range tlsWanted {
		if bytes.Contains(body, words) {
			return true
		}
	}
	return false
}
