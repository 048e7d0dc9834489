package learn

import (
	"os"
	"regexp"
	"testing"
)

func TestTheDocumentNamesConstantsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../../docs/law.md")
	if err != nil {
		t.Fatal(err)
	}
	tuning, err := os.ReadFile("tuning.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(string(text), -1)
	names := 0
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([a-z][A-Za-z]+)`").FindAllStringSubmatch(row[1], -1) {
			names++
			if !regexp.MustCompile(`(?m)^\t(.*\W)?` + m[1] + `\W.*=`).Match(tuning) {
				t.Errorf("docs/law.md names %s, which tuning.go does not have", m[1])
			}
		}
	}
	if names < 20 {
		t.Errorf("docs/law.md names %d constants, want at least 20", names)
	}
}

// Before any refusal a window is as likely to count attempts as their cost, and less likely to count time.
func TestWhatAWindowIsLikelyToCount(t *testing.T) {
	if doubtUnit[attempts] != doubtUnit[cost] || doubtUnit[busy] <= doubtUnit[cost] {
		t.Errorf("the assumed errors are %v", doubtUnit)
	}
}
