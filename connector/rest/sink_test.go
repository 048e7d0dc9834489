package rest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSinks(t *testing.T) {
	for written, want := range map[string]struct {
		sink  Sink
		says  string
		piped bool
	}{
		"":                                    {sink: Sink{JSONL: &JSONL{Dir: "./out"}}, says: "jsonl in ./out"},
		"sink: {jsonl: {}}":                   {sink: Sink{JSONL: &JSONL{Dir: "./out"}}, says: "jsonl in ./out"},
		"sink: {jsonl: {dir: a b}}":           {sink: Sink{JSONL: &JSONL{Dir: "a b"}}, says: "jsonl in a b"},
		"sink: {sqlite: {}}":                  {sink: Sink{SQLite: &SQLite{}}, says: "sqlite in the state file"},
		"sink: {sqlite: {file: data.db}}":     {sink: Sink{SQLite: &SQLite{File: "data.db"}}, says: "sqlite in data.db"},
		"sink: {parquet: {}}":                 {sink: Sink{Parquet: &Parquet{Dir: "./out"}}, says: "parquet in ./out"},
		"sink: {parquet: {dir: /data/lake}}":  {sink: Sink{Parquet: &Parquet{Dir: "/data/lake"}}, says: "parquet in /data/lake"},
		"sink: {singer: {}}":                  {sink: Sink{Singer: &Singer{}}, says: "singer on standard output", piped: true},
		"sink: {airbyte: {}}":                 {sink: Sink{Airbyte: &Airbyte{}}, says: "airbyte on standard output", piped: true},
		"sink: {sqlite: {file: \"${REPO}\"}}": {sink: Sink{SQLite: &SQLite{File: "golang/go"}}, says: "sqlite in golang/go"},
	} {
		t.Run(written, func(t *testing.T) {
			cfg := parse(t, least+written+"\n")
			if diff := cmp.Diff(want.sink, cfg.Sink); diff != "" {
				t.Error(diff)
			}
			if got := cfg.Sink.String(); got != want.says || Describe(cfg).Sink != want.says {
				t.Errorf("it says %q and the plan %q, want %q", got, Describe(cfg).Sink, want.says)
			}
			if cfg.Sink.Piped() != want.piped {
				t.Errorf("standard output is the sink's: %v", cfg.Sink.Piped())
			}
		})
	}
	if got := (Sink{}).String(); got != "" {
		t.Errorf("no sink is %q", got)
	}
}

// TestEachSinkOfTheSchemaIsBuilt keeps the schema and the code from naming
// different kinds.
func TestEachSinkOfTheSchemaIsBuilt(t *testing.T) {
	def := table(table(loadSchema().source["$defs"])["sink"])
	kinds := table(def["properties"])
	if len(kinds) < 5 {
		t.Fatalf("the schema knows %d sinks", len(kinds))
	}
	for kind := range kinds {
		if says := parse(t, least+"sink: {"+kind+": {}}\n").Sink.String(); !strings.HasPrefix(says, kind+" ") {
			t.Errorf("%s becomes %q", kind, says)
		}
		if !strings.Contains(def["errorMessage"].(string), kind) {
			t.Errorf("the advice does not name %s", kind)
		}
	}
}

func TestThePlanNamesTheSink(t *testing.T) {
	archive := plans(t)
	for _, kind := range []string{"sqlite", "parquet", "singer", "airbyte"} {
		var text strings.Builder
		if err := Describe(parse(t, least+"sink: {"+kind+": {}}\n")).Write(&text); err != nil {
			t.Fatal(err)
		}
		archive.Check(t, "sink_"+kind+".txt", text.String())
	}
}
