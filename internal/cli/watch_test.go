package cli

import (
	"strings"
	"testing"

	"github.com/headway-go/headway/connector/rest"
)

func TestBadScheduleIsRefused(t *testing.T) {
	if _, err := newWatch("whenever", rest.Run{}, ""); err == nil || !strings.Contains(err.Error(), `--schedule is "whenever"`) || exitFor(err).code != exitUsage {
		t.Errorf("a bad schedule: %v", err)
	}
}
