// Command reference writes docs/reference.md, with every field of every configuration file,
// and the JSON Schemas that "headway schema" prints.
//
// What a field means, its unit, its default and an example are in fields.txtar. Type and bounds
// are what the reader itself says when it is given wrong values, so that they cannot differ from
// what it does.
package main

//go:generate go run . ../../..

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/internal/sim/replay"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "reference: want the folder of the repository")
		os.Exit(64)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

//go:embed fields.txtar
var fieldsFile string

// A kind is a kind of configuration file.
type kind struct {
	name  string
	title string
	intro string
	read  reader
}

// kinds are all kinds of files. Files that they name are in the folder.
func kinds(folder string) []kind {
	in := strings.NewReplacer("/etc/headway/", folder+string(filepath.Separator))
	at := func(src []byte) []byte { return []byte(in.Replace(string(src))) }
	env := func(name string) (string, bool) {
		if strings.HasSuffix(name, "_URL") {
			return "postgres://headway@db.example:5432/" + name, true
		}
		return "value-of-" + name, true
	}
	return []kind{
		{
			"connection", "Connection files", "What `headway collect` reads from one API with one credential. Every text may have `${NAME}` in it, which stands for the environment variable.",
			func(src []byte) (any, error) { return rest.Parse("file", at(src), env) },
		},
		{
			"daemon", "The daemon's file", "What `headway serve` reads, by default `headway.yaml`. `headway serve --check` says what a file means.",
			func(src []byte) (any, error) {
				c, err := config.Read("file", at(src), func(name string) string {
					if strings.Contains(name, "KEY") || strings.Contains(name, "TOKEN") {
						return "value-of-" + name
					}
					return "" // a setting by the environment
				})
				return c, err
			},
		},
		{
			"quota", "Quota files", "Budgets of calls and tokens, for `headway quota`, and under `quota` in the daemon's file.",
			func(src []byte) (any, error) { return quotafile.Read("file", src) },
		},
		{
			"target", "Target files", "Where `headway bulk` sends rows.",
			func(src []byte) (any, error) {
				c, err := target.Parse("file", src, env)
				if err == nil {
					c.Params, err = c.Params.Resolve()
				}
				return c, err
			},
		},
		{
			"profile", "Profiles of providers", "What a provider publishes of its limits. `headway profiles` lists those that come with Headway; the environment variable `HEADWAY_PROFILES` names a folder of your own.",
			func(src []byte) (any, error) { return profile.Parse("file", src) },
		},
		{
			"scenario", "Scenario files", "What `headway sim run` and `headway provider serve` simulate.",
			func(src []byte) (any, error) { return scenario.Parse("file", src) },
		},
		{
			"timeline", "Timelines", "What `headway quota simulate` does to a quota, a list of steps. JSON lines with the same fields do as well.",
			func(src []byte) (any, error) { return replay.Parse("file", src) },
		},
	}
}

// fields is the kind's part of fields.txtar.
func (k *kind) fields() []byte {
	_, src, _ := strings.Cut(fieldsFile, "\n-- "+k.name+" --\n")
	src, _, _ = strings.Cut(src, "\n-- ")
	return []byte(src)
}

// shapeOf reads fields.txtar and asks the reader. It fails when a field lacks its text.
func (k *kind) shapeOf() (*shape, error) {
	s, err := parse(k.name, k.fields())
	if err != nil {
		return nil, err
	}
	for i, o := range s.seen {
		if _, err := k.read(source(o.doc, nil)); err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", k.name, i+1, err)
		}
	}
	if err := s.names(k.read, s.named()); err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	if k.name == "connection" {
		s.describe(rest.Schema())
	}
	s.ask(k.read)
	if err := s.lacks(); err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	return s, nil
}

// run writes everything.
func run(repository string) error {
	folder, err := os.MkdirTemp("", "reference")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := examples(folder); err != nil {
		return err
	}
	pages, err := write(repository, folder)
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(repository, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// examples writes the files that fields.txtar names: certificates, their keys, and a token.
func examples(folder string) error {
	for _, name := range []string{"server", "other"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
		if err != nil {
			return err
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		for file, block := range map[string]*pem.Block{
			name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret},
		} {
			if err := os.WriteFile(filepath.Join(folder, file), pem.EncodeToMemory(block), 0o600); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(folder, "token"), []byte("a-token"), 0o600)
}
