package bulk_test

import (
	"context"
	"fmt"
	"os"

	"github.com/headway-go/headway/bulk"
)

func ExampleRun() {
	dir, err := os.MkdirTemp("", "load")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Real programs open a source with package source and a target with package
	// target.
	rows := &counter{rows: 1000, malformed: map[int64]bool{700: true}}
	sum, err := bulk.Run(context.Background(), rows, &server{}, bulk.Options{Dir: dir})
	fmt.Println(sum.State, err)
	fmt.Println(sum.Acknowledged, "acknowledged,", sum.Rejected, "rejected,", sum.Owed, "owed")
	// Output:
	// drained <nil>
	// 999 acknowledged, 1 rejected, 0 owed
}
