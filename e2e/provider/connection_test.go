//go:build unix

package provider_test

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
)

// connection is a connection file. Zero fields take defaults that are fast.
type connection struct {
	ceiling, initial, step string
	page                   int // items of a list page
	concurrency            int
	records                string // expression for the items of a page
	provider               string // more of the provider section, indented by two
}

// pageSize is the default of connection.page.
const pageSize = 20

func (c connection) yaml() string {
	return fmt.Sprintf(`connection: chat-archive
provider:
  base_url: ${CHAT_URL}
  auth: {bearer: ${CHAT_TOKEN}}
  ceiling: %s
  pacing: {initial: %s, step: %s, law: aimd}
%sstreams:
  - name: conversations
    list: {path: /conversations, query: {limit: "%d"}}
    records: %s
    key: .id
    paginate: {cursor: .next_cursor, param: cursor}
    incremental: {cursor: .updated_at, param: updated_after}
    detail:
      stream: messages
      path: /conversations/{key}
      records: .messages
      key: .id
run: {max_wall_clock: 15m, concurrency: %d}
sink: {jsonl: {dir: ./out}}
`, cmp.Or(c.ceiling, "1ms"), cmp.Or(c.initial, "2ms"), cmp.Or(c.step, "1ms"), c.provider,
		cmp.Or(c.page, pageSize), cmp.Or(c.records, ".items"), cmp.Or(c.concurrency, 1))
}

// newWorkplace is a folder of its own with that connection file.
func newWorkplace(t *testing.T, url string, c connection) harness.Workplace {
	t.Helper()
	return harness.NewWorkplace(t, url, c.yaml())
}
