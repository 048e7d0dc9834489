package forward

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/ca"
	"github.com/headway-go/headway/internal/disk"
)

// Environment describes a proxy to programs.
type Environment struct {
	// Address and Password are those of the proxy.
	Address, Password string
	// Folder is for the files that the variables name.
	Folder string
	// Hosts are patterns of the governed hosts; nil means all.
	Hosts []string
}

// Files for programs, in the folder.
const (
	bundleFile = "ca-bundle.pem"   // the system's roots and our own
	extraFile  = "ca-extra.pem"    // our own root
	javaFile   = "truststore.jks"  // the bundle for Java
	phpFile    = "php/headway.ini" // names the bundle, for PHP
	maxBundle  = 16 << 20          // of a file with certificates
)

// rootFiles are where systems keep their roots in one file.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/tls/cacert.pem",
}

// bundleVariables are variables that name a file with trusted roots.
var bundleVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT",
	"PIP_CERT", "npm_config_cafile", "PERL_LWP_SSL_CA_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
}

// Write writes the files that the variables name, with a root that the programs should trust.
// They contain the roots that the variables of this process name. An [*UnreadableError] says
// which of these cannot be read.
func (e *Environment) Write(root []byte, getenv func(string) string) error {
	var bundle []byte
	if getenv("SSL_CERT_FILE") == "" {
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
			return &UnreadableError{name, err}
		}
		bundle = append(lines(bundle), b...)
	}
	extra := slices.Clone(root)
	if file := getenv("NODE_EXTRA_CA_CERTS"); file != "" {
		b, err := atomicfile.Read(file, maxBundle)
		if err != nil {
			return &UnreadableError{"NODE_EXTRA_CA_CERTS", err}
		}
		extra = append(lines(b), root...)
	}
	bundle = append(lines(bundle), root...)
	if err := os.MkdirAll(filepath.Join(e.Folder, filepath.Dir(phpFile)), 0o700); err != nil {
		return err
	}
	path := filepath.Join(e.Folder, bundleFile)
	for name, content := range map[string][]byte{
		bundleFile: bundle, extraFile: extra, javaFile: ca.TrustStore(bundle),
		phpFile: fmt.Appendf(nil, "curl.cainfo=%q\nopenssl.cafile=%q\n", path, path),
	} {
		if err := atomicfile.WriteUnsynced(disk.OS{}, filepath.Join(e.Folder, name), content); err != nil {
			return err
		}
	}
	return nil
}

// lines returns a text whose last line is terminated.
func lines(b []byte) []byte {
	if len(b) > 0 && !bytes.HasSuffix(b, []byte("\n")) {
		b = append(slices.Clip(b), '\n')
	}
	return b
}

// UnreadableError reports that the file that a variable names cannot be read.
type UnreadableError struct {
	Variable string
	Err      error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the certificates of $%s: %v", e.Variable, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// Variables returns the variables, as NAME=VALUE, that programs get in addition to those of this
// process.
func (e *Environment) Variables(getenv func(string) string) (all []string) {
	set := func(name, value string) { all = append(all, name+"="+value) }
	proxy := (&url.URL{Scheme: "http", User: url.UserPassword(User, e.Password), Host: e.Address}).String()
	direct := e.direct(getenv)
	for _, v := range [...][2]string{{"HTTP_PROXY", proxy}, {"HTTPS_PROXY", proxy}, {"NO_PROXY", strings.Join(direct, ",")}} {
		set(v[0], v[1])
		set(strings.ToLower(v[0]), v[1])
	}
	for _, name := range bundleVariables {
		set(name, filepath.Join(e.Folder, bundleFile))
	}
	set("NODE_EXTRA_CA_CERTS", filepath.Join(e.Folder, extraFile))
	set("NODE_USE_ENV_PROXY", "1")
	set("PERL_LWP_ENV_PROXY", "1")
	set("PHP_INI_SCAN_DIR", getenv("PHP_INI_SCAN_DIR")+string(os.PathListSeparator)+filepath.Join(e.Folder, filepath.Dir(phpFile)))
	set("JAVA_TOOL_OPTIONS", strings.TrimSpace(getenv("JAVA_TOOL_OPTIONS")+" "+e.java(direct)))
	return all
}

// java returns the options that make a Java program use the proxy. They hold no password,
// since Java prints them.
func (e *Environment) java(direct []string) string {
	host, port, _ := net.SplitHostPort(e.Address)
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
	b = append(b, "-Dhttp.nonProxyHosts="+strings.Join(direct, "|"), "-Djavax.net.ssl.trustStore="+filepath.Join(e.Folder, javaFile),
		"-Djavax.net.ssl.trustStoreType=JKS", "-Djavax.net.ssl.trustStorePassword="+ca.TrustStorePassword)
	for i, o := range b {
		if strings.ContainsAny(o, " \t") {
			b[i] = `"` + o + `"`
		}
	}
	return strings.Join(b, " ")
}

// direct returns the hosts that programs reach without the proxy: this machine and those that
// NO_PROXY has so far, but none that is governed.
func (e *Environment) direct(getenv func(string) string) []string {
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
		return slices.ContainsFunc(e.Hosts, func(pattern string) bool {
			name := strings.TrimPrefix(pattern, "*.")
			return name == one || strings.HasSuffix(name, "."+one)
		})
	})
}

// Script returns the variables as lines that a shell reads.
func (e *Environment) Script(getenv func(string) string) []byte {
	var b []byte
	for _, v := range e.Variables(getenv) {
		name, value, _ := strings.Cut(v, "=")
		b = append(b, "export "+name+"='"+strings.ReplaceAll(value, "'", `'\''`)+"'\n"...)
	}
	return b
}
