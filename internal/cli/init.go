package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/story"
)

// maxFirstPage bounds the page that init reads.
const maxFirstPage = 32 << 20

func newInit() *cobra.Command {
	var name, bearer, header, file string
	cmd := &cobra.Command{
		Use:   "init URL",
		Short: "Write a first connection file from the URL of a list",
		Long: `Asks the URL, as a GET, and proposes a connection file by the answer: where the
records are, what identifies one, and how to get to the next page. It writes the file,
checks it with a request or two more, and says what to look at before collecting.

The credential is named by the environment variable that holds it: no secret stands in
the file or on the command line. A file that is there is not replaced.`,
		Example: `  headway init "https://api.example.com/v1/things?limit=100"
  headway init https://api.example.com/orders --bearer SHOP_TOKEN --name shop
  headway init https://api.example.com/orders --header X-Api-Key=SHOP_KEY --out orders.yaml`,
		Args: exactly(1, "the URL of a list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := url.Parse(args[0])
			if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || at.Fragment != "" {
				return usage(fmt.Errorf("%q is not a URL to begin with: want one such as https://api.example.com/things, without user and password", story.Visible(args[0])))
			}
			d := proposal{at: at, name: name, variable: bearer}
			if header != "" {
				var ok bool
				if d.header, d.variable, ok = strings.Cut(header, "="); !ok || bearer != "" || d.header == "" {
					return usage(errors.New("--header is not NAME=VARIABLE, or --bearer is there as well: one credential, such as --header X-Api-Key=SHOP_KEY"))
				}
			}
			if d.variable != "" && !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(d.variable) {
				return usage(errors.New("the credential must be given by the name of its environment variable, such as SHOP_TOKEN"))
			}
			if d.variable != "" && os.Getenv(d.variable) == "" {
				return usage(fmt.Errorf("the environment variable %s is not set: it is to hold the credential", d.variable))
			}
			if d.name == "" {
				d.name = plainWord(at.Hostname())
			}
			if plainWord(d.name) != d.name {
				return usage(fmt.Errorf("--name is %q, must be letters, digits and dashes, with a letter first", story.Visible(d.name)))
			}
			if file == "" {
				file = d.name + ".yaml"
			}
			if _, err := os.Lstat(file); err == nil {
				return usage(fmt.Errorf("%s is there already: --out FILE writes another", file))
			}
			if err := d.look(cmd); err != nil {
				return err
			}
			d.follow(cmd)
			text := d.file()
			c, err := rest.Parse(file, []byte(text), os.LookupEnv)
			if err != nil {
				return usage(fmt.Errorf("what the answer suggests is no connection: %w", err))
			}
			if err := writeNew(file, text); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s\n", file, figure.Count(int64(d.count)), d.records)
			for _, line := range d.notes {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), "  "+line)
			}
			con, err := rest.New(c)
			if err != nil {
				return usage(err)
			}
			found, err := probeOnce(cmd, c, con)
			if err != nil {
				return fmt.Errorf("%s is written, and its check failed: %w", file, err)
			}
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), "probe: "+found.String())
			for _, w := range found.Warnings {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", "warning", w)
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "next: look at %s, then headway collect %s\n", file, file)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "the connection's `name` (default the host, in letters, digits and dashes)")
	f.StringVar(&bearer, "bearer", "", "`variable` of the environment that holds a bearer token")
	f.StringVar(&header, "header", "", "header that carries the credential, with the variable that holds it: `NAME=VARIABLE`")
	f.StringVar(&file, "out", "", "`file` to write (default NAME.yaml)")
	return cmd
}

// writeNew writes a file that is not there.
func writeNew(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // it holds no secret
	if errors.Is(err, fs.ErrExist) {
		return usage(fmt.Errorf("%s is there already: --out FILE writes another", file))
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// plainWord returns letters, digits and dashes of a text, with a letter first.
func plainWord(text string) string {
	text = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(text, "-"), "-")
	if text == "" || text[0] >= '0' && text[0] <= '9' {
		text = "api-" + text
	}
	return strings.TrimSuffix(text[:min(len(text), 60)], "-")
}

// proposal is a connection file as far as it is known.
type proposal struct {
	at                     *url.URL
	name, header, variable string
	records, key, paginate string // as in the file; paginate may be empty
	incremental            string // a comment
	param, cursor          string // of the next page, where the answer names it
	first                  string // the first record
	count                  int
	notes                  []string
}

// look asks for the page and reads it.
func (d *proposal) look(cmd *cobra.Command) error {
	page, header, err := d.fetch(cmd, d.at)
	if err != nil {
		return err
	}
	return d.read(page, header)
}

// follow asks for the page after it where that takes a parameter, whose name is a guess.
func (d *proposal) follow(cmd *cobra.Command) {
	if d.param == "" {
		return
	}
	to, q := *d.at, d.at.Query()
	q.Set(d.param, d.cursor)
	to.RawQuery = q.Encode()
	page, _, err := d.fetch(cmd, &to)
	records, _ := recordsIn(page, "")
	switch {
	case err != nil:
		d.notes = append(d.notes, "warning: with the parameter "+d.param+" "+err.Error()+": correct its name in the file")
	case len(records) > 0 && fmt.Sprint(records[0]) == d.first:
		d.notes = append(d.notes, "warning: with the parameter "+d.param+" the same page came again: correct its name in the file")
	}
}

// fetch gets a page of JSON.
func (d *proposal) fetch(cmd *cobra.Command, at *url.URL) (page any, header http.Header, err error) {
	ask, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, nil, usage(err)
	}
	ask.Header.Set("Accept", "application/json")
	switch {
	case d.header != "":
		ask.Header.Set(d.header, os.Getenv(d.variable))
	case d.variable != "":
		ask.Header.Set("Authorization", "Bearer "+os.Getenv(d.variable))
	}
	// A credential is not sent to another address.
	browser := http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := browser.Do(ask)
	if err != nil {
		return nil, nil, &exitError{code: exitDeferred, err: err}
	}
	defer func() { _ = answer.Body.Close() }() // it was read, or is of no use
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxFirstPage+1))
	switch {
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return nil, nil, unavailable(fmt.Errorf("the API answers %s: --bearer VARIABLE or --header NAME=VARIABLE names the variable that holds the credential", answer.Status))
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		return nil, nil, unavailable(fmt.Errorf("the API answers %s, to another address: give that one", answer.Status))
	case answer.StatusCode != http.StatusOK:
		return nil, nil, unavailable(fmt.Errorf("the API answers %s", answer.Status))
	case err != nil:
		return nil, nil, &exitError{code: exitDeferred, err: err}
	case len(body) > maxFirstPage:
		return nil, nil, unavailable(errors.New("the answer is longer than 32 MiB: ask for a smaller page"))
	}
	from := json.NewDecoder(bytes.NewReader(body))
	from.UseNumber()
	if err := from.Decode(&page); err != nil {
		return nil, nil, unavailable(fmt.Errorf("the answer is not JSON: %w", err))
	}
	return page, answer.Header, nil
}

// read finds in an answer what the file is to say.
func (d *proposal) read(page any, header http.Header) error {
	records, found := recordsIn(page, "")
	if len(records) == 0 {
		return unavailable(errors.New("the answer has no list of objects: give the URL of a list that has some"))
	}
	d.records, d.count, d.first = found, len(records), fmt.Sprint(records[0])
	if d.key = keyOf(records); d.key == "" {
		return unavailable(fmt.Errorf("no field identifies each of the %d records at %s: write the file by hand, with a key such as '\"\\(.a)/\\(.b)'", len(records), found))
	}
	d.notes = append(d.notes, "key "+d.key+", which all of them have and no two share")
	d.paginate = d.paging(page, header)
	if d.paginate == "" {
		d.notes = append(d.notes, "no next page was found in the answer: the list is taken to be one page")
	} else {
		d.notes = append(d.notes, "next page by "+d.paginate)
	}
	for _, name := range []string{"updated_at", "updatedAt", "modified_at", "modifiedAt", "last_modified", "lastModified", "updated", "modified"} {
		if !slices.ContainsFunc(records, func(r map[string]any) bool { return r[name] == nil }) {
			d.incremental = fmt.Sprintf("    # incremental: {cursor: .%s, param: updated_after}   # if the API takes a parameter for what changed since: its name", name)
			d.notes = append(d.notes, "."+name+" may say what changed: the file has a line to uncomment once the API's parameter for it is known")
			break
		}
	}
	return nil
}

// recordsIn returns the longest list of objects in an answer, with its expression.
func recordsIn(v any, at string) (best []map[string]any, where string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			o, ok := e.(map[string]any)
			if !ok {
				return nil, ""
			}
			best = append(best, o)
		}
		if at == "" {
			at = "."
		}
		return best, at
	case map[string]any:
		if strings.Count(at, ".") > 2 {
			return nil, ""
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if all, there := recordsIn(v[name], at+member(name)); len(all) > len(best) {
				best, where = all, there
			}
		}
	}
	return best, where
}

// member is the jq expression of a member.
func member(name string) string {
	if regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name) {
		return "." + name
	}
	b, _ := json.Marshal(name) // a text always can be
	return ".[" + string(b) + "]"
}

// keyOf returns the expression of what identifies each record; "" without such a field.
func keyOf(records []map[string]any) string {
	names := []string{"id", "uuid", "guid", "_id", "key", "number", "slug"}
	for _, name := range slices.Sorted(maps.Keys(records[0])) {
		if lower := strings.ToLower(name); strings.HasSuffix(lower, "id") || strings.HasSuffix(lower, "key") || strings.HasSuffix(lower, "code") {
			names = append(names, name)
		}
	}
	for _, name := range append(names, "name") {
		seen := map[string]bool{}
		for _, r := range records {
			switch v := r[name].(type) {
			case string:
				seen[v] = v != ""
			case json.Number:
				_, err := strconv.ParseInt(v.String(), 10, 64)
				seen[v.String()] = err == nil
			}
		}
		if len(seen) == len(records) && !slices.Contains(slices.Collect(maps.Values(seen)), false) {
			return member(name)
		}
	}
	return ""
}

// paging returns how to get to the next page; "" if the answer does not tell.
func (d *proposal) paging(page any, header http.Header) string {
	if strings.Contains(strings.Join(header.Values("Link"), ","), `rel="next"`) {
		return "{link: true}"
	}
	if where, value := nextIn(page, "", 0); where != "" {
		if strings.HasPrefix(value, "http://") || strings.HasPrefix(value, "https://") || strings.HasPrefix(value, "/") {
			return fmt.Sprintf("{next_url: %s}", quoted(where))
		}
		param := where[strings.LastIndexAny(where, ".")+1:]
		param = strings.TrimPrefix(param, "next_")
		if rest, ok := strings.CutPrefix(param, "next"); ok && rest != "" {
			param = strings.ToLower(rest[:1]) + rest[1:]
		}
		if d.at.Query().Has(param) {
			d.notes = append(d.notes, "the URL has "+param+" already: without it the list begins at its first page")
		}
		d.param, d.cursor = param, value
		return fmt.Sprintf("{cursor: %s, param: %s}", quoted(where), quoted(param))
	}
	q := d.at.Query()
	for _, name := range []string{"page", "page_number", "pageNumber"} {
		if start, err := strconv.Atoi(q.Get(name)); err == nil && start >= 0 {
			return fmt.Sprintf("{page: {param: %s, start: %d}}", name, start)
		}
	}
	for _, name := range []string{"limit", "count", "per_page"} {
		if n, err := strconv.Atoi(q.Get(name)); err == nil && n > 0 && q.Has("offset") {
			return fmt.Sprintf("{offset: {param: offset, limit_param: %s, limit: %d}}", name, n)
		}
	}
	return ""
}

// nextIn returns the expression and the value of what names the next page.
func nextIn(v any, at string, deep int) (where, value string) {
	o, ok := v.(map[string]any)
	if !ok || deep > 2 {
		return "", ""
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		text, ok := o[name].(string)
		lower := strings.ToLower(name)
		before := strings.Contains(lower, "prev") || strings.Contains(lower, "start_cursor")
		if ok && text != "" && !before && (strings.Contains(lower, "next") || strings.Contains(lower, "cursor") || strings.Contains(lower, "pagetoken") || strings.Contains(lower, "page_token")) {
			return at + member(name), text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if where, value = nextIn(o[name], at+member(name), deep+1); where != "" {
			return where, value
		}
	}
	return "", ""
}

// quoted is a text as YAML has it.
func quoted(text string) string {
	word := regexp.MustCompile(`^[A-Za-z_/.][A-Za-z0-9_/.-]*[A-Za-z0-9_]$`).MatchString(text)
	if word && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "null", ".inf", ".nan"}, strings.ToLower(text)) {
		return text
	}
	b, _ := json.Marshal(text) // a text always can be
	return string(b)
}

// file is the connection file.
func (d *proposal) file() string {
	var b strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	stream := plainWord(path.Base(d.at.Path))
	base := url.URL{Scheme: d.at.Scheme, Host: d.at.Host}
	line("connection: %s", quoted(d.name))
	line("provider:")
	line("  base_url: %s", base.String())
	switch {
	case d.header != "":
		line("  auth: {header: {name: %s, value: \"${%s}\"}}", quoted(d.header), d.variable)
	case d.variable != "":
		line("  auth: {bearer: \"${%s}\"}", d.variable)
	}
	line("  # ceiling: 100ms            # never faster than this; 250ms where the file does not say")
	line("streams:")
	line("  - name: %s", quoted(stream))
	query := ""
	values := d.at.Query()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if strings.HasPrefix(d.paginate, "{page") && strings.Contains(d.paginate, "param: "+name+",") || strings.HasPrefix(d.paginate, "{offset") && (name == "offset" || strings.Contains(d.paginate, "limit_param: "+name+",")) {
			continue // the walk sets it
		}
		value, _ := json.Marshal(values.Get(name)) // a text always can be
		query += fmt.Sprintf(", %s: %s", quoted(name), value)
	}
	if query != "" {
		query = ", query: {" + strings.TrimPrefix(query, ", ") + "}"
	}
	at := d.at.Path
	if at == "" {
		at = "/"
	}
	line("    list: {path: %s%s}", quoted(at), query)
	line("    records: %s", quoted(d.records))
	line("    key: %s", quoted(d.key))
	if d.paginate != "" {
		line("    paginate: %s", d.paginate)
	}
	if d.incremental != "" {
		line("%s", d.incremental)
	}
	line("sink: {jsonl: {dir: ./out}}")
	return b.String()
}
