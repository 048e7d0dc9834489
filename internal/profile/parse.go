package profile

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

//go:embed data/*.yaml
var data embed.FS

// options configure how a profile is read.
var options = configfile.Options{What: "profile", Want: "profile, sources and pools", MaxBytes: 128 << 10}

// Names returns the names of the built-in profiles.
func Names() []string {
	all, _ := fs.Glob(data, "data/*.yaml")
	for i, path := range all {
		all[i] = strings.TrimSuffix(strings.TrimPrefix(path, "data/"), ".yaml")
	}
	slices.Sort(all)
	return all
}

// FolderVariable is the environment variable for a folder of user profiles.
const FolderVariable = "HEADWAY_PROFILES"

// All returns all profiles that can be named, by name. Those in the folders replace
// built-in ones of the same name.
func All(folders ...string) ([]*Profile, error) {
	names := Names()
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			names = append(names, strings.TrimSuffix(filepath.Base(f), ".yaml"))
		}
	}
	slices.Sort(names)
	var all []*Profile
	for _, name := range slices.Compact(names) {
		p, err := Find(name, folders...)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Find returns a profile by name or by path; a name with a slash or the ending .yaml is a
// path. A file NAME.yaml in one of the folders replaces the built-in profile NAME.
func Find(name string, folders ...string) (*Profile, error) {
	if strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		return Load(name)
	}
	for _, folder := range folders {
		path := filepath.Join(folder, name+".yaml")
		if _, err := os.Stat(path); err == nil {
			return Load(path)
		}
	}
	src, err := data.ReadFile("data/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no profile is called %s: %s", configfile.Quote(name), configfile.Suggest(name, Names()))
	}
	return Parse(name+".yaml", src)
}

// OfHost returns the profile whose patterns match a host; nil if there is none.
func OfHost(host string, folders ...string) (*Profile, error) {
	all, err := All(folders...)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		for _, pattern := range p.hosts {
			if fits(pattern, host) {
				return p, nil
			}
		}
	}
	return nil, nil
}

// Load reads a profile from a file. The error names every problem with line and field.
func Load(path string) (*Profile, error) {
	src, err := configfile.Load(path, options)
	if err != nil {
		return nil, err
	}
	p, err := Parse(path, src)
	if p != nil {
		p.file = path
	}
	return p, err
}

// Parse is like [Load] for the content of a file, which errors call name.
func Parse(name string, src []byte) (*Profile, error) {
	root, file := configfile.Parse(name, src, options)
	if root == nil {
		return nil, file.Err()
	}
	s := root.Section()
	if s == nil {
		return nil, file.Err()
	}
	p := &Profile{text: src, fields: root.JSON()}
	p.read(s)
	if err := file.Err(); err != nil {
		return nil, err
	}
	for i := range p.pools {
		p.finder.List = append(p.finder.List, p.pools[i].Pool)
	}
	return p, nil
}

// Text returns the file that the profile was read from.
func (p *Profile) Text() []byte { return p.text }

// JSON returns the content of the file, for an encoder.
func (p *Profile) JSON() any { return p.fields }

func (p *Profile) read(s *configfile.Section) {
	s.Require("profile", "its name")
	s.Text("profile", &p.name)
	s.Text("title", &p.title)
	s.Text("note", &p.note)
	p.hosts = texts(s, "hosts")
	p.sources = map[string]Source{}
	if all := s.Below("sources"); all != nil {
		for _, f := range all.Fields() {
			from := all.Below(f.Name)
			var src Source
			from.Require("url", "the address of a page")
			from.Text("url", &src.URL)
			from.Require("date", "the day on which it was read, such as 2026-11-22")
			from.Text("date", &src.Date)
			if _, err := time.Parse(time.DateOnly, src.Date); from.Has("date") && err != nil {
				from.Want("date", "the day on which it was read, such as 2026-11-22")
			}
			from.Done()
			p.sources[f.Name] = src
		}
	}
	if a := s.Below("account"); a != nil {
		p.readClass(a, &p.account)
		a.Done()
	}
	for _, n := range s.List("pools") {
		if c := n.Section(); c != nil {
			pool := Class{Pool: readPool(c)}
			p.readClass(c, &pool)
			c.Done()
			p.pools = append(p.pools, pool)
		}
	}
	for _, n := range s.List("refusals") {
		if r := n.Section(); r != nil {
			p.refusals = append(p.refusals, p.refusal(r))
			r.Done()
		}
	}
	if a := s.Below("ask"); a != nil {
		p.ask = &Ask{Source: p.source(a)}
		for _, f := range []field{
			{"path", &p.ask.Path}, {"in", &p.ask.In}, {"limit", &p.ask.Limit}, {"remaining", &p.ask.Remaining}, {"reset", &p.ask.Reset},
		} {
			a.Require(f.key, "a text")
			a.Text(f.key, f.into)
		}
		a.Done()
	}
	s.Done()
}

// A field is a key of the file and the variable for its text.
type field struct {
	key  string
	into *string
}

// source reads the source of a figure.
func (p *Profile) source(s *configfile.Section) (key string) {
	s.Require("source", "a name under sources: every figure says where it is published")
	s.Text("source", &key)
	if _, known := p.sources[key]; !known && s.Has("source") {
		s.Want("source", "a name under sources")
	}
	return key
}

// readClass reads the limits of a pool or of the account.
func (p *Profile) readClass(s *configfile.Section, c *Class) {
	for _, n := range s.List("limits") {
		l := n.Section()
		if l == nil {
			continue
		}
		limit := Limit{Kind: Window, Unit: signal.UnitRequests, Source: p.source(l)}
		configfile.OneOf(l, "kind", &limit.Kind, Window, Bucket, InFlight)
		l.Require("size", "a number above 0")
		l.Number("size", &limit.Size, 1e-6, 1e15)
		if limit.Kind != InFlight {
			l.Require("window", "its length, such as 1m or 1h")
		} else if l.Has("window") {
			l.Fail("window", "does not belong to kind in_flight; want it left out")
		}
		l.Duration("window", &limit.Window, time.Millisecond, 366*24*time.Hour)
		l.Text("unit", &limit.Unit)
		l.Text("plan", &limit.Plan)
		l.Text("note", &limit.Note)
		l.Done()
		c.Limits = append(c.Limits, limit)
	}
	if cost := s.Below("cost"); cost != nil {
		c.Cost = Cost{Base: 1, Source: p.source(cost)}
		cost.Require("unit", "what is counted, such as points or tokens")
		cost.Text("unit", &c.Cost.Unit)
		cost.Number("base", &c.Cost.Base, 0, 1e12)
		cost.Number("bytes", &c.Cost.Bytes, 1, 1e6)
		c.Cost.Fields = texts(cost, "fields")
		c.Cost.Reports = texts(cost, "reports")
		cost.Text("alike", &c.Cost.Alike)
		cost.Text("header", &c.Cost.Header)
		if parts := cost.Below("parts"); parts != nil {
			c.Cost.Parts = map[string][]string{}
			for _, f := range parts.Fields() {
				c.Cost.Parts[f.Name] = texts(parts, f.Name)
			}
		}
		for _, n := range cost.List("rules") {
			if r := n.Section(); r != nil {
				rule := CostRule{Match: ReadMatch(r.Below("match"))}
				r.Require("cost", "a number")
				r.Number("cost", &rule.Cost, 0, 1e12)
				r.Done()
				c.Cost.Rules = append(c.Cost.Rules, rule)
			}
		}
		cost.Done()
	}
	for _, n := range s.List("advertised") {
		if a := n.Section(); a != nil {
			c.Advertised = append(c.Advertised, p.advertises(a))
			a.Done()
		}
	}
}

func (p *Profile) advertises(s *configfile.Section) Advertised {
	a := Advertised{Unit: signal.UnitRequests, Source: p.source(s)}
	s.Require("name", "what the limit is called")
	s.Text("name", &a.Name)
	s.Text("unit", &a.Unit)
	in := "header"
	configfile.OneOf(s, "in", &in, "header", "body")
	a.Body = in == "body"
	for _, f := range []field{
		{"limit", &a.Limit}, {"remaining", &a.Remaining}, {"used", &a.Used}, {"used_of", &a.UsedOf}, {"reset", &a.Reset}, {"refill_per_second", &a.RefillPerSec},
	} {
		if s.Text(f.key, f.into); !a.Body && *f.into != "" {
			*f.into = http.CanonicalHeaderKey(*f.into)
		}
	}
	s.Bool("refills", &a.Refills)
	s.Duration("window", &a.Window, time.Millisecond, 366*24*time.Hour)
	if a.Remaining == "" && a.Used == "" && a.UsedOf == "" {
		s.Want("remaining", "the field that holds what is left, or used, or used_of")
	}
	return a
}

func (p *Profile) refusal(s *configfile.Section) Refusal {
	r := Refusal{Source: p.source(s)}
	for _, n := range s.List("status") {
		if v, ok := n.Int(); ok && v >= 100 && v <= 599 {
			r.Status = append(r.Status, int(v))
		} else {
			n.Want("a status such as 429")
		}
	}
	r.Header, r.Body = s.Words("header"), s.Words("body")
	configfile.Choice(s, "class", &r.Class, map[string]reason.Class{
		"throttled": reason.Throttled, "overloaded": reason.Overloaded, "failed": reason.Failed, "rejected": reason.Rejected,
	}, "throttled", "overloaded", "failed", "rejected")
	s.Bool("exhausted", &r.Exhausted)
	scope := false
	configfile.Choice(s, "scope", &scope, map[string]bool{"pool": false, "account": true}, "pool", "account")
	r.Account = scope
	s.Duration("wait", &r.Wait, time.Millisecond, 24*time.Hour)
	if len(r.Status)+len(r.Header)+len(r.Body) == 0 {
		s.Want("status", "at least one of status, header and body")
	}
	return r
}
