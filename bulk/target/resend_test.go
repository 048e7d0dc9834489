package target_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-go/headway/reason"
)

// net/http sends a request again by itself when a connection that it had kept
// breaks under it and the request looks safe to repeat, as one with an
// Idempotency-Key does. Where the file says that nothing may be sent twice, it
// does not.
func TestNothingIsSentTwiceBehindTheLoadsBack(t *testing.T) {
	for resend, want := range map[string]int64{"never": 2, "with_key": 3} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		var got atomic.Int64
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				in := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if got.Add(1) == 2 {
						break // the batch may be written, and there is no answer
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				_ = conn.Close()
			}
		}()
		c := parse(t, "target: a\nhttp: {url: \"http://"+l.Addr().String()+"\", key_header: Idempotency-Key, resend: "+resend+"}\n")
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		to := c.Target(client)
		if o := to.Send(t.Context(), 0, batch(`{}`)); o.Class != reason.OK {
			t.Fatalf("the first batch: %+v", o)
		}
		o := to.Send(t.Context(), 0, batch(`{}`))
		if lost := o.Class == reason.Lost && o.Doubt; got.Load() != want || lost != (resend == "never") {
			t.Errorf("%s: %d requests for two batches, want %d; the second is %+v", resend, got.Load(), want, o)
		}
	}
}

// A row that names its own type or record would contradict the target.
func TestARowDoesNotSayWhereItGoes(t *testing.T) {
	const byKey = "target: a\ndataverse: {url: \"URL\", table: contacts, type: contact, operation: upsert, key: [code]}\n"
	url, got := serve(t, reply(204, ""))
	o := send(t, byKey, url, batch(`{"code":"a","@odata.id":"accounts(1)"}`, `{"code":"b","x":"\"@odata.id\":"}`, `{"code":"c","@odata.type":"Microsoft.Dynamics.CRM.account"}`, `{"code":"d","@odata.etag":"W/1"}`))
	if want := []int{0, 2}; len(o.Problems) != 4 || o.Problems[0].Code != "unsendable" || o.Problems[2].Code != "unsendable" || o.Problems[1].Code+o.Problems[3].Code != "" {
		t.Errorf("problems %+v, want rows %v refused unsent", o.Problems, want)
	}
	if body := got()[0].body; strings.Contains(body, "account") || !strings.Contains(body, `code='b'`) || !strings.Contains(body, `code='d'`) {
		t.Errorf("sent %s", body)
	}
	o = send(t, upsert, url, batch(`{"@odata.id":"contacts(1)"}`))
	if o.Class != reason.OK || o.Rows != nil {
		t.Errorf("without a key, the row names its record: %+v", o)
	}
}
