package rest

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkList reads a page of 100 records of about 1 KiB, by plain field
// paths and by the same expressions through jq.
func BenchmarkList(b *testing.B) {
	items := make([]string, 100)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id": %d, "updated_at": "2024-05-01T00:00:%02dZ", "text": %q, "tags": [1, 2, {"a": null}]}`, i, i%60, strings.Repeat("x", 900))
	}
	body := `{"items": [` + strings.Join(items, ",\n") + `], "next": "n"}`
	for name, stream := range map[string]string{
		"paths": "records: .items, key: .id, incremental: {cursor: .updated_at, param: s}, paginate: {cursor: .next, param: c}",
		"jq":    "records: (.items), key: (.id), incremental: {cursor: (.updated_at), param: s}, paginate: {cursor: (.next), param: c}",
	} {
		b.Run(name, func(b *testing.B) {
			c, call := connect(b, "https://h", stream), answering(body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if page, err := list(b, c, call); err != nil || len(page.Items) != 100 {
					b.Fatal(err)
				}
			}
		})
	}
}
