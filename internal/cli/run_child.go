package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/ca"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/forward"
	"github.com/headway-go/headway/internal/lockfile"
)

// child is what a program that is governed has to know.
type child struct {
	address, password string
	files             string   // the folder with what the variables name
	hosts             []string // that are governed; nil for all
}

// Files for the program, in its folder.
const (
	bundleFile = "ca-bundle.pem"   // the system's roots and ours
	extraFile  = "ca-extra.pem"    // ours alone
	javaFile   = "truststore.jks"  // as the bundle, for Java
	phpFile    = "php/headway.ini" // names the bundle, for PHP
	maxBundle  = 16 << 20          // of a file with certificates
	lingering  = 2 * time.Second   // for output of what a command leaves behind
)

// rootFiles are where systems keep their roots in one file.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/tls/cacert.pem",
}

// bundleVariables are those that name a file with the roots a program trusts.
var bundleVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT",
	"PIP_CERT", "npm_config_cafile", "PERL_LWP_SSL_CA_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
}

// write writes the files that the variables name. Roots that the variables name already
// are among them.
func (c *child) write(root []byte, getenv func(string) string) error {
	var bundle []byte
	if os.Getenv("SSL_CERT_FILE") == "" {
		for _, name := range rootFiles {
			if b, err := atomicfile.Read(name, maxBundle); err == nil {
				bundle = b
				break
			}
		}
	}
	seen := map[string]bool{}
	for _, name := range bundleVariables {
		file := getenv(name)
		if file == "" || seen[file] {
			continue
		}
		seen[file] = true
		b, err := atomicfile.Read(file, maxBundle)
		if err != nil {
			return usage(fmt.Errorf("the certificates of $%s: %w", name, err))
		}
		bundle = append(lines(bundle), b...)
	}
	extra := slices.Clone(root)
	if file := getenv("NODE_EXTRA_CA_CERTS"); file != "" {
		b, err := atomicfile.Read(file, maxBundle)
		if err != nil {
			return usage(fmt.Errorf("the certificates of $NODE_EXTRA_CA_CERTS: %w", err))
		}
		extra = append(lines(b), root...)
	}
	bundle = append(lines(bundle), root...)
	if err := os.MkdirAll(filepath.Join(c.files, filepath.Dir(phpFile)), 0o700); err != nil {
		return err
	}
	path := filepath.Join(c.files, bundleFile)
	for name, content := range map[string][]byte{
		bundleFile: bundle, extraFile: extra, javaFile: ca.TrustStore(bundle),
		phpFile: fmt.Appendf(nil, "curl.cainfo=%q\nopenssl.cafile=%q\n", path, path),
	} {
		if err := atomicfile.WriteUnsynced(disk.OS{}, filepath.Join(c.files, name), content); err != nil {
			return err
		}
	}
	return nil
}

// lines ends the last line of a text.
func lines(b []byte) []byte {
	if len(b) > 0 && !bytes.HasSuffix(b, []byte("\n")) {
		b = append(slices.Clip(b), '\n')
	}
	return b
}

// environment are the variables that the program gets beside those there are.
func (c *child) environment(getenv func(string) string) (all []string) {
	set := func(name, value string) { all = append(all, name+"="+value) }
	proxy := (&url.URL{Scheme: "http", User: url.UserPassword(forward.User, c.password), Host: c.address}).String()
	direct := c.direct(getenv)
	for _, v := range [...][2]string{{"HTTP_PROXY", proxy}, {"HTTPS_PROXY", proxy}, {"NO_PROXY", strings.Join(direct, ",")}} {
		set(v[0], v[1])
		set(strings.ToLower(v[0]), v[1])
	}
	for _, name := range bundleVariables {
		set(name, filepath.Join(c.files, bundleFile))
	}
	set("NODE_EXTRA_CA_CERTS", filepath.Join(c.files, extraFile))
	set("NODE_USE_ENV_PROXY", "1")
	set("PERL_LWP_ENV_PROXY", "1")
	set("PHP_INI_SCAN_DIR", getenv("PHP_INI_SCAN_DIR")+string(os.PathListSeparator)+filepath.Join(c.files, filepath.Dir(phpFile)))
	set("JAVA_TOOL_OPTIONS", strings.TrimSpace(getenv("JAVA_TOOL_OPTIONS")+" "+c.java(direct)))
	return all
}

// java are the options that have a Java program use the proxy. They hold no password,
// since Java prints them.
func (c *child) java(direct []string) string {
	host, port, _ := net.SplitHostPort(c.address)
	for i, h := range direct {
		if strings.HasPrefix(h, ".") {
			direct[i] = "*" + h
		}
		if strings.Contains(h, ":") {
			direct[i] = "[" + h + "]"
		}
	}
	var b []string
	for _, kind := range []string{"http", "https"} {
		b = append(b, "-D"+kind+".proxyHost="+host, "-D"+kind+".proxyPort="+port)
	}
	b = append(b, "-Dhttp.nonProxyHosts="+strings.Join(direct, "|"), "-Djavax.net.ssl.trustStore="+filepath.Join(c.files, javaFile),
		"-Djavax.net.ssl.trustStoreType=JKS", "-Djavax.net.ssl.trustStorePassword="+ca.TrustStorePassword)
	for i, o := range b {
		if strings.ContainsAny(o, " \t") {
			b[i] = `"` + o + `"`
		}
	}
	return strings.Join(b, " ")
}

// direct are the hosts that the program reaches without the proxy: those it did so far, or
// else this machine, but none that is governed.
func (c *child) direct(getenv func(string) string) []string {
	before := getenv("no_proxy")
	if v := getenv("NO_PROXY"); v != "" {
		before = v
	}
	all := []string{"localhost", "127.0.0.1", "::1"}
	for one := range strings.SplitSeq(before, ",") {
		if one = strings.TrimSpace(one); one != "" && one != "*" && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return slices.DeleteFunc(all, func(one string) bool {
		one = strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(one), "*"), ".")
		return slices.ContainsFunc(c.hosts, func(pattern string) bool {
			name := strings.TrimPrefix(pattern, "*.")
			return name == one || strings.HasSuffix(name, "."+one)
		})
	})
}

// run runs a command to its end, and returns its exit code.
func (c *child) run(cmd *cobra.Command, path string, args []string) (int, error) {
	p := exec.Command(path, args[1:]...)
	p.Args[0] = args[0]
	p.Env = append(p.Environ(), c.environment(os.Getenv)...)
	p.Stdin, p.Stdout, p.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	p.WaitDelay = lingering
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedOn...)
	defer signal.Stop(signals)
	if err := p.Start(); err != nil {
		return 0, &exitError{code: exitNotExecutable, err: fmt.Errorf("the command cannot be started: %w", err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	// A terminal sends Ctrl-C and Ctrl-\ to the command too: it would get them twice.
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	for {
		select {
		case s := <-signals:
			if terminal && (s == passedOn[0] || s == passedOn[3]) {
				continue
			}
			_ = p.Process.Signal(s) // it may have ended
		case err := <-ended:
			if p.ProcessState == nil {
				return 0, err
			}
			if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && !errors.Is(err, exec.ErrWaitDelay) {
				return 0, err
			}
			return endedBy(p.ProcessState), nil
		}
	}
}

func newProxy() *cobra.Command {
	var (
		g      governing
		listen string
		file   string
	)
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Keep the proxy of \"headway run\" open, for programs that are started elsewhere",
		Long: `Opens the proxy of "headway run" until it is stopped, and writes the variables that a
program needs into a file, which a shell reads with ". FILE". The file holds the proxy's
password, which is new at each start, and is for you only. Other runs and collections
on this machine share their pace with the proxy by a socket in the state folder.

Ctrl-C or SIGTERM stops it; a summary follows.

Exit codes: 0 stopped; 64 bad usage; 69 the address is in use; 70 a fault on this side.`,
		Example: `  headway proxy --host api.example.com --env-file ~/.headway-proxy
  . ~/.headway-proxy && ./sync.py         # in another shell`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !loopback(listen) {
				return usage(fmt.Errorf("--listen is %q, must be an address of this machine alone, such as 127.0.0.1:8701", clip(listen, 80)))
			}
			if err := g.check(cmd); err != nil {
				return err
			}
			if file == "" {
				file = filepath.Join(g.state, "proxy.env")
			}
			return g.serve(cmd, listen, file)
		},
	}
	g.flags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8701", "`address` to listen on, of this machine alone; port 0 takes a free one")
	cmd.Flags().StringVar(&file, "env-file", "", "write the variables into this `file`, once the proxy is open; removed at the end (default proxy.env in the state folder)")
	cmd.Flags().Bool("json", false, "print the summary as JSON")
	return cmd
}

// serve keeps the proxy open until a signal.
func (g *governing) serve(cmd *cobra.Command, listen, file string) (err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, passedOn[1])
	defer signal.Stop(signals)
	files, err := os.MkdirTemp("", "headway-proxy-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(files)) }()
	closeFleet, err := g.meet(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeFleet()) }()
	of, err := g.open(cmd, listen, files)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, v := range of.at.environment(os.Getenv) {
		name, value, _ := strings.Cut(v, "=")
		b.WriteString("export " + name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'\n")
	}
	began := time.Now()
	if err = atomicfile.WriteUnsynced(disk.OS{}, file, []byte(b.String())); err == nil {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n  . %s    # in the shell that starts a program\n", of.at.address, file)
		notify("READY=1")
		select {
		case <-signals:
		case <-cmd.Context().Done():
		case err = <-of.stopped:
		}
		err = errors.Join(err, os.Remove(file))
	}
	s, cut, kept := of.close()
	_ = g.report(cmd, "the programs", time.Since(began), s, cut)
	return errors.Join(err, kept)
}

// meet opens the socket at which others on this machine share their pace, unless a "headway
// serve" has it already.
func (g *governing) meet(cmd *cobra.Command) (func() error, error) {
	if at, err := cmd.Flags().GetString("fleet"); err != nil || at != "" {
		return func() error { return nil }, err
	}
	if err := os.MkdirAll(g.state, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockfile.Open(filepath.Join(g.state, "proxy.lock"))
	if err != nil {
		return nil, &exitError{code: exitRefused, err: fmt.Errorf("another \"headway proxy\" has the state folder: %w", err)}
	}
	path := filepath.Join(g.state, fleet.Socket)
	if f, err := fleetAmong(cmd, configfile.Secret{}, path, filepath.Join(".headway", fleet.Socket)); err != nil || f != nil {
		return lock.Close, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // one that was killed left it
		return nil, errors.Join(err, lock.Close())
	}
	l, err := new(net.ListenConfig).Listen(cmd.Context(), "unix", path)
	if err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "headway: warning: others cannot share the pace: %v\n", err)
		return lock.Close, nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close(), lock.Close())
	}
	server := fleet.NewServer()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(l)
	}()
	return func() error {
		err := l.Close()
		server.Close()
		<-ended
		return errors.Join(err, lock.Close())
	}, nil
}
