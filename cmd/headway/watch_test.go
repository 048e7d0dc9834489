package main

import (
	"strings"
	"testing"
)

func TestBadScheduleIsRefused(t *testing.T) {
	if _, err := newWatch("whenever"); err == nil || !strings.Contains(err.Error(), `--schedule is "whenever"`) || exitFor(err).code != exitUsage {
		t.Errorf("a bad schedule: %v", err)
	}
}
