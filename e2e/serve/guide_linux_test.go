package serve_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/debian"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/internal/valkeyserver"
)

// TestFleetGuide runs the commands of the guide as they are written there, but for the ports,
// against a real Valkey and PostgreSQL. The first two serve until the end; the others are
// those of one terminal, so that what one of them exports holds for the next ones.
func TestFleetGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "fleet.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	valkey, database := valkeyserver.New(t), pgserver.New(t)
	port := func() string {
		_, p, _ := strings.Cut(harness.FreeAddress(t), ":")
		return p
	}
	text := strings.NewReplacer("127.0.0.1:6379", valkey.Address, "127.0.0.1:5432", database.Address(),
		"127.0.0.1:8080", harness.FreeAddress(t), "127.0.0.1:8700", harness.FreeAddress(t), "8701", port(), "8702", port()).Replace(string(guide))
	blocks := map[string][]string{}
	for i, part := range strings.Split(text, "```") {
		if language, block, _ := strings.Cut(part, "\n"); i%2 == 1 {
			blocks[language] = append(blocks[language], block)
		}
	}
	for statement := range strings.Lines(blocks["sql"][0]) {
		database.Exec(t, database.Database(t), statement)
	}
	env := []string{"PATH=" + strings.Join([]string{
		filepath.Dir(harness.Program()), filepath.Dir(debian.Require(t, "curl", "curl")), filepath.Dir(debian.Require(t, "postgresql", "psql")), os.Getenv("PATH"),
	}, ":")}
	for i, ready := range []string{"serving demo", "serving"} {
		p := harness.Launch(t, dir, env, strings.Fields(blocks["sh"][i])[1:]...)
		p.Await(t, &p.Stderr, ready)
	}
	// What each of the other blocks prints.
	says := [][]string{
		nil, // it writes files
		{"credential 1: ", "first", "second", "heard ", "second: drained"},
		{"first: ", "attempts "}, // cut short, by its own bound
		{"fourth: ", "fifth: ", "sixth: ", "provider's limits"},
		{"postgres://" + database.Address() + "/acme", "nothing was collected into it yet", "seventh: drained"},
		{"CONNECTION  RUNS        FILE\n", "north       @every 15m  connections/north.yaml\n", "south       @every 15m  connections/south.yaml\n"},
		{"NEXT RUN", "north", "south", "conversations: 250\n"},
		{"archive.all ", "archive.recent ", "connections/archive.yaml"},
		{" 200\n", " 429\n", "RATE_HARD_LIMIT", "at " + valkey.Address + ", shared by 2 processes", "budget chat: at "},
	}
	commands := blocks["sh"][2:]
	if len(commands) != len(says) {
		t.Fatalf("%d blocks of commands, want %d", len(commands), len(says))
	}
	var exports strings.Builder
	for i, block := range commands {
		p := harness.LaunchAs(t, &syscall.SysProcAttr{Setpgid: true}, dir, env, "sh", "-ec", exports.String()+block)
		t.Cleanup(func() { _ = syscall.Kill(-p.ID(), syscall.SIGKILL) }) // what a block that fails leaves behind
		o := p.Wait(t)
		if o.Code != 0 {
			t.Fatalf("%s\n%s", block, o)
		}
		for _, text := range says[i] {
			if !strings.Contains(o.Stdout, text) {
				t.Errorf("%s\nno %q: %s", block, text, o)
			}
		}
		if strings.Contains(o.Stderr, "warning") {
			t.Errorf("%s\na reader is warned: %s", block, o)
		}
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "export ") {
				exports.WriteString(line)
			}
		}
	}
}
